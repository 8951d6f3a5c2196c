"""Reads copies back and gives every value as the source's canonical text: Delta tables through DuckDB's delta extension,
replica tables through their `_current` view. Independent of Tidewire's own code on purpose."""
import datetime, decimal, fractions, glob, importlib.util, math, os, re, struct, threading
import duckdb

_local = threading.local()


def part(name):
    """A name as a folder of the lake."""
    if name in ("_delta_log", "_tidewire"):
        return "~5F" + name[1:]
    return "".join(chr(b) if re.fullmatch(rb"[A-Za-z0-9_-]", bytes([b])) else "~%02X" % b for b in name.encode())


def engine():
    if not hasattr(_local, "duck"):
        _local.duck = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        package = importlib.util.find_spec("duckdb_extension_delta")
        folder = list(package.submodule_search_locations)[0]
        _local.duck.execute("LOAD '%s'" % glob.glob(os.path.join(folder, "**", "*.duckdb_extension"), recursive=True)[0])
        _local.duck.execute("SET TimeZone = 'UTC'")
    return _local.duck


def quoted(text, quote):
    return '"' + text.replace("\\", "\\\\").replace('"', quote) + '"'


def has_any(text, letters):
    return text == "" or any(c in letters + " \t\n\r\v\f\"\\" for c in text)


def nested(value, kind):
    """Lists, maps and structs as PostgreSQL prints arrays, hstores and composites."""
    children = [child for _, child in kind.children]
    if kind.id == "list":
        parts = [text(v, children[0]) for v in value]
        plain = lambda p: not has_any(p, "{},") and p.lower() != "null"
        return "{" + ",".join("NULL" if p is None else p if plain(p) else quoted(p, '\\"') for p in parts) + "}"
    if kind.id == "map":
        shown = lambda v: "NULL" if v is None else quoted(v, '\\"')
        return ", ".join(quoted(k, '\\"') + "=>" + shown(v) for k, v in value.items())
    parts = [text(v, child) for v, child in zip(value.values(), children)]
    return "(" + ",".join("" if p is None else quoted(p, '""') if has_any(p, "(),") else p for p in parts) + ")"


def text(value, kind):
    """PostgreSQL's text of a value read from a Delta column of DuckDB type `kind`."""
    if value is None or isinstance(value, str):
        return value
    if kind.id in ("list", "map", "struct"):
        return nested(value, kind)
    kind = str(kind)
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, (bytes, bytearray)):
        return "\\x" + bytes(value).hex()
    if isinstance(value, datetime.datetime):
        plain = value.replace(tzinfo=None)
        out = "%04d-%02d-%02d %02d:%02d:%02d" % (plain.year, plain.month, plain.day, plain.hour, plain.minute, plain.second)
        if plain.microsecond:
            out += (".%06d" % plain.microsecond).rstrip("0")
        return out + ("+00" if "TIME ZONE" in kind else "")
    if isinstance(value, datetime.date):
        return "%04d-%02d-%02d" % (value.year, value.month, value.day)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    return float_text(value, kind) if isinstance(value, float) else str(value)


def float_text(value, kind):
    """Shortest text that reads back as the same value, in PostgreSQL's layout."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    digits = 6 if kind == "FLOAT" else 15
    form, bits = ("f", "i") if kind == "FLOAT" else ("d", "q")
    number = struct.unpack(bits, struct.pack(form, value))[0]
    near = [struct.unpack(form, struct.pack(bits, number + step))[0] for step in (-1, 1)]
    near = [n for n in near if math.isfinite(n)]
    middles = [(fractions.Fraction(value) + fractions.Fraction(n)) / 2 for n in near]

    def same(text):
        if struct.pack(form, float(text)) != struct.pack(form, value):
            return False
        # What lies just between two floats isn't taken for either, though it reads back as the even one.
        return fractions.Fraction(text) not in middles

    mantissa = next(s for s in ("%.*e" % (n, value) for n in range(0, 18)) if same(s))
    base, exponent = mantissa.split("e")
    exponent = int(exponent)
    if -4 <= exponent < digits:
        out = format(decimal.Decimal(mantissa), "f")
        if "." in out:
            out = out.rstrip("0").rstrip(".")
        return out
    if "." in base:
        base = base.rstrip("0").rstrip(".")
    return "%se%s%02d" % (base, "-" if exponent < 0 else "+", abs(exponent))


OWN = ("_lsn", "_seq", "_op", "_ts", "_deleted", "_special")


def lake_columns(names, kinds):
    """Source column -> Delta column. Delta's names don't differ by case only and don't hold some characters; Tidewire writes
    those as %XX and puts `_src` in front of what begins like one of its own or would meet another column."""
    out, used = {}, set()
    for name in names:
        legal = re.sub(r"[ ,;{}()\n\t=%]", lambda m: "%%%02X" % ord(m.group()), name)
        while legal.lower().startswith(OWN) or legal.lower() in used or legal not in kinds:
            legal = "_src" + legal
            assert len(legal) < 300, "no column for %s among %s" % (name, list(kinds))
        used.add(legal.lower())
        out[name] = legal
    return out


def delta_rows(lake, schema, name, columns):
    """Live rows of a Delta table as tuples of text, in the order of `columns`."""
    path = os.path.join(lake, part(schema), part(name))
    if not os.path.isdir(path):
        return []  # a table that never had a row has no folder
    duck = engine()
    cursor = duck.cursor()
    shown = cursor.execute("SELECT * FROM delta_scan(?) LIMIT 0", [path])
    kinds = {c[0]: c[1] for c in shown.description}
    target = lake_columns(columns, kinds)
    q = lambda s: '"' + s.replace('"', '""') + '"'
    wanted = [target[c] for c in columns] + ["_special"]
    out = []
    for row in cursor.execute("SELECT %s FROM delta_scan(?) WHERE NOT _deleted" % ", ".join(map(q, wanted)), [path]).fetchall():
        special = row[-1] or {}
        if isinstance(special, dict) and "key" in special and isinstance(special["key"], list):
            special = dict(zip(special["key"], special["value"]))
        values = []
        for c, value in zip(columns, row):
            kind = kinds[target[c]]
            if c in special or target[c] in special:
                value = special.get(c, special.get(target[c]))
            values.append(text(value, kind))
        out.append(tuple(values))
    return out


def replica_column(name, there):
    """Names of Tidewire's own columns, and what looks like this rule's outcome, have `_src` in front."""
    bare = name
    while bare.startswith("_src"):
        bare = bare[4:]
    ours = bare in ("_lsn", "_seq", "_op", "_ts", "_deleted", "_unchanged", "_turn")
    keyless = bare in ("_row", "_copy") and "_src" + name in there
    return "_src" + name if ours or keyless else name


def replica_rows(connection, pin, schema, name, columns):
    """Live rows of a replica table as tuples of text."""
    k = connection.cursor()
    k.execute(pin)
    q = lambda s: '"' + s.replace('"', '""') + '"'
    k.execute("SELECT to_regclass(%s) IS NOT NULL", ("%s.%s" % (q(schema), q(name)),))
    if not k.fetchone()[0]:
        connection.close()
        return []
    k.execute("SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
              ("%s.%s" % (q(schema), q(name)),))
    there = {r[0] for r in k.fetchall()}
    target = {c: replica_column(c, there) for c in columns}
    parts = ["CASE WHEN num_nonnulls(%s) = 0 THEN NULL ELSE format('%%s', %s) END" % (q(target[c]), q(target[c])) for c in columns]
    k.execute("SELECT %s FROM %s.%s WHERE NOT _deleted" % (", ".join(parts), q(schema), q(name)))
    rows = k.fetchall()
    connection.close()
    return rows
