"""A private PostgreSQL on loopback for the Python tests: a folder and a port of its own, stopped by its pid."""
import glob, os, pwd, shutil, signal, socket, subprocess, tempfile, time
import psycopg2


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def binaries():
    """The folder of PostgreSQL's programs: $TIDEWIRE_PG_BIN, PATH, or where Debian puts them (newest first)."""
    found = [os.environ.get("TIDEWIRE_PG_BIN"), os.path.dirname(os.path.realpath(shutil.which("initdb") or ""))]
    found += sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    for folder in found:
        if folder and os.path.exists(os.path.join(folder, "postgres")) and os.path.exists(os.path.join(folder, "initdb")):
            return folder
    raise SystemExit("PostgreSQL's initdb and postgres were not found: install postgresql or set TIDEWIRE_PG_BIN")


def in_memory():
    """A folder in memory, where there is one with plenty of room: hundreds of databases are made and thrown away faster."""
    room = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    return "/dev/shm" if room and room.f_bavail * room.f_frsize > 8 << 30 else None


class Postgres:
    def __init__(self, settings, folder=None):
        """`folder`: where its own is made; none: where temporary files are."""
        self.folder = tempfile.mkdtemp(prefix="tidewire-pg-", dir=folder)
        self.port, self.user = free_port(), None
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            self.user = "postgres" if "postgres" in [p.pw_name for p in pwd.getpwall()] else "nobody"
            shutil.chown(self.folder, self.user)
        self.data, self.bin = os.path.join(self.folder, "data"), binaries()
        self.command([os.path.join(self.bin, "initdb"), "-D", self.data, "-U", "postgres", "-A", "trust"]).check_returncode()
        words = [os.path.join(self.bin, "postgres"), "-D", self.data, "-p", str(self.port), "-h", "127.0.0.1", "-k", self.folder]
        for key, value in settings.items():
            words += ["-c", "%s=%s" % (key, value)]
        self.words = words
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.words, stdout=subprocess.DEVNULL, stderr=open(os.path.join(self.folder, "log"), "a"),
                                        user=self.user, extra_groups=[] if self.user else None)
        self.wait()

    def restart(self, mode):
        """`fast` (clients are sent away) or `immediate` (as if the machine had crashed)."""
        self.process.send_signal({"fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode])
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            # A fast one waits for a consumer that can't confirm (its disk is full) as long as that one lives.
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(60)
        self.start()

    def command(self, words):
        return subprocess.run(words, stdout=subprocess.DEVNULL, user=self.user, extra_groups=[] if self.user else None)

    def wait(self):
        end = time.time() + 30
        while True:
            try:
                self.connect().close()
                return
            except psycopg2.OperationalError:
                if time.time() > end or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def url(self, database="postgres", user="postgres"):
        return "postgres://%s@127.0.0.1:%d/%s" % (user, self.port, database)

    def connect(self, database="postgres"):
        c = psycopg2.connect(self.url(database))
        c.autocommit = True
        return c

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)
        shutil.rmtree(self.folder)
