//! A topic with one writer, on a real broker.

use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::ClientConfig;
use std::time::{Duration, Instant};
use tidewire_kafka::{Config, Entry, KeyedTopic};
use tidewire_testbed::Kafka;
use tokio::runtime::Runtime;

fn pairs(entries: &[Entry]) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    entries.iter().map(|entry| (text(&entry.key), text(entry.value.as_deref().unwrap_or_default()))).collect()
}

/// A transaction that is begun and never ends; it lasts as long as the producer.
fn hanging(kafka: &Kafka, topic: &str) -> BaseProducer {
    let mut settings = ClientConfig::new();
    settings.set("bootstrap.servers", kafka.address()).set("transactional.id", "other");
    let producer: BaseProducer = settings.set("transaction.timeout.ms", "600000").create().unwrap();
    let wait = Duration::from_secs(30);
    producer.init_transactions(wait).unwrap();
    producer.begin_transaction().unwrap();
    producer.send(BaseRecord::to(topic).partition(0).key("hanging").payload("1")).unwrap();
    producer.flush(wait).unwrap();
    producer
}

#[test]
fn a_transaction_without_an_end_holds_nobody_up_and_hides_nothing() {
    let (kafka, runtime) = (Kafka::start(), Runtime::new().unwrap());
    let topic = |instance: u64| {
        let config = Config { instance, ..Config::new(kafka.address(), "keyed", "main") };
        KeyedTopic::new(config, runtime.handle().clone())
    };
    let entry = |key: &str, value: &str| (key.as_bytes().to_vec(), Some(value.as_bytes().to_vec()));
    let mut first = topic(1);
    assert_eq!(first.take().unwrap(), []);
    assert!(first.append(&[entry("a", "1")]).is_ok());
    let _hanging = hanging(&kafka, "keyed");

    let (began, mut second) = (Instant::now(), topic(2));
    let found = second.take().unwrap();
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    let (a, hanging) = (("a".to_string(), "1".to_string()), ("hanging".to_string(), "1".to_string()));
    assert_eq!(pairs(&found), [a.clone(), hanging.clone()]);
    assert!(second.append(&[entry("b", "1")]).is_ok());
    second.look().unwrap();
    // What isn't visible to who reads what is committed is read all the same.
    let read = pairs(&topic(3).read().unwrap().unwrap());
    assert_eq!(read, [a, hanging.clone(), hanging, ("b".to_string(), "1".to_string())]);
    assert!(first.append(&[entry("c", "1")]).is_err_and(|failed| failed.is_open));
    let told = first.take().unwrap_err();
    assert!(told.to_string().contains("has taken over the topic keyed"), "{told}");
}
