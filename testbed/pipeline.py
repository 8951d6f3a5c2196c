"""One pipeline of the tests: a folder with its configuration, and the `tidewire` processes that run it, one after another."""
import json, os, re, signal, subprocess, time
import server

LIMIT = 90


class Pipeline:
    def __init__(self, binary, folder, source_url, replica_url, source=None, replica=None, journal=None, whole=None, more=None):
        """`source`, `replica`, `journal`: further keys of those sections; `whole`: in the source's place; `more`: further sections."""
        self.binary, self.folder, self.process = binary, folder, None
        self.config, self.port = os.path.join(folder, "pipeline.yaml"), server.free_port()
        self.slot = "tw_" + re.sub("[^a-z0-9]", "_", os.path.basename(folder).lower())
        with open(self.config, "w") as f:
            beside = {} if "bus" in (more or {}) else {"journal": journal or {}}
            json.dump({
                "source": whole or {"postgres": {"url": source_url, "slot": self.slot, **(source or {})}},
                "sinks": {"lake": {"delta": {"path": os.path.join(folder, "lake")}},
                          "replica": {"postgres": {"url": replica_url, **(replica or {})}}},
                "data_dir": os.path.join(folder, "journal"), "http": "127.0.0.1:%d" % self.port, **beside, **(more or {}),
            }, f)

    def log(self):
        return open(os.path.join(self.folder, "log"), "a")

    def start(self):
        self.process = subprocess.Popen([self.binary, "run", self.config], stdout=self.log(), stderr=self.log())

    def stop(self, how=signal.SIGTERM):
        if self.process:
            self.process.send_signal(how)
            self.process.wait(30)
            self.process = None

    def catch_up(self, named=None):
        """`named`: what the run must name as not equal (exit code 1)."""
        self.stop()
        done = subprocess.run([self.binary, "run", self.config, "--until-caught-up"], stdout=self.log(), stderr=self.log(),
                              timeout=LIMIT)
        if named:
            assert done.returncode == 1 and re.search(named, self.tail()), "the run doesn't name %r\n%s" % (named, self.tail())
            return
        assert done.returncode == 0, "run --until-caught-up ended with %d\n%s" % (done.returncode, self.tail())

    def ended(self):
        """Waits until the process has ended by itself; its exit code."""
        code, self.process = self.process.wait(LIMIT), None
        return code

    def text(self):
        with open(os.path.join(self.folder, "log")) as f:
            return f.read()

    def tail(self):
        return self.text()[-2500:]

    def call(self, *words, codes=(0,)):
        done = subprocess.run([self.binary, *words], capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode in codes, "%s ended with %d: %s %s" % (words, done.returncode, done.stdout[-800:], done.stderr[-800:])
        return done.stdout

    def redeliver(self, seed, *words):
        """Runs the example of that name on the journal; the pipeline is stopped."""
        program = os.path.join(os.path.dirname(self.binary), "examples", "redeliver")
        done = subprocess.run([program, seed, os.path.join(self.folder, "journal"), *words], capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 0, "redeliver %s ended with %d: %s" % (words, done.returncode, done.stderr[-1500:])
        return done.stdout

    def status(self):
        """What `tidewire status` says of the running process; none while it can't be asked."""
        if self.process.poll() is not None:
            raise AssertionError("tidewire ended with %d\n%s" % (self.process.returncode, self.tail()))
        try:
            done = subprocess.run([self.binary, "status", self.config, "--json"], capture_output=True, text=True, timeout=20)
            status = json.loads(done.stdout)
            return status if "source" in status else None
        except (ValueError, subprocess.TimeoutExpired):
            return None

    def wait_until(self, what, holds):
        """Until `holds(status)`."""
        end, status = time.time() + LIMIT, None
        while time.time() < end:
            status = self.status()
            if status and holds(status):
                return
            time.sleep(0.1)
        raise AssertionError("%s did not come true within %d s: %s\n%s" % (what, LIMIT, json.dumps(status)[:1500], self.tail()))

    def wait_until_streaming(self):
        """Until every table's snapshot is captured, and, if there are rows at all, each sink has made a commit: a sink that has none
        yet counts as a new one at the next start, and has the tables read once more."""
        self.wait_until("the snapshot", lambda status: streaming(status) and began(status))


def streaming(status):
    source = status["source"]
    states = [t["state"] for t in status["tables"]]
    return source["connected"] and source["pending_reads"] == 0 and all(s in ("streaming", "parked", "left") for s in states)


def began(status):
    rows = any(t["captured"]["rows"] for t in status["tables"])
    return not rows or all(s["commits"] for s in status["sinks"])
