//! One seed: several lives of the pipeline under load and faults, and one more without faults, at whose end all is equal.

use crate::bus::Bus;
use crate::database::Database;
use crate::life::Clean;
use crate::sink::{compare, Store};
use crate::source::SimSource;
use crate::stage::{Sabotage, Stage};
use std::sync::Arc;
use std::time::Duration;
use tidewire_connector::{BoxFuture, Budget, Inspect};
use tidewire_pipeline::{
    Backoff, Clock, InspectFactory, Pace, Pipeline, PipelineConfig, Running, SinkSpec, DEAD_LETTERS,
};
use tokio::time::{sleep, timeout, Instant};

/// What came of a seed.
pub struct Outcome {
    pub seed: u64,
    pub wrong: Vec<String>,
    /// Hash of the whole trace.
    pub trace: u64,
    /// The end of the trace, to look at.
    pub end: Vec<String>,
    pub steps: u64,
    pub crashes: u64,
    pub errors: u64,
}

/// Runs one seed.
pub fn run(seed: u64, sabotage: Option<Sabotage>) -> Outcome {
    play(Stage::new(seed, sabotage), seed)
}

/// Runs one seed, in which tables are read anew now and then.
pub fn run_with_rewrites(seed: u64, sabotage: Option<Sabotage>) -> Outcome {
    let mut stage = Stage::new(seed, sabotage);
    stage.rewrites = true;
    play(stage, seed)
}

fn play(stage: Stage, seed: u64) -> Outcome {
    let world = World::new(&stage);
    let lives = stage.chance(|c| c.between(2, 6));
    for life in 0..=lives {
        let is_last = life == lives;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime of one thread");
        let lived = runtime.block_on(async {
            let began = Instant::now();
            stage.begin_life(!is_last);
            match is_last {
                true => world.last_life().await,
                false => world.live().await,
            }
            began.elapsed()
        });
        drop(runtime);
        let gap = stage.chance(|c| if c.per_mille(500) { 0 } else { c.below(2000) });
        stage.end_life(lived, Duration::from_millis(gap));
        world.bus.crash();
        for _ in 0..stage.chance(|c| if is_last { 0 } else { c.below(6) }) {
            world.database.change_something();
        }
    }
    let ((trace, end), (steps, crashes, errors)) = (stage.trace(), stage.counts());
    Outcome { seed, wrong: stage.all_wrong(), trace, end, steps, crashes, errors }
}

/// What outlives the processes.
struct World {
    stage: Stage,
    database: Database,
    bus: Bus,
    stores: Vec<Store>,
    clean: Clean,
    partitions: u32,
    budget_bytes: usize,
    loses_slot: bool,
}

impl World {
    fn new(stage: &Stage) -> Self {
        let keyless = stage.chance(|c| c.per_mille(600));
        // What a table without a key misses can't be brought back row by row.
        if !keyless {
            stage.may_lose();
        }
        let clean = Clean::default();
        let (database, bus) = (Database::new(stage, keyless), Bus::new(stage, true));
        let store = |name| Store::new(name, stage, &bus, &database, &clean);
        World {
            stores: vec![store("lake"), store("replica")],
            partitions: stage.chance(|c| c.between(1, 5)) as u32,
            budget_bytes: stage.chance(|c| c.between(1, 40)) as usize * 1024,
            loses_slot: !keyless && stage.chance(|c| c.per_mille(250)),
            stage: stage.clone(),
            database,
            bus,
            clean,
        }
    }

    async fn start(&self) -> tidewire_change::Result<Running> {
        let chance = |from, to| self.stage.chance(|c| c.between(from, to));
        let config = PipelineConfig {
            partitions: self.partitions,
            append_bytes: chance(1, 4000) as usize,
            append_queue: chance(1, 5) as usize,
            shutdown: Duration::from_millis(chance(0, 400)),
            backoff: Backoff { first: Duration::from_millis(20), most: Duration::from_millis(500) },
            attempts: 3,
            clock: Arc::new(self.stage.clone()),
            source_inspect: Some(eyes(self.database.clone())),
            ..PipelineConfig::default()
        };
        let pace = Pace {
            interval: Duration::from_millis(chance(1, 120)),
            slowest: Duration::from_millis(120),
            commit_bytes: chance(50, 20_000) as usize,
            write_bytes: chance(50, 5_000) as usize,
            idle: Duration::from_millis(chance(20, 2000)),
        };
        let budget = || Budget::new(self.budget_bytes);
        let source = SimSource::new(&self.database, &self.stage, budget(), self.clean.clone());
        let spec = |store: &Store| SinkSpec {
            name: store.name.into(),
            sink: store.sink(),
            reader: self.bus.reader(store.name, budget()),
            pace,
            inspect: Some(eyes(store.clone())),
        };
        let sinks = self.stores.iter().map(spec).collect();
        Pipeline::start(config, Box::new(source), Arc::new(self.bus.clone()), sinks).await
    }

    /// A life with faults: it ends by its death, by itself, or by a stop.
    async fn live(&self) {
        let lifetime = Duration::from_millis(self.stage.chance(|c| c.between(50, 6000)));
        let life = async {
            let Ok(running) = self.start().await else { return };
            let load = self.load();
            tokio::select! {
                biased;
                _ = running.wait() => {}
                _ = load => {}
                _ = sleep(lifetime) => {}
            }
            let _ = running.stop().await;
            self.stage.note("stopped".into());
        };
        tokio::select! {
            biased;
            _ = self.stage.death() => {}
            _ = life => {}
        }
    }

    /// Changes until the future is dropped; now and then the slot is lost.
    async fn load(&self) {
        loop {
            sleep(Duration::from_millis(self.stage.chance(|c| c.between(1, 120)))).await;
            self.database.change_something();
            if self.loses_slot && self.stage.chance(|c| c.per_mille(10)) {
                self.database.lose_slot();
            }
        }
    }

    /// Faults end, later the load does; then the copies become equal by themselves.
    async fn last_life(&self) {
        let running = match self.start().await {
            Ok(running) => running,
            Err(error) => return self.stage.wrong(format!("it does not start: {error}")),
        };
        let some = Duration::from_millis(self.stage.chance(|c| c.between(1, 1500)));
        let _ = timeout(some, self.load()).await;
        let hidden = self.database.all_visible_at() - self.stage.now();
        sleep(Duration::from_micros(hidden.max(0) as u64 + 1)).await;
        let rest = timeout(Duration::from_secs(1800), self.comes_to_rest(&running)).await;
        match rest {
            Err(_) => self.stage.wrong(format!("stuck: {:?}", running.status())),
            Ok(Err(error)) => self.stage.wrong(format!("it ended: {error}")),
            Ok(Ok(())) => self.compare(),
        }
        let _ = running.stop().await;
    }

    async fn comes_to_rest(&self, running: &Running) -> tidewire_change::Result<()> {
        loop {
            running.caught_up().await?;
            if running.status().repairs.is_empty() && !self.stores.iter().any(Store::hides_rows) {
                return Ok(());
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    fn compare(&self) {
        let (state, _) = self.database.snapshot();
        for store in &self.stores {
            for (name, table) in &state {
                if let Some(difference) = compare(&table.encoded(), &store.rows(name)) {
                    self.stage.wrong(format!("at rest {name} in {} differs: {difference}", store.name));
                }
            }
        }
        if self.bus.count(DEAD_LETTERS) > 0 {
            self.stage.wrong("a message was put aside".into());
        }
    }
}

fn eyes(inspect: impl Inspect + Clone + Sync + 'static) -> InspectFactory {
    Arc::new(move || -> BoxFuture<'static, _> {
        let inspect: Box<dyn Inspect> = Box::new(inspect.clone());
        Box::pin(async { Ok(inspect) })
    })
}
