#!/usr/bin/env python3
"""Counts the instructions of the way of a change, part by part, on fixed input (callgrind), and compares them with the figures kept in
the repository: a part that takes a tenth more fails. Counts hardly depend on load, but on the compiler: another one than that of the
kept figures is told, and nothing fails."""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile

KEPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quick.json")
PARTS = {
    "pgoutput": "a message of the server becomes a row",
    "encode": "a change becomes a message of the journal",
    "decode": "a message of the journal becomes a change",
    "json_write": "a change becomes a message in Debezium's JSON",
    "json_read": "a message in Debezium's JSON becomes a change",
    "json_read_of_others": "the same as of another system, whose tables the message tells",
    "avro_write": "a change becomes a message in Avro",
    "avro_read": "a message in Avro becomes a change",
    "avro_read_of_others": "the same as of another system",
    "protobuf_write": "a change becomes a message in Protobuf",
    "protobuf_read": "a message in Protobuf becomes a change",
    "json_row_write": "a change becomes a row alone in JSON",
    "avro_row_write": "the same in Avro",
    "protobuf_row_write": "the same in Protobuf",
    "reduce": "two changes a key become one",
    "guard": "the index finds a key and throws an old change away",
    "parquet": "a new row is written to a Delta table and committed",
}
CHANGES = 10_000
# The lake's own threads work beside these two: `guard` is done so often that their share doesn't count.
FEW_AND_MANY = {part: (1, 3) for part in PARTS} | {"guard": (2, 32)}
TOLERANCE = 1.10


def instructions(binary, part, times):
    with tempfile.TemporaryDirectory(prefix="tidewire-quick-") as folder:
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=" + os.path.join(folder, "out"), binary, part, str(times)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TMPDIR": folder})
    counted = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not counted:
        sys.exit("%s\n%s" % (" ".join(command), done.stderr[-2000:]))
    return int(counted.group(1))


def measure(binary):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        counts = {(p, t): pool.submit(instructions, binary, p, t) for p in PARTS for t in FEW_AND_MANY[p]}

    def of(part):
        few, many = FEW_AND_MANY[part]
        return round((counts[part, many].result() - counts[part, few].result()) / ((many - few) * CHANGES))
    return {part: of(part) for part in PARTS}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True, help="the example `quick`, a release build")
    parser.add_argument("--write", action="store_true", help="keep what is measured as the new figures")
    args = parser.parse_args()
    measured = measure(args.binary)
    compiler = subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    if args.write:
        with open(KEPT, "w") as f:
            json.dump({"rustc": compiler, "instructions": measured}, f, indent=2)
            f.write("\n")
    with open(KEPT) as f:
        was = json.load(f)
    kept = was["instructions"]
    print("instructions a change      now     kept")
    for part, what in PARTS.items():
        print("  %-20s %8d %8s  %s" % (part, measured[part], kept.get(part, "none"), what))
    if compiler != was["rustc"]:
        print("not judged: the kept figures are of Rust %s, this is %s" % (was["rustc"], compiler))
        return
    worse = [part for part in kept if measured[part] > kept[part] * TOLERANCE]
    if worse:
        sys.exit("more than a tenth above the kept figure: %s. Mend it, or keep it with `make bench-quick ARGS=--write` and say why" % ", ".join(worse))


if __name__ == "__main__":
    main()
