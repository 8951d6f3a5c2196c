use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};
use tidewire_testbed::{Postgres, Proxy, Stop};

#[test]
fn a_server_keeps_its_rows_and_port_over_every_kind_of_stop_and_leaves_nothing_behind() {
    let mut server = Postgres::start(&[("wal_level", "logical"), ("work_mem", "7MB")]);
    assert_eq!(server.psql("SHOW wal_level; SHOW work_mem"), "logical\n7MB");
    server.psql("CREATE TABLE t (a int); INSERT INTO t VALUES (1)");
    let (port, folder) = (server.port(), server.socket_dir().to_owned());
    for mode in [Stop::Fast, Stop::Immediate, Stop::Kill] {
        server.restart(mode);
        assert_eq!(server.psql("SELECT a FROM t"), "1", "after {mode:?}");
    }
    assert_eq!(server.port(), port);
    let pid = server.pid().unwrap();
    drop(server);
    assert!(!folder.exists());
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_failing_statement_is_reported_with_the_servers_words() {
    let server = Postgres::start(&[]);
    assert!(server.try_psql("postgres", "SELECT 1/0").unwrap_err().contains("division by zero"));
    assert_eq!(server.create_database("shop"), server.url_of("shop"));
    assert_eq!(server.psql_in("shop", "SELECT current_database()"), "shop");
}

/// Sends back what it gets.
fn echo() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let mut reader = socket.try_clone().unwrap();
            std::thread::spawn(move || std::io::copy(&mut reader, &mut &socket));
        }
    });
    addr
}

#[test]
fn the_proxy_passes_cuts_stalls_and_refuses() {
    let proxy = Proxy::to(echo());
    let mut socket = TcpStream::connect(proxy.addr()).unwrap();
    let mut buffer = [0u8; 5];
    socket.write_all(b"hello").unwrap();
    socket.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"hello");

    proxy.stall();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    socket.write_all(b"later").unwrap();
    assert!(socket.read(&mut buffer).is_err(), "nothing passes while stalled");
    proxy.resume();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.read_exact(&mut buffer).unwrap();
    assert_eq!((&buffer, proxy.passed()), (b"later", 10));

    proxy.cut_after(3);
    socket.write_all(b"again").unwrap();
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"aga");

    proxy.refuse();
    let mut refused = TcpStream::connect(proxy.addr()).unwrap();
    assert_eq!(refused.read(&mut buffer).unwrap_or(0), 0);
}

#[test]
fn a_server_in_a_static_goes_away_with_the_process() {
    static SERVER: std::sync::OnceLock<Postgres> = std::sync::OnceLock::new();
    const NAME: &str = "a_server_in_a_static_goes_away_with_the_process";
    if std::env::var_os("TESTBED_INNER").is_some() {
        let server = SERVER.get_or_init(|| Postgres::start(&[]));
        println!("folder={}", server.socket_dir().display());
        return;
    }
    let mut inner = std::process::Command::new(std::env::current_exe().unwrap());
    inner.args([NAME, "--exact", "--nocapture"]).env("TESTBED_INNER", "1");
    let output = String::from_utf8(inner.output().unwrap().stdout).unwrap();
    let folder = output.lines().find_map(|line| Some(line.split_once("folder=")?.1)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while Path::new(folder).exists() {
        assert!(Instant::now() < deadline, "{folder} stays");
        std::thread::sleep(Duration::from_millis(10));
    }
}
