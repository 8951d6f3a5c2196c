"""The same requests of Confluent's API to `tidewire registry` and to Apicurio Registry (`/apis/ccompat/v7`), one after the other, both empty at the
start: status, error code and body of each answer are compared. What differs must be in DIFFERENCES, with which behaviour was followed, and must be
met. `compare.py --binary B [--print]`."""
import argparse, json, os, shutil, signal, subprocess, sys, tempfile, time, urllib.error, urllib.parse, urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import server


def record(*fields, name="R"):
    return json.dumps({"type": "record", "name": name, "fields": [dict(f) if isinstance(f, dict) else {"name": f, "type": "int"} for f in fields]})


B = {"name": "b", "type": "int", "default": 0}
ONE, TWO, BAD, OTHER = record("a"), record("a", B), record("a", "b"), record("z")
ADDRESS = json.dumps({"type": "record", "name": "Address", "namespace": "x", "fields": [{"name": "city", "type": "string"}]})
PERSON = json.dumps({"type": "record", "name": "Person", "namespace": "x", "fields": [{"name": "home", "type": "x.Address"}]})
PROTO = 'syntax = "proto3"; package q; message A { string c = 1; }'
PROTO_TWO = 'syntax = "proto3"; package q; message A { string c = 1; int32 d = 2; }'
PROTO_BAD = 'syntax = "proto3"; package q; message A { int32 c = 1; }'
JSON_ONE = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False})
JSON_BAD = json.dumps({"type": "object", "properties": {"n": {"type": "string"}}, "additionalProperties": False})


def schema(text, kind=None, references=None):
    return {"schema": text, **({"schemaType": kind} if kind else {}), **({"references": references} if references else {})}


def reference(version):
    return [{"name": "x.Address", "subject": "address", "version": version}]


# Method, path, body. `{id}`: the id that the registration under the word before it got.
REQUESTS = [
    ("GET", "/subjects"), ("GET", "/schemas/types"), ("GET", "/config"), ("GET", "/mode"), ("GET", "/contexts"),
    # Registering and finding.
    ("POST", "/subjects/s/versions", schema(ONE)), ("POST", "/subjects/s/versions", schema(TWO)), ("POST", "/subjects/s/versions", schema(ONE)),
    ("POST", "/subjects/s/versions", schema(ONE.replace(":", " : "))), ("POST", "/subjects/t/versions", schema(TWO)), ("GET", "/subjects"),
    ("GET", "/subjects?subjectPrefix=t"), ("GET", "/subjects/s/versions"), ("GET", "/subjects/s/versions/1"), ("GET", "/subjects/s/versions/latest"),
    ("GET", "/subjects/s/versions/-1"), ("GET", "/subjects/s/versions/1/schema"), ("GET", "/subjects/s/versions/1/referencedby"),
    ("POST", "/subjects/s", schema(ONE)), ("POST", "/subjects/s", schema(OTHER)), ("GET", "/schemas/ids/{s}"), ("GET", "/schemas/ids/{s}/schema"),
    ("GET", "/schemas/ids/{s}/subjects"), ("GET", "/schemas/ids/{s}/versions"), ("GET", "/schemas/ids/{t}/versions"), ("GET", "/schemas"),
    ("GET", "/schemas?latestOnly=true"), ("GET", "/schemas?subjectPrefix=s"),
    # What isn't there, and what isn't understood.
    ("GET", "/subjects/none/versions"), ("GET", "/subjects/none/versions/1"), ("GET", "/subjects/s/versions/9"), ("GET", "/subjects/s/versions/0"),
    ("GET", "/subjects/s/versions/first"), ("GET", "/schemas/ids/999999"), ("GET", "/schemas/ids/999999/subjects"), ("GET", "/schemas/ids/999999/versions"),
    ("POST", "/subjects/none", schema(ONE)), ("POST", "/subjects/s/versions", schema('{"type":"strange"}')), ("POST", "/subjects/s/versions", schema("{")),
    ("POST", "/subjects/s/versions", schema(ONE, "XML")), ("POST", "/subjects/s/versions", {}), ("GET", "/nothing"), ("PUT", "/subjects", {}),
    # Compatibility.
    ("POST", "/subjects/s/versions", schema(BAD)), ("GET", "/subjects/s/versions"), ("PUT", "/config", {"compatibility": "BACKWARD"}),
    ("POST", "/subjects/c/versions", schema(ONE)), ("POST", "/subjects/c/versions", schema(BAD)), ("POST", "/subjects/c/versions", schema(TWO)),
    ("POST", "/compatibility/subjects/c/versions/latest", schema(BAD)), ("POST", "/compatibility/subjects/c/versions/latest", schema(TWO)),
    ("POST", "/compatibility/subjects/c/versions/1", schema(BAD)), ("POST", "/compatibility/subjects/c/versions", schema(BAD)),
    ("POST", "/compatibility/subjects/c/versions/latest?verbose=true", schema(record("a", B, "q"))), ("POST", "/compatibility/subjects/none/versions", schema(ONE)),
    ("POST", "/compatibility/subjects/none/versions/latest", schema(ONE)), ("POST", "/compatibility/subjects/c/versions/9", schema(ONE)),
    ("POST", "/compatibility/subjects/c/versions/latest", schema("{")),
    # Levels.
    ("GET", "/config/c"), ("PUT", "/config", {"compatibility": "SIDEWAYS"}), ("PUT", "/config/c", {"compatibility": "FULL"}), ("GET", "/config/c"),
    ("GET", "/config/none"), ("GET", "/config/none?defaultToGlobal=true"), ("PUT", "/config/c", {"compatibility": "NONE"}),
    ("POST", "/subjects/c/versions", schema('"string"')), ("DELETE", "/config/c"), ("DELETE", "/config/none"), ("GET", "/config"),
    ("PUT", "/config", {"compatibility": "BACKWARD_TRANSITIVE"}), ("GET", "/config"), ("PUT", "/config", {"compatibility": "BACKWARD"}),
    # References.
    ("POST", "/subjects/address/versions", schema(ADDRESS)), ("POST", "/subjects/person/versions", schema(PERSON)),
    ("POST", "/subjects/person/versions", schema(PERSON, None, reference(7))), ("POST", "/subjects/person/versions", schema(PERSON, "AVRO", reference(1))),
    ("GET", "/subjects/person/versions/1"), ("GET", "/schemas/ids/{person}"), ("GET", "/subjects/address/versions/1/referencedby"),
    ("DELETE", "/subjects/address"), ("DELETE", "/subjects/address/versions/1"),
    # The other formats.
    ("POST", "/subjects/p/versions", schema(PROTO, "PROTOBUF")), ("POST", "/subjects/p/versions", schema(PROTO_TWO, "PROTOBUF")),
    ("POST", "/subjects/p/versions", schema(PROTO_BAD, "PROTOBUF")), ("GET", "/subjects/p/versions/1"), ("GET", "/schemas/ids/{p}"),
    ("POST", "/subjects/p/versions", schema("message {", "PROTOBUF")), ("POST", "/subjects/j/versions", schema(JSON_ONE, "JSON")),
    ("POST", "/subjects/j/versions", schema(JSON_BAD, "JSON")), ("GET", "/subjects/j/versions/1"), ("POST", "/subjects/j/versions", schema("{", "JSON")),
    # Modes.
    ("GET", "/mode/s"), ("PUT", "/mode", {"mode": "SLEEPING"}), ("PUT", "/mode", {"mode": "READONLY"}), ("GET", "/mode"),
    ("POST", "/subjects/r/versions", schema(ONE)), ("PUT", "/mode", {"mode": "READWRITE"}), ("PUT", "/mode/s", {"mode": "READONLY"}), ("GET", "/mode/s"),
    ("DELETE", "/mode/s"), ("POST", "/subjects/r/versions", schema(ONE)),
    # Deleting.
    ("DELETE", "/subjects/none"), ("DELETE", "/subjects/s?permanent=true"), ("DELETE", "/subjects/s/versions/2?permanent=true"),
    ("DELETE", "/subjects/s/versions/9"), ("DELETE", "/subjects/s/versions/2"), ("DELETE", "/subjects/s/versions/2"), ("GET", "/subjects/s/versions/2"),
    ("GET", "/subjects/s/versions/2?deleted=true"), ("GET", "/subjects/s/versions"), ("GET", "/subjects/s/versions?deleted=true"),
    ("GET", "/schemas/ids/{s}"), ("POST", "/subjects/s/versions", schema(TWO)), ("GET", "/subjects/s/versions"), ("DELETE", "/subjects/s"), ("DELETE", "/subjects/s"),
    ("GET", "/subjects/s/versions"), ("GET", "/subjects?deleted=true"), ("GET", "/subjects"), ("POST", "/subjects/s", schema(ONE)),
    ("POST", "/subjects/s?deleted=true", schema(ONE)), ("DELETE", "/subjects/s?permanent=true"), ("DELETE", "/subjects/s?permanent=true"),
    ("GET", "/subjects?deleted=true"), ("DELETE", "/subjects/person"), ("DELETE", "/subjects/address"), ("GET", "/subjects"),
]

# What requests differ in: their numbers (from 1 on, as `--print` shows them), and whose behaviour was followed. Where it is Confluent's, it is
# what its documentation says.
CONFLUENT = "Confluent"
DIFFERENCES = [
    ((3,), "the level where nobody set one is BACKWARD; Apicurio's is NONE", CONFLUENT),
    ((5,), "the one context is called `.`; Apicurio's answer is `:.:`", CONFLUENT),
    ((12, 28), "`subjectPrefix` chooses; Apicurio passes over it", CONFLUENT),
    ((26, 27, 28), "`/schemas` tells subject, version and id; Apicurio's tells texts alone", CONFLUENT),
    ((32, 33), "a version that is no number from 1 on is 42202; Apicurio's is 40402", CONFLUENT),
    ((40,), "an unknown `schemaType` is 42201; Apicurio takes it for Avro", CONFLUENT),
    ((41,), "a registration without a schema is 42201; Apicurio answers with a fault, 500", CONFLUENT),
    ((42, 43), "404 and 405 of unknown paths and methods have a body; Apicurio's have none", CONFLUENT),
    ((53,), "a check without a version looks at what the level demands; Apicurio's at all versions", CONFLUENT),
    ((55,), "whatever comes first under a new subject is compatible; Apicurio's check is 40401", CONFLUENT),
    ((59, 63, 64), "a subject without a level of its own is 40408, with `defaultToGlobal` the level of all; Apicurio answers NONE for a known and 40401 for an unknown subject", CONFLUENT),
    ((92,), "a subject without a mode of its own is 40409; Apicurio answers READWRITE", CONFLUENT),
    ((93,), "an unknown mode is 42204; Apicurio's is 42201", CONFLUENT),
    ((96,), "the mode READONLY keeps writers out (42205); Apicurio keeps the word and lets them in", CONFLUENT),
    ((103, 104, 107), "40405, 40406 and 40407 come with the status 404; Apicurio's with 409", CONFLUENT),
    ((115,), "deleting a subject tells the versions that it deletes; Apicurio's also those that were deleted before", CONFLUENT),
    ((120,), "a schema looked up under a softly deleted subject is 40401; Apicurio's is 40403", CONFLUENT),
    ((126, 127), "a subject that only softly deleted schemas refer to can be deleted softly; Apicurio refuses (42206)", CONFLUENT),
]
KNOWN = {number: (what, whose) for numbers, what, whose in DIFFERENCES for number in numbers}


class Registry:
    def __init__(self, url):
        self.url, self.ids = url, {}

    def ask(self, method, path, body=None):
        """Status and body."""
        for name, number in self.ids.items():
            path = path.replace("{%s}" % name, str(number))
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/vnd.schemaregistry.v1+json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        try:
            found = json.loads(text)
        except ValueError:
            found = text
        words = path.split("/")
        if method == "POST" and words[1] == "subjects" and words[-1] == "versions" and status == 200:
            self.ids.setdefault(words[2], found["id"])
        return status, found


def plain(value, key=None):
    """Without what two registries can't have in common: ids, the words of a message."""
    if isinstance(value, dict):
        # What only one of them tells beside: a registration's version, guids, the differences; and what is off.
        more = ("guid", "messages", "differences") + (("version",) if "subject" not in value else ())
        return {name: plain(one, name) for name, one in sorted(value.items()) if name not in more and (name, one) != ("normalize", False)}
    if isinstance(value, list):
        return [plain(one, key) for one in value]
    if key in ("id", "message"):
        return "…"
    if key == "schema" or (key is None and isinstance(value, str)):
        try:
            return json.loads(value)
        except ValueError:
            return "".join(value.split())
    return value


def compare(ours, theirs):
    found = {}
    for number, (method, path, *body) in enumerate(REQUESTS, 1):
        (our_status, our), (their_status, their) = (of.ask(method, path, *body) for of in (ours, theirs))
        if path.endswith("/referencedby"):
            our, their = (["…" for _ in ids] for ids in (our, their))
        if (our_status, plain(our)) != (their_status, plain(their)):
            found[number] = "%s %s %s\n  tidewire %d %s\n  apicurio %d %s" % (
                method, path, json.dumps(*body)[:160] if body else "", our_status, json.dumps(our)[:300], their_status, json.dumps(their)[:300])
    return found


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--binary", required=True)
    a.add_argument("--print", action="store_true", help="print every difference")
    o = a.parse_args()
    folder, port = tempfile.mkdtemp(prefix="tidewire-compare-"), server.free_port()
    their_port = server.free_port()
    log = open(os.path.join(folder, "log"), "w")
    ours = subprocess.Popen([o.binary, "registry", "--data-dir", os.path.join(folder, "registry"), "--listen", "127.0.0.1:%d" % port], stderr=log)
    theirs = subprocess.Popen([os.path.join(HERE, "apicurio.sh"), "run", str(their_port)], stdout=log, stderr=log, start_new_session=True)
    try:
        urls = ["http://127.0.0.1:%d" % port, "http://127.0.0.1:%d/apis/ccompat/v7" % their_port]
        for url, process in zip(urls, (ours, theirs)):
            wait(url, process, log.name)
        found = compare(*map(Registry, urls))
    finally:
        ours.send_signal(signal.SIGTERM)
        theirs.send_signal(signal.SIGTERM)
        ours.wait(30)
        theirs.wait(30)
        shutil.rmtree(folder)
    unknown = {n: text for n, text in found.items() if n not in KNOWN}
    unmet = [n for n in KNOWN if n not in found]
    for n, text in sorted((found if o.print else unknown).items()):
        print("%d: %s" % (n, text) + ("\n  known: %s; followed: %s" % KNOWN[n] if n in KNOWN else ""))
    for n in unmet:
        print("%d: no longer differs: %s" % (n, KNOWN[n][0]))
    failed = len(unknown) + len(unmet)
    print("%d answers are the same, %d differ as is known" % (len(REQUESTS) - len(found), len(found) - len(unknown)))
    print("%d passed, %d failed" % (len(REQUESTS) - failed, failed))
    sys.exit(1 if failed else 0)


def wait(url, process, log):
    end = time.time() + 120
    while time.time() < end:
        try:
            urllib.request.urlopen(url + "/subjects", timeout=5)
            return
        except (OSError, urllib.error.URLError):
            assert process.poll() is None, "it ended: " + open(log).read()[-3000:]
            time.sleep(0.2)
    raise AssertionError("nobody answers at %s: %s" % (url, open(log).read()[-3000:]))


if __name__ == "__main__":
    main()
