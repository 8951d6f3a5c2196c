use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs};

/// A private Kafka broker (KRaft, one node) in a temporary folder, on a free port of 127.0.0.1. It goes down and its folder
/// goes away when this value is dropped and also when the test process ends in any other way. Everything here panics when
/// it fails: it is for tests.
pub struct Kafka {
    folder: PathBuf,
    address: String,
    running: Option<Child>,
    /// One of several.
    place: Vec<(&'static str, String)>,
}

/// Several brokers that are one cluster: topics have three copies, two of which take each message.
pub struct Brokers(pub Vec<Kafka>);

/// What three brokers need beside what one is told; a broker that is gone is noticed within seconds.
const OF_THREE: &str = "default.replication.factor=3\nmin.insync.replicas=2\noffsets.topic.replication.factor=3\n\
    transaction.state.log.replication.factor=3\ntransaction.state.log.min.isr=2\nbroker.session.timeout.ms=3000\n\
    broker.heartbeat.interval.ms=500\ncontroller.quorum.election.timeout.ms=500\ncontroller.quorum.fetch.timeout.ms=1000\n\
    replica.lag.time.max.ms=3000\nauto.leader.rebalance.enable=false\n";

impl Brokers {
    pub fn start() -> Brokers {
        Brokers::start_with(|_| String::new())
    }

    /// With further properties of each.
    pub fn start_with(properties: impl Fn(usize) -> String) -> Brokers {
        let ports = output_of(Command::new(script()).args(["ports", "6"]), "");
        let ports: Vec<&str> = ports.split_whitespace().collect();
        let voters: Vec<_> = (0..3).map(|i| format!("{}@127.0.0.1:{}", i + 1, ports[3 + i])).collect();
        let start = |i: usize, properties: String| {
            let place = vec![
                ("TIDEWIRE_KAFKA_NODE", (i + 1).to_string()),
                ("TIDEWIRE_KAFKA_PORTS", format!("{} {}", ports[i], ports[3 + i])),
                ("TIDEWIRE_KAFKA_VOTERS", voters.join(",")),
            ];
            let mut broker = Kafka { folder: new_folder(), address: String::new(), running: None, place };
            broker.launch(&format!("{OF_THREE}{properties}"), None);
            broker
        };
        // None is up before most of them are.
        std::thread::scope(|scope| {
            let (start, properties) = (&start, (0..3).map(properties));
            let all: Vec<_> = properties.enumerate().map(|(i, own)| scope.spawn(move || start(i, own))).collect();
            Brokers(all.into_iter().map(|broker| broker.join().expect("a broker starts")).collect())
        })
    }

    /// All of them, for programs that find those that are up by themselves.
    pub fn as_one(&self) -> Kafka {
        let address = self.0.iter().map(Kafka::address).collect::<Vec<_>>().join(",");
        Kafka { folder: new_folder(), address, running: None, place: Vec::new() }
    }
}

impl Kafka {
    pub fn start() -> Kafka {
        Self::start_with("", None)
    }

    /// With further properties (`PORT` stands for the broker's port), and a SCRAM account as `StorageTool --add-scram` wants it.
    pub fn start_with(properties: &str, scram: Option<&str>) -> Kafka {
        Self::start_in(new_folder(), properties, scram)
    }

    /// In this folder, which may have a disk of its own.
    pub fn start_in(folder: PathBuf, properties: &str, scram: Option<&str>) -> Kafka {
        let mut broker = Kafka { folder, address: String::new(), running: None, place: Vec::new() };
        broker.launch(properties, scram);
        broker
    }

    /// The folder of Kafka's own programs (jars).
    pub fn libs() -> PathBuf {
        PathBuf::from(output_of(&mut Command::new(script()), "").trim())
    }

    /// Java with the classes of Kafka's own programs; their name comes next.
    pub fn java() -> Command {
        let (libs, mut command) = (Kafka::libs(), Command::new("java"));
        command
            .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable"])
            .arg(format!("-XX:SharedArchiveFile={}", libs.join("classes.jsa").display()))
            .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp"])
            .arg(format!("{}/*", libs.display()));
        command
    }

    /// `127.0.0.1:<port>`, several with commas.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Runs one of Kafka's own programs against the broker; returns what it printed.
    pub fn tool(&self, class: &str, arguments: &[&str], input: &str) -> String {
        let mut command = Kafka::java();
        command
            .arg(format!("org.apache.kafka.tools.{class}"))
            .args(["--bootstrap-server", self.address()])
            .args(arguments);
        output_of(&mut command, input)
    }

    /// Keys and values of so many committed messages of a topic, as Kafka's own console consumer prints them.
    pub fn consume(&self, topic: &str, count: usize) -> Vec<(String, String)> {
        let count = count.to_string();
        let words =
            ["--topic", topic, "--from-beginning", "--isolation-level", "read_committed", "--timeout-ms", "30000"];
        let more = ["--max-messages", &count, "--formatter-property", "print.key=true"];
        let seen = self.tool("consumer.ConsoleConsumer", &[&words[..], &more].concat(), "");
        let pair = |line: &str| line.split_once('\t').map(|(key, value)| (key.to_string(), value.to_string()));
        seen.lines().filter_map(pair).collect()
    }

    pub fn delete_topic(&self, topic: &str) {
        self.tool("TopicCommand", &["--delete", "--topic", topic], "");
    }

    /// Sends lines as another program would.
    pub fn send_lines(&self, topic: &str, lines: &str) {
        self.tool("ConsoleProducer", &["--topic", topic], lines);
    }

    /// The broker's log since its last start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("server.log")).unwrap_or_default()
    }

    /// Does its process live? It may have ended by itself.
    pub fn is_up(&self) -> bool {
        let pid = fs::read_to_string(self.folder.join("pid")).unwrap_or_default();
        // One that has ended and wasn't waited for has no command line.
        fs::read(format!("/proc/{}/cmdline", pid.trim())).is_ok_and(|line| !line.is_empty())
    }

    /// Goes down in order; the folder stays.
    pub fn stop(&mut self) {
        self.end("stop\n");
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.end("kill\n");
    }

    /// Starts a broker that was stopped or killed, on its old port.
    pub fn start_again(&mut self) {
        assert!(self.running.is_none(), "the broker runs already");
        self.launch("", None);
    }

    fn launch(&mut self, properties: &str, scram: Option<&str>) {
        let mut command = Command::new(script());
        command.arg("run").arg(&self.folder).env("TIDEWIRE_KAFKA_PROPERTIES", properties);
        command.envs(self.place.iter().map(|(name, value)| (name, value)));
        if let Some(scram) = scram {
            command.env("TIDEWIRE_KAFKA_SCRAM", scram);
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("testbed/kafka.sh can be run");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("its output is piped"));
        output.read_line(&mut line).expect("its output can be read");
        assert!(line.starts_with("127.0.0.1:"), "Kafka didn't start: {line}{}", self.log());
        self.address = line.trim().to_string();
        self.running = Some(child);
    }

    fn end(&mut self, word: &str) {
        let Some(mut child) = self.running.take() else { return };
        let mut input = child.stdin.take().expect("its input is piped");
        input.write_all(word.as_bytes()).expect("the script reads");
        child.wait().expect("the script ends");
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        if let Some(mut child) = self.running.take() {
            // The script's input ends: it takes the broker down and removes the folder.
            drop(child.stdin.take());
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Runs a program to its end with this input; returns what it printed.
pub fn output_of(command: &mut Command, input: &str) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program can be run");
    child.stdin.take().expect("its input is piped").write_all(input.as_bytes()).expect("it reads its input");
    let done = child.wait_with_output().expect("it ends");
    assert!(done.status.success(), "{command:?} ended with {}", done.status);
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed/kafka.sh")
}

fn new_folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    env::temp_dir().join(format!("twkafka-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
}
