"""Reads a Delta table with independent readers and prints what it holds, in one form for all.

    readers.py READER TABLE_FOLDER SCHEMA_JSON [--all]

READER: duckdb, polars or deltalake. SCHEMA_JSON: [[column, type], ...] with Delta's types; the columns are printed in
this order as PostgreSQL prints them, one row a line (JSON array of strings and nulls), sorted. A value in `_special` stands
for its column. Rows with `_deleted` are left out; with --all they are printed, too.
"""
import datetime
import decimal
import glob
import json
import os
import sys

import canonical


def rows_duckdb(path):
    import duckdb
    import duckdb_extension_delta

    folder = os.path.dirname(duckdb_extension_delta.__file__)
    extension = glob.glob(os.path.join(folder, "**", "*.duckdb_extension*"), recursive=True)[0]
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{extension}'")
    connection.execute("SET TimeZone='UTC'")
    types = connection.execute(f"DESCRIBE SELECT * FROM delta_scan('{path}')").fetchall()
    # Python's values of this type would need pytz.
    zoned = [f'"{name}" AT TIME ZONE \'UTC\' AS "{name}"' for name, kind, *_ in types if kind == "TIMESTAMP WITH TIME ZONE"]
    replace = f"REPLACE ({', '.join(zoned)})" if zoned else ""
    cursor = connection.execute(f"SELECT * {replace} FROM delta_scan('{path}')")
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row)) for row in cursor.fetchall()]


def rows_polars(path):
    import polars

    return polars.scan_delta(path).collect().to_dicts()


def rows_deltalake(path):
    import deltalake

    table = deltalake.DeltaTable(path)
    result = deltalake.QueryBuilder().register("t", table).execute("select * from t")
    rows = []
    for batch in result.read_all().to_batches() if hasattr(result, "read_all") else result:
        names = [field.name for field in batch.schema]
        columns = [batch.column(i).to_pylist() for i in range(len(names))]
        rows.extend(dict(zip(names, values)) for values in zip(*columns))
    return rows


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
    reader, path, schema = sys.argv[1:4]
    rows = {"duckdb": rows_duckdb, "polars": rows_polars, "deltalake": rows_deltalake}[reader](path)
    lines = []
    for row in rows:
        if row["_deleted"] and "--all" not in sys.argv:
            continue
        special = special_of(row["_special"])
        values = [special.get(name, text_of(row[name], kind)) for name, kind in json.loads(schema)]
        lines.append(json.dumps(values, ensure_ascii=False))
    sys.stdout.write("".join(line + "\n" for line in sorted(lines)))


if __name__ == "__main__":
    main()
