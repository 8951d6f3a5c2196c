use crate::support::SetClock;
use std::sync::Arc;
use tidewire_connector::conformance::bus::{passes, Bus};
use tidewire_connector::{Budget, BusReader};
use tidewire_journal::{Config, Journal};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_journal_is_a_bus() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_path_buf();
    passes(&move |name| {
        let config = Config { partitions: 2, segment_bytes: 4096, ..Config::new(root.join(name)) };
        Box::pin(async move {
            let journal = Arc::new(Journal::open(config, Arc::new(SetClock::default()))?);
            let owner = journal.clone();
            let reader = move |name: &str| {
                let reader = owner.reader(name, Budget::new(1 << 20), None);
                let reader = reader.map(|reader| Box::new(reader) as Box<dyn BusReader>);
                Box::pin(async move { reader }) as tidewire_connector::BoxFuture<'static, _>
            };
            Ok(Bus { writer: journal, reader: Box::new(reader), has_gaps: false })
        })
    })
    .await
    .unwrap();
}
