use super::bus::MemoryBus;
use super::sink::Store;
use super::source::World;
use super::{config, Log, TestClock};
use std::sync::Arc;
use tidewire_connector::{BoxFuture, Inspect};
use tidewire_pipeline::{InspectFactory, Pipeline, PipelineConfig, Running, SinkSpec};

/// A source with the table `orders`, a bus, and a sink named `lake`.
pub struct Bench {
    pub log: Log,
    pub world: World,
    pub bus: MemoryBus,
    pub store: Store,
    pub clock: Arc<TestClock>,
    /// The sink is given what was fetched from so many bytes on.
    pub write_bytes: Option<usize>,
}

impl Bench {
    pub fn new() -> Self {
        let log = Log::default();
        let (world, bus) = (World::new(&log), MemoryBus::new(&log));
        world.add_table("orders");
        Bench { store: Store::new("lake", &log), world, bus, log, clock: TestClock::new(), write_bytes: None }
    }

    pub async fn start(&self) -> Running {
        self.start_with(config(&self.clock), vec![self.spec()]).await
    }

    pub fn spec(&self) -> SinkSpec {
        let mut spec = SinkSpec::new("lake", self.store.sink(), self.bus.reader("lake"));
        spec.pace.write_bytes = self.write_bytes.unwrap_or(spec.pace.write_bytes);
        spec
    }

    pub async fn start_with(&self, config: PipelineConfig, sinks: Vec<SinkSpec>) -> Running {
        Pipeline::start(config, self.world.source(), Arc::new(self.bus.clone()), sinks).await.expect("it starts")
    }

    /// With eyes on both sides, so that repairs run.
    pub async fn start_seeing(&self) -> Running {
        let (world, store) = (self.world.clone(), self.store.clone());
        let source_inspect = Some(eyes(move || world.inspect()));
        let spec = SinkSpec { inspect: Some(eyes(move || store.inspect())), ..self.spec() };
        self.start_with(PipelineConfig { source_inspect, ..config(&self.clock) }, vec![spec]).await
    }

    pub fn assert_equal(&self, table: &str) {
        let mut source = self.world.rows(table);
        source.sort_by(|a, b| a.encoded().cmp(b.encoded()));
        assert_eq!(self.store.rows(table), source);
    }

    /// Many small transactions over few keys.
    pub fn load(&self, transactions: i64) {
        for n in 0..transactions {
            let (value, id) = (format!("v{n}"), n % 17);
            let delete = n % 7 == 6;
            self.world.commit("orders", &[(id, (!delete).then_some(&value)), (100 + n, Some(&value))]);
        }
    }
}

fn eyes(make: impl Fn() -> Box<dyn Inspect> + Send + Sync + 'static) -> InspectFactory {
    Arc::new(move || -> BoxFuture<'static, _> {
        let inspect = make();
        Box::pin(async { Ok(inspect) })
    })
}
