//! Logging in, and encrypted connections, on a real broker.

use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tidewire_change::{Checkpoint, ErrorKind, Message, Position, Progress, Result};
use tidewire_connector::{Budget, BusReader, BusWriter};
use tidewire_kafka::{Config, KafkaBus, Mechanism, Sasl, Tls};
use tidewire_testbed::Kafka;

const PASSWORD: &str = "very-secret-word";

/// A broker that takes nobody without TLS and a password.
fn broker(folder: &Path) -> Kafka {
    let file = |name: &str| folder.join(name).display().to_string();
    let (key, certificate) = (file("ours.key"), file("ours.pem"));
    let words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1";
    let words = words.split(' ').chain(["-keyout", &key, "-out", &certificate]);
    let made = Command::new("openssl").args(words).output().expect("openssl can be run");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let both: String =
        ["ours.key", "ours.pem"].iter().map(|name| std::fs::read_to_string(file(name)).unwrap()).collect();
    std::fs::write(file("store.pem"), both).unwrap();
    let (store, trusted) = (file("store.pem"), file("ours.pem"));
    let properties = format!(
        "listener.security.protocol.map=PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
username=\"broker\" password=\"{PASSWORD}\" user_broker=\"{PASSWORD}\" user_plain=\"{PASSWORD}\";
listener.name.plaintext.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={store}
ssl.truststore.type=PEM
ssl.truststore.location={trusted}"
    );
    Kafka::start_with(&properties, Some(&format!("SCRAM-SHA-512=[name=scram,password={PASSWORD}]")))
}

fn config(broker: &Kafka, authority: PathBuf, mechanism: Mechanism, user: &str, password: &str) -> Config {
    let mut config = Config::new(broker.address(), user, "main");
    config.instance = 1;
    config.tls = Some(Tls { authority: Some(authority), ..Tls::default() });
    config.sasl = Some(Sasl { mechanism, user: user.into(), password: password.into() });
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn by_tls_and_a_password_all_goes_through() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let (broker, ours) = (broker(folder.path()), folder.path().join("ours.pem"));
    for (mechanism, user) in [(Mechanism::Plain, "plain"), (Mechanism::ScramSha512, "scram")] {
        let right = config(&broker, ours.clone(), mechanism, user, PASSWORD);
        assert!(!format!("{right:?}").contains(PASSWORD), "what is printed shows no secret");
        let bus = KafkaBus::capture(right, &Budget::new(32 << 20)).await?;
        let (key, value) = (Bytes::from_static(b"k"), Bytes::from_static(b"v"));
        let message = Message { topic: "a.b".into(), partition: 0, key, value, timestamp: 5 };
        let checkpoint = Checkpoint { position: Position::new(1, 0), complete_through: 1, resume: Bytes::new() };
        bus.append(vec![message], Some(checkpoint)).await?;
        let mut reader = bus.reader("s", Budget::new(8 << 20), None)?;
        reader.seek(&Progress::default()).await?;
        assert_eq!(reader.next().await?.messages.len(), 1);

        let wrong = || config(&broker, ours.clone(), mechanism, user, "another-word");
        let began = Instant::now();
        let outcomes =
            [KafkaBus::look(wrong()).await, KafkaBus::capture(wrong(), &Budget::new(32 << 20)).await.map(|_| ())];
        for refused in outcomes.map(|outcome| outcome.expect_err("the password is wrong")) {
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
            let told = refused.to_string();
            assert!(told.contains("refused the login") && told.contains("sasl.password"), "{told}");
            assert!(!told.contains("another-word"), "{told}");
        }
        let foreign = Config { tls: Some(Tls::default()), ..wrong() };
        let refused = KafkaBus::look(foreign).await.expect_err("nobody knows the authority").to_string();
        assert!(refused.contains("bus.kafka.tls"), "{refused}");
        assert!(began.elapsed() < Duration::from_secs(20), "nobody waits for a time-out: {:?}", began.elapsed());
    }
    Ok(())
}
