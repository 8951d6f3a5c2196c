use crate::capture::Capture;
use crate::config::{PipelineConfig, SinkSpec};
use crate::context::{Stop, Task};
use crate::dead_letter::{DeadLetter, OF_SOURCE};
use crate::deliver::Deliver;
use crate::far::{answer_all, listen, Far};
use crate::hear::hear;
use crate::loops::{watch_over, Loops};
use crate::mend::{mend_all, Inside};
use crate::rates::Rates;
use crate::repairs::{Repair, Repairs};
use crate::rewrites::{are_shown, watch_rewrites};
use crate::schemas::SchemaBook;
use crate::share::{share as share_sink, Around, SharedSink};
use crate::shared::{locked, CaptureState, Pulse, Shared, SinkState};
use crate::supervise::Supervisor;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Error, ErrorKind, Position, Result};
use tidewire_connector::{BusWriter, Placed, Selection, Source, SourceHandle, TableState, What};
use tokio::sync::watch;

/// Starts the loops.
pub struct Pipeline;

/// A pipeline at work. Clones speak of the same one; it goes on when they are dropped.
#[derive(Clone)]
pub struct Running(Arc<Inner>);

struct Inner {
    inside: Inside,
    repairs: Arc<Repairs>,
    rates: Arc<Rates>,
    stop: Stop,
    /// Set when all loops have ended.
    outcome: watch::Receiver<Option<Result<(), Arc<Error>>>>,
    /// Looks at the counters; ends with the last clone.
    _sampling: Task<()>,
}

impl Pipeline {
    /// Starts capture and one loop per sink as tasks. Fails when the bus can't be read or two sinks have one name.
    pub async fn start(
        config: PipelineConfig,
        source: Box<dyn Source>,
        bus: Arc<dyn BusWriter>,
        sinks: Vec<SinkSpec>,
    ) -> Result<Running> {
        Self::begin(config, From::Source(source), bus, Sinks { own: sinks, ..Sinks::default() }).await
    }

    /// Starts capture alone; other processes deliver. `elsewhere`: all sinks, by name.
    pub async fn capture(
        config: PipelineConfig,
        source: Box<dyn Source>,
        bus: Arc<dyn BusWriter>,
        elsewhere: Vec<String>,
    ) -> Result<Running> {
        Self::begin(config, From::Source(source), bus, Sinks { elsewhere, ..Sinks::default() }).await
    }

    /// Starts one loop per sink; another process captures. `near`: looks at the source's server, without reading its log.
    pub async fn deliver(
        config: PipelineConfig,
        near: Arc<dyn SourceHandle>,
        bus: Arc<dyn BusWriter>,
        sinks: Vec<SinkSpec>,
    ) -> Result<Running> {
        Self::share(config, near, bus, sinks, Vec::new()).await
    }

    /// The same, and of other sinks the tables that fall to this process.
    pub async fn share(
        config: PipelineConfig,
        near: Arc<dyn SourceHandle>,
        bus: Arc<dyn BusWriter>,
        own: Vec<SinkSpec>,
        shared: Vec<SharedSink>,
    ) -> Result<Running> {
        Self::begin(config, From::Elsewhere(near), bus, Sinks { own, shared, elsewhere: Vec::new() }).await
    }

    async fn begin(config: PipelineConfig, from: From, bus: Arc<dyn BusWriter>, sinks: Sinks) -> Result<Running> {
        let repairs = Arc::new(Repairs::load(&*bus).await?);
        let (source, far) = match from {
            From::Source(source) => (Some(source), None),
            From::Elsewhere(near) => (None, Some(Arc::new(Far::new(near, &*config.clock)))),
        };
        let handle = match (&source, &far) {
            (Some(source), _) => source.handle(),
            (None, Some(far)) => far.clone() as Arc<dyn SourceHandle>,
            (None, None) => return Err(Error::bug("a pipeline without a source")),
        };
        let now = config.clock.now();
        let Sinks { own: sinks, shared: shared_sinks, elsewhere } = sinks;
        let state = |spec: &SinkSpec| Arc::new(SinkState::new(spec.name.clone(), now, spec.inspect.clone()));
        let mut states: Vec<_> = sinks.iter().map(state).collect();
        let of_shared = |sink: &SharedSink| {
            let mut state = SinkState::new(sink.name.clone(), now, sink.inspect.clone());
            state.shares = Some(Default::default());
            Arc::new(state)
        };
        states.extend(shared_sinks.iter().map(of_shared));
        let shared = Shared { elsewhere, is_far: far.is_some(), ..share(&config, handle, bus, states).await? };
        let shared = Arc::new(shared);
        let stop = Stop::default();
        let supervisor = Arc::new(Supervisor::new(&config, repairs.clone()));

        let mut loops = Loops::default();
        if let Some(source) = source {
            let capture = Capture {
                source,
                shared: shared.clone(),
                partitions: config.partitions,
                append_bytes: config.append_bytes,
                append_queue: config.append_queue,
                lost: false,
            };
            let (by, until) = (supervisor.clone(), stop.clone());
            let work = async move { by.capture(capture, until).await };
            loops.spawn_on("capture".into(), work, &config.capture_on);
            for channel in &config.channels {
                let channel = channel();
                let name = format!("signals {}", channel.name());
                loops.spawn(name, hear(channel, shared.clone(), stop.clone()));
            }
            if config.is_shared {
                loops.spawn("answers".into(), answer_all(shared.clone(), stop.clone()));
            }
        }
        if let Some(far) = far {
            far.belongs_to(&shared);
            loops.spawn("listen".into(), listen(far, shared.clone(), repairs.clone(), stop.clone()));
        }
        let own = sinks.len();
        for (spec, state) in sinks.into_iter().zip(&shared.sinks) {
            let mut deliver = Deliver::new(spec.sink, spec.reader, shared.clone(), state.clone(), repairs.clone());
            deliver.pace = spec.pace;
            let (by, until) = (supervisor.clone(), stop.clone());
            loops.spawn(format!("sink {}", spec.name), async move { by.sink(deliver, until).await });
        }
        for (sink, state) in shared_sinks.into_iter().zip(&shared.sinks[own..]) {
            let around = Around {
                shared: shared.clone(),
                state: state.clone(),
                repairs: repairs.clone(),
                supervisor: supervisor.clone(),
                stop: stop.clone(),
            };
            loops.spawn(format!("sink {}", sink.name), share_sink(sink, around));
        }
        if !shared.sinks.is_empty() {
            loops.spawn("repairs".into(), mend_all(Inside(shared.clone()), repairs.clone(), stop.clone()));
            loops.spawn("rewrites".into(), watch_rewrites(shared.clone(), stop.clone()));
        }
        let (ended, outcome) = watch::channel(None);
        let rates = Arc::new(Rates::default());
        let _sampling = Task::spawn(rates.clone().keep(shared.clone()));
        let inner = Inner { inside: Inside(shared), repairs, rates, stop: stop.clone(), outcome, _sampling };
        tokio::spawn(watch_over(loops, stop, config.shutdown, ended));
        Ok(Running(Arc::new(inner)))
    }
}

/// Who writes them.
#[derive(Default)]
struct Sinks {
    own: Vec<SinkSpec>,
    /// With other processes.
    shared: Vec<SharedSink>,
    elsewhere: Vec<String>,
}

/// Where the changes come from.
enum From {
    Source(Box<dyn Source>),
    /// Another process captures them.
    Elsewhere(Arc<dyn SourceHandle>),
}

pub(crate) async fn share(
    config: &PipelineConfig,
    source: Arc<dyn SourceHandle>,
    bus: Arc<dyn BusWriter>,
    states: Vec<Arc<SinkState>>,
) -> Result<Shared> {
    let now = config.clock.now();
    for (i, state) in states.iter().enumerate() {
        if states[..i].iter().any(|s| s.name == state.name) {
            return Err(Error::invalid(format!("two sinks have the name {:?}", state.name)).hint("rename one"));
        }
    }
    let capture = CaptureState::new(now);
    for letter in DeadLetter::load(&*bus).await? {
        let of_sink = states.iter().find(|s| s.name == letter.sink).map(|state| &state.dead_letters);
        let count = of_sink.or((letter.sink == OF_SOURCE).then_some(&capture.dead_letters));
        count.map(|count| count.fetch_add(1, Relaxed));
    }
    Ok(Shared {
        clock: config.clock.clone(),
        started: now,
        has_history: bus.last().await?.is_some(),
        bus,
        source,
        book: SchemaBook::default(),
        capture,
        words: Pulse::new(now),
        sinks: states,
        elsewhere: Vec::new(),
        is_far: false,
        file: config.file.clone(),
        budgets: config.budgets.clone(),
        journal: config.journal.clone(),
        source_inspect: config.source_inspect.clone(),
        drift: Default::default(),
        left: Default::default(),
        unwritable: Default::default(),
    })
}

impl Running {
    /// Asks for a placed read.
    pub async fn read(&self, selection: Selection) -> Result<()> {
        self.0.inside.0.source.read(selection).await
    }

    /// Asks for a placed read of the table of this name, as `status` has it, or of those of its rows for which the condition holds.
    pub async fn read_table(&self, name: &str, condition: Option<String>) -> Result<()> {
        let source = &self.0.inside.0.source;
        let tables = source.status().tables;
        let Some(table) = tables.iter().find(|table| table.table.to_string() == name) else {
            let names = tables.iter().map(|table| table.table.to_string()).collect::<Vec<_>>().join(", ");
            return Err(
                Error::invalid(format!("the pipeline has no table {name:?}")).hint(format!("they are: {names}"))
            );
        };
        let what = condition.map_or(What::Table, What::Where);
        source.read(Selection { table: table.table.clone(), what, placed: Placed::Ahead }).await
    }

    /// Asks for a placed read of every table that is followed, beside those whose first read is still to come or under way.
    pub async fn read_all(&self) -> Result<()> {
        let source = &self.0.inside.0.source;
        for table in source.status().tables.into_iter().filter(|table| table.state == TableState::Streaming) {
            source.read(Selection { table: table.table, what: What::Table, placed: Placed::Ahead }).await?;
        }
        Ok(())
    }

    /// A position at or above everything that has committed at the source so far.
    pub async fn mark(&self) -> Result<Position> {
        self.0.inside.0.source.mark().await
    }

    /// Returns when everything that had committed at the source at the call, and all rows of placed reads that were
    /// pending, is applied, committed and seen by readers in every sink. Parked tables and dead letters aren't waited for.
    pub async fn caught_up(&self) -> Result<()> {
        let shared = &self.0.inside.0;
        let first = self.marked().await?;
        loop {
            self.still_running()?;
            let status = shared.source.status();
            let waits = |state: &TableState| matches!(state, TableState::Pending | TableState::Copying { .. });
            let copied = !status.tables.iter().any(|t| waits(&t.state));
            if status.pending_reads == 0 && copied && status.position >= first {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // The last rows that were read stand in the stream before this mark.
        let last = self.marked().await?.max(first);
        for sink in &shared.sinks {
            self.passed(sink, last).await?;
            while !are_shown(shared, sink) {
                self.still_running()?;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// A mark in the source's log, as soon as the source is there.
    async fn marked(&self) -> Result<Position> {
        loop {
            match self.0.inside.0.source.mark().await {
                Err(error) if !matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Bug) => {
                    self.still_running()?;
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                marked => return marked,
            }
        }
    }

    /// Returns when no repair is due any more that can be made now. Not waited for: those that were tried in vain, and those
    /// of a sink in which a table is parked or that can't be looked at.
    pub async fn mended(&self) -> Result<()> {
        let Inner { inside, repairs, .. } = &*self.0;
        let shared = &inside.0;
        let can_look = |sink: &SinkState| shared.source_inspect.is_some() && sink.inspect.is_some();
        let can_mend = |repair: &Repair| {
            let sink = shared.sinks.iter().find(|sink| sink.name == repair.sink);
            sink.is_some_and(|sink| can_look(sink) && sink.mends(repair) && locked(&sink.parked).is_empty())
        };
        while repairs.due().iter().any(|repair| repairs.is_hopeful(repair) && can_mend(repair)) {
            self.still_running()?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    async fn passed(&self, sink: &SinkState, position: Position) -> Result<()> {
        let mut boundary = sink.boundary.subscribe();
        let mut outcome = self.0.outcome.clone();
        tokio::select! {
            biased;
            passed = boundary.wait_for(|b| b.position >= position) => passed.map(|_| ()).map_err(|_| ended()),
            _ = outcome.wait_for(Option::is_some) => Err(ended()),
        }
    }

    pub(crate) fn still_running(&self) -> Result<()> {
        match &*self.0.outcome.borrow() {
            None => Ok(()),
            Some(Ok(())) => Err(ended()),
            Some(Err(error)) => Err(error.again()),
        }
    }

    /// Asks every loop to finish its batch, and waits until they have ended: within the shutdown time.
    pub async fn stop(&self) -> Result<()> {
        self.0.stop.request();
        self.wait().await
    }

    /// Waits until the pipeline ends: by a stop, or by an error that no retry mends.
    pub async fn wait(&self) -> Result<()> {
        let mut outcome = self.0.outcome.clone();
        let ended = match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            Err(_) => return Err(Error::bug("the task that watches over the loops is gone")),
        };
        match ended {
            Some(Err(error)) => Err(error.again()),
            _ => Ok(()),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.inside.0
    }

    pub(crate) fn inside(&self) -> &Inside {
        &self.0.inside
    }

    pub(crate) fn rates(&self) -> &Rates {
        &self.0.rates
    }

    pub(crate) fn repairs(&self) -> &Arc<Repairs> {
        &self.0.repairs
    }
}

fn ended() -> Error {
    Error::unavailable("the pipeline has ended")
}
