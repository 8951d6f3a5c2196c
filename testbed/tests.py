#!/usr/bin/env python3
"""Builds all tests of the workspace and runs three programs of them at once: most of the time they wait for servers.

    testbed/tests.py [--jobs 3]

What a program says is printed when it has ended. (`cargo test` runs one after the other. Doc tests, of which there are none, aren't run.)
"""
import argparse, collections, json, os, subprocess, sys, threading, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LONGEST = ["lake", "source", "kafka_group", "kafka"]  # These begin first, so that none of them is left alone at the end.


def programs():
    """(path, the folder that it runs in), as cargo has built them."""
    build = subprocess.run(["cargo", "test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"],
                           cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if build.returncode:
        sys.exit(build.returncode)
    told = [json.loads(line) for line in build.stdout.splitlines() if line.startswith("{")]
    built = [t for t in told if t["reason"] == "compiler-artifact" and t["profile"]["test"] and t["executable"]]
    rank = {name: at for at, name in enumerate(LONGEST)}
    built.sort(key=lambda t: rank.get(t["target"]["name"], len(rank)))
    return [(t["executable"], os.path.dirname(t["manifest_path"])) for t in built]


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--jobs", type=int, default=3)
    o = a.parse_args()
    waiting, failed, printing = collections.deque(programs()), [], threading.Lock()

    def work():
        while True:
            try:
                path, folder = waiting.popleft()
            except IndexError:
                return
            began = time.time()
            done = subprocess.run([path], cwd=folder, env={**os.environ, "CARGO_MANIFEST_DIR": folder},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
            name = os.path.basename(path).rsplit("-", 1)[0]
            with printing:
                print("     Running %s (%.0f s)\n%s" % (name, time.time() - began, done.stdout), flush=True)
                if done.returncode:
                    failed.append(name)

    workers = [threading.Thread(target=work) for _ in range(o.jobs)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    if failed:
        print("error: tests failed in " + ", ".join(failed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
