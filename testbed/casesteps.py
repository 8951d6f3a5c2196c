"""The steps of a case: SQL on the source in the ways that a case names, and what happens to the pipeline meanwhile."""
import json, os, re, shutil, signal, threading, time
import psycopg2

STEPS = {"tx": {"tx"}, "rollback": {"rollback"}, "autocommit": {"autocommit"}, "must_fail": {"must_fail"}, "action": {"action"},
         "sleep": {"sleep"}, "status": {"status"}, "sql": {"session", "sql", "async", "before_start"}}
ACTIONS = ("kill_consumer", "restart_consumer", "stop_consumer", "start_consumer", "sink_fails", "sink_recovers", "failover",
           "wait_until_streaming", "drop_slot", "lose_lake", "lose_journal")


def check_step(step):
    """Says what is wrong with a step as it is written."""
    kind = next((k for k in STEPS if k in step), None)
    if kind is None or not set(step) <= STEPS[kind]:
        return "a step has unknown keys: %s" % sorted(step)
    if kind == "action" and step["action"] not in ACTIONS:
        return "unknown action %s" % step["action"]
    return None


def connect(url):
    c = psycopg2.connect(url)
    c.autocommit = True
    c.set_client_encoding("UTF8")
    return c


class Steps:
    """The sessions of one case on its source."""

    def __init__(self, url, pipeline, fixture):
        self.url, self.pipeline, self.fixture = url, pipeline, fixture
        self.sessions, self.threads = {}, []

    def apply(self, step):
        if "action" in step:
            return self.act(step["action"])
        if "sleep" in step:
            return time.sleep(step["sleep"])
        if "status" in step:
            says = lambda status: re.search(step["status"], json.dumps(status, ensure_ascii=False))
            return self.pipeline.wait_until("a status like %r" % step["status"], says)
        if "session" in step:
            return self.talk(step)
        c = connect(self.url)
        try:
            k = c.cursor()
            if "tx" in step or "rollback" in step:
                k.execute("BEGIN")
                k.execute(step.get("tx") or step["rollback"])
                k.execute("COMMIT" if "tx" in step else "ROLLBACK")
            elif "autocommit" in step:
                for statement in step["autocommit"]:
                    k.execute(statement)
            else:
                self.refused(k, step["must_fail"])
        finally:
            c.close()

    def refused(self, cursor, statement):
        try:
            cursor.execute(statement)
        except psycopg2.Error:
            return
        raise AssertionError("the source took a statement that it must refuse: " + statement[:80])

    def talk(self, step):
        if step["session"] not in self.sessions:
            self.sessions[step["session"]] = connect(self.url)
        c = self.sessions[step["session"]]
        k = c.cursor()
        if not step.get("async"):
            return k.execute(step["sql"])
        t = threading.Thread(target=lambda: k.execute(step["sql"]))
        t.start()
        self.threads.append(t)
        self.wait_for_lock(c.get_backend_pid(), t)

    def wait_for_lock(self, pid, thread):
        c = connect(self.url)
        k = c.cursor()
        while thread.is_alive():
            k.execute("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", (pid,))
            if k.fetchone() == (True,):
                break
            time.sleep(0.02)
        c.close()

    def end(self):
        for t in self.threads:
            t.join(20)
        for s in self.sessions.values():
            s.close()

    def act(self, action):
        pipeline, fixture = self.pipeline, self.fixture
        if action == "kill_consumer":
            pipeline.stop(signal.SIGKILL)
            pipeline.start()
        elif action == "restart_consumer":
            pipeline.stop()
            pipeline.start()
        elif action == "stop_consumer":
            pipeline.stop()
        elif action == "start_consumer":
            if not pipeline.process:
                pipeline.start()
        elif action == "sink_fails":
            k = fixture["admin"].cursor()
            k.execute("ALTER DATABASE %s ALLOW_CONNECTIONS false" % fixture["replica"])
            k.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (fixture["replica"],))
        elif action == "sink_recovers":
            fixture["admin"].cursor().execute("ALTER DATABASE %s ALLOW_CONNECTIONS true" % fixture["replica"])
        elif action == "wait_until_streaming":
            pipeline.wait_until_streaming()
        elif action == "drop_slot":
            pipeline.stop()
            fixture["admin"].cursor().execute("SELECT pg_drop_replication_slot(%s)", (pipeline.slot,))
        elif action == "lose_lake":
            pipeline.stop()
            shutil.rmtree(os.path.join(pipeline.folder, "lake"))
            pipeline.start()
        elif action == "lose_journal":
            pipeline.stop()
            shutil.rmtree(os.path.join(pipeline.folder, "journal"))
        # failover: the tables name the run on one server; a failover has a test of its own
