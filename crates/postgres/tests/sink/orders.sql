-- The table. A type that this database doesn't know becomes text.
CREATE TABLE "replica"."orders" (
    "id" integer NOT NULL,
    "status" text,
    "amount" numeric(10,2),
    "_lsn" bigint NOT NULL,
    "_seq" bigint NOT NULL,
    "_op" text NOT NULL,
    "_ts" timestamp with time zone NOT NULL,
    "_deleted" boolean NOT NULL,
    PRIMARY KEY ("id")
);

-- What readers look at: live rows.
CREATE VIEW "replica"."orders_current" AS
SELECT "id", "status", "amount"
  FROM "replica"."orders"
 WHERE NOT "_deleted";

-- A batch is copied into a staging table …
CREATE TEMP TABLE pg_temp.stage ON COMMIT DELETE ROWS AS
SELECT "id", "status", "amount", "_lsn", "_seq", "_op", "_ts", "_deleted",
       NULL::bit varying AS "_unchanged"
  FROM "replica"."orders"
  WITH NO DATA;
COPY pg_temp.stage ("id", "status", "amount", "_lsn", "_seq", "_op", "_ts", "_deleted", "_unchanged") FROM STDIN;

-- … and applied by one statement. Rows that are not newer than what is there change nothing.
INSERT INTO "replica"."orders" AS kept
       ("id", "status", "amount", "_lsn", "_seq", "_op", "_ts", "_deleted")
SELECT DISTINCT ON ("id")
       "id", "status", "amount", "_lsn", "_seq", "_op", "_ts", "_deleted"
  FROM pg_temp.stage
 ORDER BY "id", "_lsn" DESC, "_seq" DESC
    ON CONFLICT ("id") DO UPDATE
   SET "id" = excluded."id",
       "status" = excluded."status",
       "amount" = excluded."amount",
       "_lsn" = excluded."_lsn",
       "_seq" = excluded."_seq",
       "_op" = excluded."_op",
       "_ts" = excluded."_ts",
       "_deleted" = excluded."_deleted"
 WHERE (excluded."_lsn", excluded."_seq") > (kept."_lsn", kept."_seq");

-- When rows lack columns (the log doesn't carry unchanged large values; a delete has its key alone):
INSERT INTO "replica"."orders" AS kept
       ("id", "status", "amount", "_lsn", "_seq", "_op", "_ts", "_deleted")
SELECT new."id",
       CASE WHEN get_bit(new."_unchanged", 1) = 1 THEN old."status" ELSE new."status" END,
       CASE WHEN get_bit(new."_unchanged", 2) = 1 THEN old."amount" ELSE new."amount" END,
       new."_lsn",
       new."_seq",
       new."_op",
       new."_ts",
       new."_deleted"
  FROM (SELECT *, row_number() OVER (PARTITION BY "id" ORDER BY "_lsn", "_seq") AS _turn
          FROM pg_temp.stage) AS new
  LEFT JOIN "replica"."orders" AS old ON old."id" = new."id"
 WHERE new._turn = 1
   AND (new."_unchanged" IS NULL OR new."_deleted" OR new."_op" = 'u' AND NOT old."_deleted")
   AND (old."_lsn" IS NULL OR (new."_lsn", new."_seq") > (old."_lsn", old."_seq"))
    ON CONFLICT ("id") DO UPDATE
   SET "id" = excluded."id",
       "status" = excluded."status",
       "amount" = excluded."amount",
       "_lsn" = excluded."_lsn",
       "_seq" = excluded."_seq",
       "_op" = excluded."_op",
       "_ts" = excluded."_ts",
       "_deleted" = excluded."_deleted"
 WHERE (excluded."_lsn", excluded."_seq") > (kept."_lsn", kept."_seq");
