use crate::context::Stop;
use crate::reconcile::{reconcile, Comparison, Live, Sides, Terms, Verdict};
use crate::repairs::{Repair, Repairs};
use crate::shared::{locked, Shared};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Error, Position, Result, Schema};
use tidewire_connector::{BoxFuture, Inspect, Selection, TableState};

/// Between two attempts at repairs that are due.
const EVERY: Duration = Duration::from_secs(10);

/// The loops' own view of themselves, for comparisons that run beside them.
#[derive(Clone)]
pub(crate) struct Inside(pub Arc<Shared>);

/// Compares and mends what is due, one copy after the other, until the stop. What doesn't work out stays due.
pub(crate) async fn mend_all(inside: Inside, repairs: Arc<Repairs>, mut stop: Stop) -> Result<()> {
    loop {
        let turn = async {
            for repair in repairs.due() {
                if let Err(error) = mend(&inside, &repairs, &repair).await {
                    tracing::warn!(sink = repair.sink, table = repair.table, error = %error, "a repair is tried again later");
                }
            }
            tokio::select! {
                _ = repairs.changed() => {}
                _ = tokio::time::sleep(EVERY) => {}
            }
        };
        if stop.unless(turn).await.is_none() {
            return Ok(());
        }
    }
}

async fn mend(inside: &Inside, repairs: &Repairs, repair: &Repair) -> Result<()> {
    let shared = &inside.0;
    let sink = shared.sinks.iter().find(|s| s.name == repair.sink);
    let Some((sink, look_at_source)) = sink.zip(shared.source_inspect.as_ref()) else { return Ok(()) };
    let Some(look_at_sink) = &sink.inspect else { return Ok(()) };
    if !sink.pulse.is_open() || !shared.capture.pulse.is_open() {
        return Err(Error::unavailable("source and sink are not both connected"));
    }
    let parked = locked(&sink.parked).keys().cloned().collect();
    let (mut source, mut copy) = (look_at_source().await?, look_at_sink().await?);
    for schema in source.schemas().await? {
        if repair.table.as_ref().is_some_and(|t| *t != schema.table.to_string()) || !follows(shared, &schema, &parked)?
        {
            continue;
        }
        let terms = Terms { repair: true, keys_listed: 0, ..Terms::default() };
        let mut sides = Sides {
            source: &mut *source as &mut dyn Inspect,
            sink: &mut *copy,
            sink_name: &sink.name,
            live: inside,
            terms,
            progress: &mut |_| {},
        };
        let rows = rows_estimated(shared, &schema);
        let found = reconcile(&mut sides, schema.clone(), rows).await?;
        tracing::info!(sink = found.sink, table = found.table, repaired = found.repaired, "compared after a gap");
        if !matches!(found.verdict, Verdict::Equal | Verdict::Repaired) {
            let message = format!("{} rows of {} still differ, {} move", found.drift(), found.table, found.moving);
            return Err(Error::unavailable(message));
        }
    }
    repairs.done(shared, repair).await
}

/// Whether the table's changes reach the sink, so that a repair can, too. A first snapshot has to end before.
fn follows(shared: &Shared, schema: &Schema, parked: &BTreeSet<String>) -> Result<bool> {
    let status = shared.source.status();
    let table = status.tables.iter().find(|t| t.table == schema.table);
    match table.map(|t| &t.state) {
        Some(TableState::Streaming) if parked.contains(&schema.table.to_string()) => {
            Err(Error::unavailable(format!("{} is parked", schema.table)))
        }
        Some(TableState::Streaming) => Ok(true),
        Some(TableState::Pending | TableState::Copying { .. }) => {
            Err(Error::unavailable(format!("the first snapshot of {} isn't finished", schema.table)))
        }
        Some(TableState::Parked { .. }) | None => Ok(false),
    }
}

fn rows_estimated(shared: &Shared, schema: &Schema) -> u64 {
    let status = shared.source.status();
    status.tables.iter().find(|t| t.table == schema.table).map_or(0, |t| t.rows_estimated)
}

impl Live for Inside {
    fn sink_boundary<'a>(&'a self, sink: &'a str) -> BoxFuture<'a, Result<Position>> {
        Box::pin(async move {
            let found = self.0.sinks.iter().find(|s| s.name == sink);
            found.map(|s| s.boundary.borrow().position).ok_or_else(|| {
                let names: Vec<_> = self.0.sinks.iter().map(|s| s.name.as_str()).collect();
                Error::invalid(format!("there is no sink {sink:?}"))
                    .hint(format!("the sinks are: {}", names.join(", ")))
            })
        })
    }

    fn mark(&self) -> BoxFuture<'_, Result<Position>> {
        self.0.source.mark()
    }

    fn read(&self, selection: Selection) -> BoxFuture<'_, Result<()>> {
        self.0.source.read(selection)
    }

    fn pending_reads(&self) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async { Ok(self.0.source.status().pending_reads) })
    }

    /// For status and metrics.
    fn report<'a>(&'a self, comparison: &'a Comparison) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            let place = (comparison.sink.clone(), comparison.table.clone());
            let mut drift = locked(&self.0.drift);
            match comparison.verdict {
                Verdict::Drift => drift.insert(place, comparison.drift()),
                Verdict::Equal | Verdict::Repaired => drift.remove(&place),
                Verdict::Moving => None,
            };
            Ok(())
        })
    }
}
