-- A table of every type; special values; keys that change; values in TOAST; odd names. Followed by a real Debezium and by us.
CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree;
CREATE TYPE mood AS ENUM ('sad','ok','happy, \"so"');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN price AS numeric(10,2); CREATE DOMAIN name20 AS varchar(20);
CREATE TABLE types (
 id int PRIMARY KEY, b bool, i2 smallint, i4 int, i8 bigint, o oid, f4 real, f8 double precision,
 n numeric, n52 numeric(5,2), n380 numeric(38,0), nneg numeric(5,-2), nsmall numeric(3,5), m money,
 c1 char(1), c5 char(5), vc varchar, vc9 varchar(9), t text, ci citext, na name, ic "char",
 by bytea, d date, t0 time(0), t3 time(3), t6 time, tz timetz, tz3 timetz(3),
 ts0 timestamp(0), ts3 timestamp(3), ts6 timestamp, tst timestamptz, tst3 timestamptz(3), iv interval, ivym interval year to month,
 u uuid, j json, jb jsonb, x xml, e mood, p pair, dp price, dn name20,
 b1 bit(1), b5 bit(5), b12 bit(12), vb varbit, vb9 varbit(9), bx bit,
 inet_ inet, cidr_ cidr, mac macaddr, mac8 macaddr8, pt point, ln line, ls lseg, bo box, pa path, pg polygon, ci_ circle,
 i4r int4range, i8r int8range, nr numrange, tsr tsrange, tstr tstzrange, dr daterange, i4mr int4multirange,
 h hstore, lt ltree, tsv tsvector, tsq tsquery, lsn pg_lsn, xid_ xid, tid_ tid, jp jsonpath, rc regclass,
 ab bool[], ai2 smallint[], ai int[], al bigint[], af real[], ad double precision[], an numeric[], an2 numeric(6,2)[], am money[],
 at text[], avc varchar(5)[], abp char(3)[], aby bytea[], ada date[], ati time[], ati3 time(3)[], atz timetz[], ats timestamp[], ats3 timestamp(3)[], atst timestamptz[], aiv interval[],
 au uuid[], aj json[], ajb jsonb[], ae mood[], aine inet[], abit bit(1)[], ab5 bit(5)[], avb varbit[], ai4r int4range[], apt point[], ah hstore[], aci citext[], alt ltree[], ao oid[], adp price[], axm xml[], ap pair[], acidr cidr[], amac macaddr[], abox box[], anam name[], atsr tsrange[], a2 int[]
);
CREATE TABLE strict (id bigint, k2 text, b bool NOT NULL, i int NOT NULL DEFAULT 7, s text NOT NULL DEFAULT 'x', n numeric(8,3) NOT NULL, ts timestamp NOT NULL DEFAULT now(), tz timestamptz NOT NULL, by bytea NOT NULL, j jsonb NOT NULL DEFAULT '{}', u uuid NOT NULL, d date NOT NULL DEFAULT '2020-02-02', f float8 NOT NULL DEFAULT 1.5, v varchar(10) DEFAULT 'dflt', ai int[] NOT NULL, iv interval NOT NULL, PRIMARY KEY (k2, id));
CREATE TABLE toast (id int PRIMARY KEY, t text, v varchar, by bytea, j jsonb, n numeric, x xml, ai int[], al bigint[], at text[], au uuid[], h hstore, ada date[], c int);
CREATE TABLE fullid (id int PRIMARY KEY, t text, big text, n numeric(6,2)); ALTER TABLE fullid REPLICA IDENTITY FULL;
CREATE TABLE keyless (a int, b text); ALTER TABLE keyless REPLICA IDENTITY FULL;
CREATE TABLE special (id int PRIMARY KEY, what text, n numeric, n52 numeric(5,2), f4 real, f8 float8, d date, t6 time, tz timetz, ts3 timestamp(3), ts6 timestamp, tst timestamptz, iv interval, m money, an numeric[], af float8[], ada date[], ats timestamp[], tsr tsrange);
CREATE TABLE "Odd Näme$" ("Key" int PRIMARY KEY, "a.b" text, "quote""d" text);
CREATE TYPE myrange AS RANGE (subtype=float8); CREATE DOMAIN bigtext AS text;
CREATE TABLE arr (id int PRIMARY KEY, n numeric, bits varbit, bx bit(4000), h hstore, lt ltree, tsv tsvector, dn bigtext, ci citext, c5 char(500), pg polygon, pa path,
 ab bool[], ai2 smallint[], ai int[], al bigint[], af real[], ad double precision[], an numeric[], an2 numeric(6,2)[], am money[],
 at text[], avc varchar(5)[], abp char(3)[], aby bytea[], ada date[], ati time[], ati3 time(3)[], atz timetz[], ats timestamp[], ats3 timestamp(3)[], atst timestamptz[], atst3 timestamptz(3)[], aiv interval[],
 au uuid[], aj json[], ajb jsonb[], ae mood[], aine inet[], ai4r int4range[], apt point[], ah hstore[], aci citext[], alt ltree[], ao oid[], acidr cidr[], amac macaddr[], atsr tsrange[], a2 int[], ax xml[], avb varbit[], c int);
ALTER TABLE arr SET (toast_tuple_target=128);
DO $$ DECLARE r record; BEGIN FOR r IN SELECT attname FROM pg_attribute WHERE attrelid='arr'::regclass AND attnum>0 AND attlen=-1 LOOP EXECUTE format('ALTER TABLE arr ALTER %I SET STORAGE EXTERNAL', r.attname); END LOOP; END $$;
CREATE TABLE odd (id int PRIMARY KEY, what text, b5 bit(5), b12 bit(12), vb varbit, vb9 varbit(9), tz timetz, tz3 timetz(3), tst timestamptz, tst0 timestamptz(0), tst3 timestamptz(3), iv interval, atst timestamptz[], atst3 timestamptz(3)[], aiv interval[], atz timetz[], ab bool[], at text[], mr myrange, pt point, h hstore, f4 real, n numeric, am money[], t text, ada date[], ai int[], ln line, i4mr int4multirange);
CREATE TABLE zz_end (id int PRIMARY KEY);
