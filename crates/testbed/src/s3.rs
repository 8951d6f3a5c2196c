use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// An S3 server on 127.0.0.1 that makes faults on demand (testbed/s3.py). It ends with this.
pub struct S3 {
    server: Child,
    addr: SocketAddr,
}

/// A server of Azure's protocol on 127.0.0.1 with the container `lake` (testbed/azure.py). It ends with this.
pub struct Azure {
    server: Child,
    port: u16,
}

/// Starts a server that tells its port on stdout and ends when its stdin does.
fn start(python: &Path, script: &str) -> (Child, u16) {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testbed").join(script);
    let mut command = Command::new(python);
    command.arg(&script).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = command.spawn().expect("the server can be started");
    let mut line = String::new();
    let stdout = server.stdout.take().expect("it is piped");
    BufReader::new(stdout).read_line(&mut line).expect("the server tells its port");
    let told = || panic!("{} doesn't start: run testbed/python.sh, with `azure` for azure.py", script.display());
    (server, line.trim().parse().unwrap_or_else(|_| told()))
}

impl Azure {
    /// The account that it has, and its key: the same in every such server.
    pub const ACCOUNT: &'static str = "devstoreaccount1";
    pub const KEY: &'static str =
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

    /// `python`: of the environment that testbed/python.sh makes.
    pub fn start(python: &Path) -> Azure {
        let (server, port) = start(python, "azure.py");
        Azure { server, port }
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}/{}", self.port, Azure::ACCOUNT)
    }
}

impl Drop for Azure {
    fn drop(&mut self) {
        // It ends the server that it started when its stdin ends.
        drop(self.server.stdin.take());
        let _ = self.server.wait();
    }
}

impl S3 {
    /// `python`: of the environment that testbed/python.sh makes.
    pub fn start(python: &Path) -> S3 {
        let (server, port) = start(python, "s3.py");
        S3 { server, addr: SocketAddr::from(([127, 0, 0, 1], port)) }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub fn make_bucket(&self, name: &str) {
        self.command(&format!("bucket?name={name}"));
    }

    /// The next `times` requests with this method and `part` in their path or query go wrong; how: see testbed/s3.py.
    pub fn fault(&self, method: &str, part: &str, times: u32, what: &str) {
        self.command(&format!("fault?method={method}&part={part}&times={times}&what={what}"));
    }

    /// No more faults; who waits goes on.
    pub fn resume(&self) {
        self.command("resume");
    }

    /// How many requests are still to go wrong.
    pub fn unmet(&self) -> usize {
        let answer = self.command("waiting");
        let unmet = answer.rsplit(' ').next().and_then(|number| number.trim().parse().ok());
        unmet.unwrap_or_else(|| panic!("no number: {answer}"))
    }

    /// Writes all objects of a bucket into a folder.
    pub fn copy(&self, bucket: &str, to: &Path) {
        self.command(&format!("copy?bucket={bucket}&to={}", to.display()));
    }

    fn command(&self, what: &str) -> String {
        let mut stream = TcpStream::connect(self.addr).expect("the server listens");
        write!(stream, "GET /_{what} HTTP/1.1\r\nHost: s3\r\nConnection: close\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 200"), "{what}: {answer}");
        answer
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        // It is gone already, or ends now.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
