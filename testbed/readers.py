"""Reads a Delta table with independent readers and prints what it holds, in one form for all.

    readers.py READER TABLE_PLACE SCHEMA_JSON [--all] [--version N] [--between COLUMN LOW HIGH] [--changes]

READER: duckdb, polars, deltalake, chdb or spark (needs SPARK_JARS: the folder of Delta's jars). SCHEMA_JSON: [[column, type],
...] with Delta's types; only these columns are read and printed, in this order, as PostgreSQL prints them, one row a line
(JSON array of strings and nulls), sorted. A value in `_special` stands for its column. Rows with `_deleted` are left out by
the reader's own filter; with --all they are printed, too. --between: whole numbers, both ends included, by the reader's filter.
--changes: the change data feed from version 0 on (deltalake and spark); version, kind of change, `_lsn` and `_op` stand in
front of the columns.
"""
import argparse
import datetime
import decimal
import glob
import importlib
import json
import os
import sys

import canonical


def selected(names, wanted, quote):
    """SELECT list and WHERE clause in SQL."""
    q = lambda name: quote + name.replace(quote, quote * 2) + quote
    rules = [] if wanted.all else [f"NOT {q('_deleted')}"]
    if wanted.between:
        column, low, high = wanted.between
        rules.append(f"{q(column)} >= {low} AND {q(column)} <= {high}")
    return ", ".join(map(q, names)), f" WHERE {' AND '.join(rules)}" if rules else ""


def store_options(path):
    """How a table in a bucket is reached: S3_ENDPOINT or AZURE_ENDPOINT is the server of a test."""
    if path.startswith("abfss://"):
        import azure

        return {
            "azure_storage_account_name": azure.ACCOUNT,
            "azure_storage_account_key": azure.KEY,
            "azure_storage_endpoint": os.environ["AZURE_ENDPOINT"],
            "azure_allow_http": "true",
        }
    if not path.startswith("s3://"):
        return None
    return {
        "aws_endpoint_url": os.environ["S3_ENDPOINT"],
        "aws_allow_http": "true",
        "aws_access_key_id": "id",
        "aws_secret_access_key": "secret",
        "aws_region": "us-east-1",
    }


def rows_duckdb(path, names, wanted):
    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ["delta"] if store_options(path) is None else ["httpfs", "delta"]:
        folder = os.path.dirname(importlib.import_module(f"duckdb_extension_{name}").__file__)
        extension = glob.glob(os.path.join(folder, "**", "*.duckdb_extension*"), recursive=True)[0]
        connection.execute(f"LOAD '{extension}'")
    if options := store_options(path):
        host = options["aws_endpoint_url"].removeprefix("http://")
        connection.execute(
            "CREATE SECRET (TYPE s3, KEY_ID 'id', SECRET 'secret', REGION 'us-east-1', URL_STYLE 'path', "
            f"USE_SSL false, ENDPOINT '{host}')"
        )
    connection.execute("SET TimeZone='UTC'")
    columns, where = selected(names, wanted, '"')
    version = "" if wanted.version is None else f", version => {wanted.version}"
    cursor = connection.execute(f"SELECT {columns} FROM delta_scan('{path}'{version}){where}")
    return [dict(zip(names, row)) for row in cursor.fetchall()]


def rows_polars(path, names, wanted):
    import polars

    frame = polars.scan_delta(path, version=wanted.version, storage_options=store_options(path))
    if not wanted.all:
        frame = frame.filter(~polars.col("_deleted"))
    if wanted.between:
        column, low, high = wanted.between
        frame = frame.filter(polars.col(column).is_between(int(low.strip("()")), int(high.strip("()"))))
    return frame.select(names).collect().to_dicts()


def rows_deltalake(path, names, wanted):
    import deltalake

    table = deltalake.DeltaTable(path, version=wanted.version, storage_options=store_options(path))
    if wanted.changes:
        import pyarrow

        return pyarrow.table(table.load_cdf(starting_version=0).read_all()).select(names).to_pylist()
    columns, where = selected(names, wanted, '"')
    result = deltalake.QueryBuilder().register("t", table).execute(f"SELECT {columns} FROM t{where}")
    rows = []
    for batch in result.read_all().to_batches() if hasattr(result, "read_all") else result:
        values = [batch.column(i).to_pylist() for i in range(len(names))]
        rows.extend(dict(zip(names, row)) for row in zip(*values))
    return rows


def rows_chdb(path, names, wanted):
    import chdb

    # It reads below the working folder only.
    os.chdir(path)
    columns, where = selected(names, wanted, "`")
    version = "" if wanted.version is None else f", delta_lake_snapshot_version = {wanted.version}"
    settings = "output_format_arrow_string_as_string = 0, session_timezone = 'UTC'" + version
    table = chdb.query(f"SELECT {columns} FROM deltaLakeLocal('{path}'){where} SETTINGS {settings}", "ArrowTable")
    # ClickHouse's strings are bytes.
    text = lambda v: v.decode() if isinstance(v, bytes) else v
    binary = {name for name, kind in wanted.schema if kind == "binary"}
    rows = table.to_pylist()
    for row in rows:
        row["_special"] = [(text(k), text(v)) for k, v in pairs_of(row["_special"] or {})]
        row.update({name: text(value) for name, value in row.items() if name not in binary})
    return rows


def rows_spark(path, names, wanted):
    os.environ["TZ"] = "UTC"
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for name, value in {
        "spark.jars": ",".join(glob.glob(os.path.join(os.environ["SPARK_JARS"], "*.jar"))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        # Files that don't say that Spark wrote them have dates as everyone else counts them.
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    }.items():
        session = session.config(name, value)
    session = session.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    columns, where = selected(names, wanted, "`")
    version = "" if wanted.version is None else f" VERSION AS OF {wanted.version}"
    query = f"SELECT {columns} FROM delta.`{path}`{version}{where}"
    if wanted.changes:
        feed = session.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
        feed.load(path).createOrReplaceTempView("changes")
        query = f"SELECT {columns} FROM changes"
    rows = session.sql(query).collect()
    rows = [row.asDict(recursive=True) for row in rows]
    session.stop()
    return rows


READERS = {"duckdb": rows_duckdb, "polars": rows_polars, "deltalake": rows_deltalake, "chdb": rows_chdb, "spark": rows_spark}


def special_of(value):
    if value is None:
        return {}
    return dict(pairs_of(value))


def time_text(value, zone):
    if zone and value.tzinfo is not None:
        value = value.astimezone(datetime.timezone.utc)
    text = f"{value.year:04}-{value:%m-%d %H:%M:%S}"
    if value.microsecond:
        text += f".{value.microsecond:06}".rstrip("0")
    return text + ("+00" if zone else "")


def quoted(text, quote):
    return '"' + text.replace("\\", "\\\\").replace('"', quote) + '"'


def has_any(text, letters):
    return text == "" or any(c in letters + " \t\n\r\v\f\"\\" for c in text)


def pairs_of(value):
    """A map as its reader gives it, as pairs in order."""
    if isinstance(value, dict) and set(value) == {"key", "value"} and isinstance(value["key"], list):
        return list(zip(value["key"], value["value"]))
    if isinstance(value, dict):
        return list(value.items())
    return [(e["key"], e["value"]) if isinstance(e, dict) else (e[0], e[1]) for e in value]


def nested_text(value, kind):
    """Arrays, hstores and composites as PostgreSQL prints them."""
    if kind["type"] == "array":
        parts = [text_of(v, kind["elementType"]) for v in value]
        plain = lambda p: not has_any(p, "{},") and p.lower() != "null"
        return "{" + ",".join("NULL" if p is None else p if plain(p) else quoted(p, '\\"') for p in parts) + "}"
    if kind["type"] == "map":
        text = lambda v: "NULL" if v is None else quoted(v, '\\"')
        # hstore's own order: shorter keys first, then by their bytes.
        pairs = sorted(pairs_of(value), key=lambda pair: (len(pair[0].encode()), pair[0].encode()))
        return ", ".join(quoted(k, '\\"') + "=>" + text(v) for k, v in pairs)
    parts = [text_of(value[field["name"]], field["type"]) for field in kind["fields"]]
    return "(" + ",".join("" if p is None else quoted(p, '""') if has_any(p, "(),") else p for p in parts) + ")"


def text_of(value, kind):
    if value is None:
        return None
    if isinstance(kind, dict):
        return nested_text(value, kind)
    if kind == "boolean":
        return "t" if value else "f"
    if kind in ("float", "double"):
        return canonical.float_text(float(value), "FLOAT" if kind == "float" else "DOUBLE")
    if kind.startswith("decimal"):
        scale = int(kind.rstrip(")").split(",")[1])
        number = decimal.Decimal(value).quantize(decimal.Decimal(1).scaleb(-scale), context=decimal.Context(prec=60))
        return format(number, "f")
    if kind == "binary":
        return "\\x" + bytes(value).hex()
    if kind == "date":
        return f"{value.year:04}-{value:%m-%d}"
    if kind == "timestamp":
        return time_text(value, True)
    if kind == "timestamp_ntz":
        return time_text(value, False)
    return str(value)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("reader", choices=READERS)
    arguments.add_argument("path")
    arguments.add_argument("schema", type=json.loads)
    arguments.add_argument("--all", action="store_true")
    arguments.add_argument("--version", type=int)
    arguments.add_argument("--changes", action="store_true")
    arguments.add_argument("--between", nargs=3, metavar=("COLUMN", "LOW", "HIGH"))
    wanted = arguments.parse_args()
    names = [name for name, _ in wanted.schema] + ["_deleted", "_special"]
    front = ["_commit_version", "_change_type", "_lsn", "_op"] if wanted.changes else []
    names += front
    lines = []
    for row in READERS[wanted.reader](wanted.path, names, wanted):
        special = special_of(row["_special"])
        values = [special.get(name, text_of(row[name], kind)) for name, kind in wanted.schema]
        lines.append(json.dumps([str(row[name]) for name in front] + values, ensure_ascii=False))
    sys.stdout.write("".join(line + "\n" for line in sorted(lines)))


if __name__ == "__main__":
    main()
