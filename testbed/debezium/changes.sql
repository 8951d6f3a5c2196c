-- Statements end with a semicolon and a line feed; each is a transaction of its own, but for what BEGIN and COMMIT hold.
INSERT INTO types(id) VALUES (1);
INSERT INTO types VALUES (2, true, -32768, 2147483647, 9223372036854775807, 4294967295, 1.5, 1.5,
 123.4500, 123.40, 12345678901234567890123456789012345678, 12300, 0.00123, '$1,234.56',
 'x', 'ab', 'varchar', 'nine', E'text "q" \\ \n\t\x01 é €', 'CiText', 'name', 'c',
 '\x00ff10', '2024-02-29', '12:34:56', '12:34:56.789', '12:34:56.789012', '12:34:56.789012+02', '12:34:56.789-05:30',
 '2024-02-29 12:34:56', '2024-02-29 12:34:56.789', '2024-02-29 12:34:56.789012', '2024-02-29 12:34:56.789012+02', '2024-02-29 12:34:56.789+02', '1 year 2 mons 3 days 04:05:06.789012', '1 year 2 mons',
 '123e4567-e89b-12d3-a456-426614174000', '{"a": 1.0, "b":"é"}', '{"a": 1.0, "b":"é"}', '<a>x</a>', 'happy, \"so"', '(1,"b c")', 12.34, 'dom',
 B'1', B'10110', B'101100111010', B'1011', B'101', B'0',
 '10.0.0.1/24', '10.0.0.0/24', '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05', '(1.5,2)', '{1,2,3}', '[(0,0),(1,1)]', '(2,2),(1,1)', '((0,0),(1,1),(2,0))', '((0,0),(1,1),(2,0))', '<(1,2),3>',
 '[1,5)', '[1,5)', '[1.5,2.5]', '[2024-01-01 00:00,2024-01-02 00:00)', '[2024-01-01 00:00+00,2024-01-02 00:00+00)', '[2024-01-01,2024-02-01)', '{[1,3),[5,9)}',
 'a=>1, b=>NULL, "q\"x"=>"y\\z"', 'Top.A.B', 'a:1 b:2', 'a & b', '16/B374D848', '7', '(0,1)', '$.a', 'types',
 '{t,f,NULL}', '{1,2}', '{1,NULL,3}', '{1,9223372036854775807}', '{1.5,2}', '{1.5,2}', '{1.50,2}', '{1.50,2}', '{$1.00}',
 '{a,"b c",NULL,"q\"x",""}', '{ab}', '{ab}', '{"\\x00ff"}', '{2024-02-29}', '{12:34:56.789012}', '{12:34:56.789}', '{12:34:56.5+02}', '{"2024-02-29 12:34:56.789012"}', '{"2024-02-29 12:34:56.789"}', '{"2024-02-29 12:34:56.789012+02"}', '{"1 day"}',
 '{123e4567-e89b-12d3-a456-426614174000}', ARRAY['{"a":1}'::json], ARRAY['{"a":1}'::jsonb], ARRAY['ok','happy, \"so"']::mood[], '{10.0.0.1/24}', '{1,0}', '{10110}', '{101,1}', ARRAY['[1,5)'::int4range], ARRAY['(1,2)'::point], ARRAY['a=>1'::hstore], '{Ci}', '{a.b}', '{1,4294967295}', '{1.20}', ARRAY['<a/>'::xml], ARRAY[ROW(1,'x')::pair], '{10.0.0.0/8}', '{08:00:2b:01:02:03}', '{(2,2),(1,1)}', '{nm}', ARRAY['[2024-01-01 00:00,2024-01-02 00:00)'::tsrange], '{{1,2},{3,4}}');
UPDATE types SET t = 'upd' WHERE id = 2;
DELETE FROM types WHERE id = 2;
INSERT INTO strict VALUES (1, 'a', true, 1, 's', 1.5, '2024-01-01 00:00:00.5', '2024-01-01 00:00:00.5+00', '\x01', '{"a":1}', '123e4567-e89b-12d3-a456-426614174000', '2024-01-01', 2.5, NULL, '{1}', '1 day');
UPDATE strict SET i = 2;
UPDATE strict SET id = 5;
DELETE FROM strict;
INSERT INTO toast SELECT 1, string_agg(md5(g::text),''), string_agg(md5(g::text),''), decode(string_agg(md5(g::text),''),'hex'), jsonb_agg(md5(g::text)), (SELECT string_agg((g*7919%10000)::text,'')::numeric FROM generate_series(1,3000) g), xmlparse(content '<a>'||string_agg(md5(g::text),'')||'</a>'), array_agg(g*7919%1000003), array_agg(g*7919%1000003), array_agg(md5(g::text)), array_agg(md5(g::text)::uuid), hstore(array_agg(g::text), array_agg(md5(g::text))), array_agg('2000-01-01'::date + g*7919%10007), 1 FROM generate_series(1,3000) g;
UPDATE toast SET c = 2;
UPDATE toast SET t = '__debezium_unavailable_value', c = 3;
INSERT INTO fullid VALUES (1, 'a', (SELECT string_agg(md5(g::text),'') FROM generate_series(1,500) g), 1.25);
UPDATE fullid SET t = 'b';
UPDATE fullid SET id = 2;
DELETE FROM fullid;
INSERT INTO keyless VALUES (1,'x'); UPDATE keyless SET b = 'y'; DELETE FROM keyless;
INSERT INTO special(id,what,f4,f8) VALUES (1,'NaN','NaN','NaN'),(2,'Inf','Infinity','Infinity'),(3,'-Inf','-Infinity','-Infinity'),(4,'-0','-0','-0'),(5,'tiny','1e-30','5e-324'),(6,'huge','3.4028235e38','1.7976931348623157e308'),(7,'e','1e10','1e23');
INSERT INTO special(id,what,n) VALUES (10,'n NaN','NaN'); INSERT INTO special(id,what,n) VALUES (11,'n inf','Infinity'); INSERT INTO special(id,what,n52) VALUES (12,'n52 NaN','NaN');
INSERT INTO special(id,what,n) VALUES (13,'n 0','0'),(14,'n -0.00','-0.00'),(15,'big','123456789012345678901234567890.123456789'),(16,'small','0.000000000000000000001'),(17,'neg','-1234.5'),(18,'1e20','100000000000000000000'), (19,'-128',-128),(20,'128',128),(21,'-129',-129),(22,'255',255),(23,'256',256);
INSERT INTO special(id,what,d) VALUES (30,'d inf','infinity'),(31,'d -inf','-infinity'),(32,'d BC','0044-03-15 BC'),(33,'d far','20231-05-01'),(34,'max','5874897-12-31'),(35,'julian','1500-01-01'),(36,'min','4713-01-01 BC'),(37,'1582','1582-10-10');
INSERT INTO special(id,what,t6,tz) VALUES (40,'24','24:00:00',NULL),(41,'tz','00:00:00.000001','23:59:59.999999-15:59');
INSERT INTO special(id,what,ts3,ts6,tst) VALUES (50,'inf','infinity','infinity','infinity'),(51,'-inf','-infinity','-infinity','-infinity'),(52,'BC','0044-03-15 01:02:03.456 BC','0044-03-15 01:02:03.456789 BC','0044-03-15 01:02:03.456789+00 BC'),(53,'far','20231-05-01 01:02:03.456','20231-05-01 01:02:03.456789','20231-05-01 01:02:03.456789+00'),(54,'julian','1500-01-01 01:02:03.456','1500-01-01 01:02:03.456789','1500-01-01 01:02:03.456789+00'),(55,'max','294276-12-31 23:59:59.999','294276-12-31 23:59:59.999999','294276-12-31 23:59:59.999999+00'),(56,'min','4713-01-01 00:00:00 BC','4713-01-01 00:00:00 BC','4713-01-01 00:00:00+00 BC'),(57,'1677','1677-01-01','1677-01-01','1677-01-01 00:00:00+00'),(58,'1969','1969-12-31 23:59:59.999','1969-12-31 23:59:59.999999','1969-12-31 23:59:59.999999+00'),(59,'10000','10000-01-01','10000-01-01','10000-01-01+00'),(60,'1900','1900-01-01 00:00:00.001','1900-01-01 00:00:00.000001','1900-01-01 00:00:00.000001+00');
INSERT INTO special(id,what,iv) VALUES (70,'0','0'),(71,'neg','-1 year -2 mons +3 days -04:05:06.789012'),(72,'big','178000000 years'),(73,'mixed','1 mon -1 day 00:00:00.000001'),(74,'hours','100:00:00'),(75,'month','1 month'),(76,'bigsec','2000000000:00:00'),(77,'mix2','-1 mon +1 day'),(78,'frac','00:00:00.5');
INSERT INTO special(id,what,m) VALUES (80,'m','-$1,234.56'),(81,'m max','92233720368547758.07'),(82,'m0','0');
INSERT INTO special(id,what,an) VALUES (90,'NaN','{NaN,1}');
INSERT INTO special(id,what,af) VALUES (91,'NaN','{NaN,Infinity,1}');
INSERT INTO special(id,what,ada) VALUES (92,'inf','{infinity}');
INSERT INTO special(id,what,ats) VALUES (93,'inf','{infinity}');
INSERT INTO special(id,what,an) VALUES (94,'empty','{}');
INSERT INTO "Odd Näme$" VALUES (1,'x','y'); UPDATE "Odd Näme$" SET "Key" = 2; 
BEGIN; INSERT INTO fullid VALUES (10,'tx','b',1); INSERT INTO strict SELECT 9,'z',true,1,'s',1.5,'2024-01-01','2024-01-01+00','\x01','{}','123e4567-e89b-12d3-a456-426614174000','2024-01-01',2.5,NULL,'{}','0'; COMMIT;
TRUNCATE keyless, fullid;
SELECT pg_logical_emit_message(true, 'pfx', 'content'); SELECT pg_logical_emit_message(false, 'pfx2', 'content2');
INSERT INTO arr SELECT 1, (SELECT string_agg((g*7919%10000)::text,'')::numeric FROM generate_series(1,9000) g), repeat('10',20000)::varbit, repeat('10',2000)::bit(4000), hstore(array_agg(g::text), array_agg(md5(g::text))), array_to_string(array_agg(md5(g::text)),'.')::ltree, array_to_tsvector(array_agg(md5(g::text))), string_agg(md5(g::text),''), string_agg(md5(g::text),''), 'x', ('('||string_agg('('||g||','||g||')',',')||')')::polygon, ('('||string_agg('('||g||','||g||')',',')||')')::path,
 array_agg(true), array_agg(g::int2), array_agg(g), array_agg(g), array_agg(g), array_agg(g), array_agg(g), array_agg(g), array_agg(g::money), array_agg(g::text), array_agg('ab'::varchar), array_agg('ab'::bpchar), array_agg('\x01'::bytea), array_agg('2024-01-01'::date), array_agg('10:00'::time), array_agg('10:00'::time), array_agg('10:00+00'::timetz), array_agg('2024-01-01'::timestamp), array_agg('2024-01-01'::timestamp), array_agg('2024-01-01'::timestamptz), array_agg('2024-01-01'::timestamptz), array_agg('1 day'::interval),
 array_agg(md5(g::text)::uuid), array_agg('{}'::json), array_agg('{}'::jsonb), array_agg('ok'::mood), array_agg('10.0.0.1'::inet), array_agg('[1,5)'::int4range), array_agg('(1,2)'::point), array_agg('a=>1'::hstore), array_agg('Ci'::citext), array_agg('a.b'::ltree), array_agg(g::oid), array_agg('10.0.0.0/8'::cidr), array_agg('08:00:2b:01:02:03'::macaddr), array_agg('[2024-01-01,)'::tsrange), array_agg(g), array_agg('<a/>'::xml), array_agg(B'101'::varbit), 1 FROM generate_series(1,900) g;
UPDATE arr SET c = 2;
INSERT INTO odd(id,what,b5,b12,vb,vb9) VALUES (1,'zero','00000','000000000000','0000','0'),(2,'lead','00001','000000000001','0011','000000001'),(3,'empty','10000','100000000000','',''),(4,'long','00000','000000010000',repeat('01',20)::varbit,'100000000');
INSERT INTO odd(id,what,tz,tz3) VALUES (10,'.5','10:00:00.5+00','10:00:00.5+00'),(11,'0','10:00:00+00','10:00+00'),(12,'wrap','01:00:00+05','01:00+05'),(13,'.05','10:00:00.05+05:30','10:00:00.05+05:30');
INSERT INTO odd(id,what,tst,tst0,tst3) VALUES (20,'.5','2024-01-01 00:00:00.5+00','2024-01-01 00:00:00.4+00','2024-01-01 00:00:00.5+00'),(21,'0','2024-01-01 00:00:00+00','2024-01-01 00:00:00+00','2024-01-01 00:00:00+00');
INSERT INTO odd(id,what,iv) VALUES (30,'-.5','-00:00:00.5'),(31,'-h','-01:00:00.25'),(32,'d','1 day -00:00:01'),(33,'mons','-14 mons'),(34,'-m','-00:01:00.000001'),(35,'small','00:00:00.00001'),(36,'y-m','1 year -1 mon'),(37,'day30','30 days');
INSERT INTO odd(id,what,atst,atst3,aiv,atz) VALUES (40,'arr','{"2024-01-01 00:00:00.5+00","2024-01-01 00:00:00+00",NULL}','{"2024-01-01 00:00:00.5+00"}','{"1 day","-1 mon"}','{10:00:00.5+00,10:00:00+02}');
INSERT INTO odd(id,what,ab,at) VALUES (50,'bool','{t,f}','{NULL,"NULL",""," a","a,b","{","é","\\"}');
INSERT INTO odd(id,what,mr,pt) VALUES (51,'range','[1.5,2)','(NaN,Infinity)'),(52,'pt','[1,2)','(-0,1e300)');
INSERT INTO odd(id,what,h) VALUES (53,'h','a=>1, bb=>2, c=>NULL, ""=>"", "é"=>"x y", "t\"ab"=>"\\"'),(54,'h0','');
INSERT INTO odd(id,what,n,f4) VALUES (60,'n',1.50,0.1),(61,'n',100,1e-5),(62,'n',100.00,123456789),(63,'n',0.00100,0.001),(64,'n',1e-10,16777216);
INSERT INTO odd(id,what,am) VALUES (70,'money','{$1.50,-$2.00}');
INSERT INTO odd(id,what,t) VALUES (71,'ctl',E'\x7f\x01\b\f\u2028 <>&/'),(72,'emoji','😀');
INSERT INTO odd(id,what,ada) VALUES (80,'-inf','{-infinity}');
INSERT INTO odd(id,what,ai) VALUES (81,'bounds','[0:1]={1,2}');
INSERT INTO odd(id,what,ada) VALUES (82,'bc','{"0044-03-15 BC",1500-01-01}');
INSERT INTO zz_end VALUES (1);
