use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// A TCP proxy on 127.0.0.1 that makes faults on demand. Faults hold for connections that are open and for new ones.
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    faults: Mutex<Faults>,
    changed: Condvar,
}

#[derive(Default)]
struct Faults {
    target: Option<SocketAddr>,
    stalled: bool,
    /// Connections with a smaller number are stalled.
    stalled_below: u64,
    refuse: bool,
    bytes_per_second: Option<u64>,
    /// Bytes from the server that still pass before all connections are cut.
    cut_after: Option<u64>,
    passed: u64,
    accepted: u64,
    open: Vec<TcpStream>,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Proxy {
    /// Passes everything on to `addr`, until told otherwise.
    pub fn to(addr: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of 127.0.0.1 can be bound");
        let own = listener.local_addr().expect("a bound socket has an address");
        let faults = Faults { target: Some(addr), ..Faults::default() };
        let shared = Arc::new(Shared { faults: Mutex::new(faults), changed: Condvar::new() });
        let accepting = shared.clone();
        thread::spawn(move || accept(listener, &accepting));
        Proxy { addr: own, shared }
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Sends new connections elsewhere (a server that came back on another port).
    pub fn retarget(&self, addr: SocketAddr) {
        self.shared.lock().target = Some(addr);
    }

    /// Closes all connections that are open.
    pub fn cut(&self) {
        cut(&mut self.shared.lock());
    }

    /// Lets this many more bytes from the server pass, then cuts all connections, once.
    pub fn cut_after(&self, bytes: u64) {
        self.shared.lock().cut_after = Some(bytes);
    }

    /// Passes nothing on in either direction and closes nothing (half-open), until `resume`.
    pub fn stall(&self) {
        self.shared.lock().stalled = true;
    }

    /// Passes nothing on for the connections that are open now and closes none of them, until `resume`; new ones work.
    pub fn stall_open(&self) {
        let mut faults = self.shared.lock();
        faults.stalled_below = faults.accepted + 1;
    }

    /// No more faults; new connections are taken again.
    pub fn resume(&self) {
        let mut faults = self.shared.lock();
        (faults.stalled, faults.stalled_below, faults.refuse) = (false, 0, false);
        (faults.bytes_per_second, faults.cut_after) = (None, None);
        self.shared.changed.notify_all();
    }

    /// Closes new connections as soon as they are made; open ones go on.
    pub fn refuse(&self) {
        self.shared.lock().refuse = true;
    }

    /// Bounds what each direction of each connection passes.
    pub fn slow(&self, bytes_per_second: u64) {
        self.shared.lock().bytes_per_second = Some(bytes_per_second.max(1));
    }

    /// Bytes passed on from the server to clients so far.
    pub fn passed(&self) -> u64 {
        self.shared.lock().passed
    }

    /// Connections taken so far, refused ones too.
    pub fn accepted(&self) -> u64 {
        self.shared.lock().accepted
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut faults = self.shared.lock();
        faults.closed = true;
        cut(&mut faults);
        self.shared.changed.notify_all();
        drop(faults);
        // Wakes the accepting thread, which then ends.
        let _ = TcpStream::connect(self.addr);
    }
}

fn cut(faults: &mut Faults) {
    for socket in faults.open.drain(..) {
        // Gone already: that is what we want.
        let _ = socket.shutdown(Shutdown::Both);
    }
}

fn accept(listener: TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        let Ok(client) = client else { continue };
        let (number, target) = {
            let mut faults = shared.lock();
            if faults.closed {
                return;
            }
            faults.accepted += 1;
            (faults.accepted, faults.target.filter(|_| !faults.refuse))
        };
        let Some(server) = target.and_then(|addr| TcpStream::connect(addr).ok()) else { continue };
        if connect(number, client, server, shared).is_err() {
            continue;
        }
    }
}

fn connect(number: u64, client: TcpStream, server: TcpStream, shared: &Arc<Shared>) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut faults = shared.lock();
    faults.open.push(client.try_clone()?);
    faults.open.push(server.try_clone()?);
    drop(faults);
    let (up, down) = ((client.try_clone()?, server.try_clone()?), (server, client));
    let (first, second) = (shared.clone(), shared.clone());
    thread::spawn(move || pump(number, up, &first, false));
    thread::spawn(move || pump(number, down, &second, true));
    Ok(())
}

fn pump(number: u64, (mut from, mut to): (TcpStream, TcpStream), shared: &Shared, from_server: bool) {
    let mut buffer = vec![0u8; 64 * 1024];
    loop {
        let got = match from.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(got) => got,
        };
        let (pass, is_cut, pause) = admit(shared, number, got, from_server);
        if to.write_all(&buffer[..pass]).is_err() || is_cut {
            break;
        }
        thread::sleep(pause);
    }
    // Either side ending ends both: PostgreSQL's protocol has no half-closed connections.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Waits while the proxy is stalled; says how many of `got` bytes pass, whether the connection is cut after them, and how
/// long to pause.
fn admit(shared: &Shared, number: u64, got: usize, from_server: bool) -> (usize, bool, Duration) {
    let mut faults = shared.lock();
    while (faults.stalled || number < faults.stalled_below) && !faults.closed {
        faults = shared.changed.wait(faults).unwrap_or_else(|poisoned| poisoned.into_inner());
    }
    let pause =
        faults.bytes_per_second.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(got as f64 / rate as f64));
    if !from_server {
        return (got, false, pause);
    }
    let left = faults.cut_after.unwrap_or(u64::MAX);
    let pass = got.min(usize::try_from(left).unwrap_or(usize::MAX));
    faults.passed += pass as u64;
    let is_cut = left <= got as u64;
    faults.cut_after = faults.cut_after.filter(|_| !is_cut).map(|left| left - pass as u64);
    (pass, is_cut, pause)
}
