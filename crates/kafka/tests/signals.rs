//! Signals that come by a topic, on a real broker.

use std::time::Duration;
use tidewire_change::ErrorKind;
use tidewire_connector::SignalChannel;
use tidewire_kafka::{Config, KafkaSignals};
use tidewire_testbed::Kafka;

fn channel(kafka: &Kafka, topic: &str) -> KafkaSignals {
    KafkaSignals::new(Config::new(kafka.address(), "", "main"), topic, "shop")
}

fn send(kafka: &Kafka, topic: &str, lines: &str) {
    let keyed = ["--topic", topic, "--reader-property", "parse.key=true", "--reader-property", "key.separator=|"];
    kafka.tool("ConsoleProducer", &keyed, lines);
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_with_the_pipeline_s_key_come_once_from_the_first_start_on() {
    let kafka = Kafka::start();
    // The topic isn't there yet: all that comes counts.
    let mut first = channel(&kafka, "shop-signal");
    let begun = first.next(None).await.unwrap();
    assert_eq!((begun.place.as_str(), begun.signals.len()), ("0", 0));
    let lacks = first.next(Some("0")).await.unwrap_err();
    assert!(lacks.to_string().contains("there is no topic shop-signal"), "{lacks}");
    let looked = || KafkaSignals::look(Config::new(kafka.address(), "", "main"), "shop-signal");
    assert_eq!(looked().await.unwrap_err().to_string(), lacks.to_string());
    kafka.tool("TopicCommand", &["--create", "--topic", "shop-signal", "--partitions", "1"], "");
    looked().await.unwrap();
    let there = first.next(Some("0")).await.unwrap();
    assert_eq!(
        (there.place.as_str(), there.signals.len()),
        ("0", 0),
        "who was told that it lacks is told that it is there"
    );
    send(
        &kafka,
        "shop-signal",
        "other|{\"type\":\"log\"}\nshop|{\"id\":\"a\",\"type\":\"log\",\"data\":{\"message\":\"x\"}}\nshop|nonsense\n",
    );
    let mut behind = begun.place;
    let mut signals = Vec::new();
    while signals.len() < 2 {
        let heard = first.next(Some(&behind)).await.unwrap();
        signals.extend(heard.signals);
        behind = heard.place;
    }
    assert_eq!((signals[0].id.as_str(), signals[0].data.as_str()), ("a", r#"{"message":"x"}"#));
    assert_eq!((signals[1].kind.as_str(), signals[1].data.as_str()), ("", "nonsense"));
    assert_eq!(behind, "3");

    // Behind that nothing comes again, by the same reader or another.
    let mut second = channel(&kafka, "shop-signal");
    for reader in [&mut first, &mut second] {
        let more = tokio::time::timeout(Duration::from_secs(2), reader.next(Some("3"))).await;
        assert!(more.is_err(), "{more:?}");
    }
    send(&kafka, "shop-signal", "shop|{\"type\":\"log\"}\n");
    let heard = second.next(Some("3")).await.unwrap();
    assert_eq!((heard.place.as_str(), heard.signals[0].id.as_str()), ("4", "shop-signal/3"));
    // Whoever starts for the first time now begins behind it.
    assert_eq!(channel(&kafka, "shop-signal").next(None).await.unwrap().place, "4");

    // Several partitions have no order.
    kafka.tool("TopicCommand", &["--create", "--topic", "wide", "--partitions", "2"], "");
    let refused = channel(&kafka, "wide").next(None).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("2 partitions"), "{refused}");
}
