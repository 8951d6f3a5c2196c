use crate::context::Stop;
use crate::reconcile::{reconcile, Comparison, Live, Sides, Terms, Verdict};
use crate::repairs::{Repair, Repairs};
use crate::shared::{locked, Shared, SinkState};
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Error, Key, Position, Result, Schema, TableName};
use tidewire_connector::{BoxFuture, Placed, Selection, TableState, What};

/// Between two looks at repairs that are due; twice as long after each that didn't work out, since it scans whole tables.
const EVERY: Duration = Duration::from_secs(5);
/// Between two looks whether source and sink are open, at the start.
const SOON: Duration = Duration::from_millis(300);
const AT_MOST: Duration = Duration::from_secs(600);

/// The loops' own view of themselves, for comparisons that run beside them.
#[derive(Clone)]
pub(crate) struct Inside(pub Arc<Shared>);

/// Compares and mends what is due, one copy after the other, until the stop. What doesn't work out stays due.
pub(crate) async fn mend_all(inside: Inside, repairs: Arc<Repairs>, stop: Stop) -> Result<()> {
    let mut pause = EVERY;
    loop {
        let turn = async {
            let (mut failed, due) = (false, repairs.due());
            let ready: Vec<_> = due.iter().filter(|repair| is_ready(&inside, repair)).collect();
            let only_waits = ready.is_empty() && !due.is_empty();
            for repair in ready {
                if let Err(error) = mend(&inside, &repairs, repair).await {
                    tracing::warn!(sink = repair.sink, table = repair.table, error = %error, "a repair is tried again later");
                    repairs.failed(repair);
                    failed = true;
                }
            }
            pause = if failed { AT_MOST.min(pause * 2) } else { EVERY };
            tokio::select! {
                biased;
                _ = repairs.changed() => {}
                _ = tokio::time::sleep(if only_waits { SOON } else { pause }) => {}
            }
        };
        if stop.unless(turn).await.is_none() {
            return Ok(());
        }
    }
}

/// Source and sink are open, and readers of the source see all that lies before the stream.
fn is_ready(inside: &Inside, repair: &Repair) -> bool {
    let shared = &inside.0;
    let sink = shared.sinks.iter().find(|s| s.name == repair.sink);
    // A sink that was taken out is not waited for.
    sink.is_none_or(|sink| {
        let is_open = sink.pulse.is_open() && shared.capture.pulse.is_open() && shared.source.status().is_settled;
        is_open && sink.mends(repair)
    })
}

/// Does nothing while a table's first snapshot isn't finished, or nobody gave it eyes.
async fn mend(inside: &Inside, repairs: &Repairs, repair: &Repair) -> Result<()> {
    let shared = &inside.0;
    let sink = shared.sinks.iter().find(|s| s.name == repair.sink);
    let Some((sink, look_at_source)) = sink.zip(shared.source_inspect.as_ref()) else { return Ok(()) };
    let Some(look_at_sink) = &sink.inspect else { return Ok(()) };
    let mut source = look_at_source().await?;
    let mut tables = source.schemas().await?;
    tables.retain(|schema| repair.table.as_ref().is_none_or(|t| *t == schema.table.to_string()));
    let states: Vec<_> = tables.iter().map(|schema| state(shared, sink, schema)).collect();
    if repair.table.is_none() && sink.shares.is_some() {
        return divide(shared, sink, repairs, repair, &tables).await;
    }
    if states.contains(&Followed::NotYet) {
        return Ok(());
    }
    if repair.reread {
        // The server has tables, too, that the configuration doesn't name.
        let followed = tables.iter().zip(&states).filter(|(_, state)| **state == Followed::Yes);
        // A table without a key is read whole by its comparison, if it differs; a single one is known to lack rows.
        let lacking = followed.filter(|(schema, _)| repair.table.is_some() || matches!(schema.key, Key::Columns(_)));
        reread(inside, lacking.map(|(schema, _)| schema.table.clone()).collect()).await?;
    }
    let mut copy = look_at_sink().await?;
    for (schema, _) in tables.into_iter().zip(states).filter(|(_, state)| *state == Followed::Yes) {
        let mut sides = Sides {
            source: &mut *source,
            sink: &mut *copy,
            sink_name: &sink.name,
            live: inside,
            terms: Terms { repair: true, keys_listed: 0, ..Terms::default() },
            progress: &mut |_| {},
        };
        let rows = rows_estimated(shared, &schema);
        let found = reconcile(&mut sides, schema, rows).await?;
        tracing::info!(sink = found.sink, table = found.table, repaired = found.repaired, "compared after a gap");
        if !matches!(found.verdict, Verdict::Equal | Verdict::Repaired) {
            let message = format!("{} rows of {} still differ, {} move", found.drift(), found.table, found.moving);
            return Err(Error::unavailable(message));
        }
    }
    repairs.done(shared, repair).await
}

/// Whoever writes the first of all tables does it.
async fn divide(
    shared: &Shared,
    sink: &SinkState,
    repairs: &Repairs,
    repair: &Repair,
    tables: &[Arc<Schema>],
) -> Result<()> {
    let followed = tables.iter().filter(|schema| state(shared, sink, schema) != Followed::No);
    let mut names: Vec<String> = followed.map(|schema| schema.table.to_string()).collect();
    names.sort_unstable();
    let Some(first) = names.first().cloned() else { return Ok(()) };
    match sink.mends(&Repair { table: Some(first), ..repair.clone() }) {
        true => repairs.divide(shared, repair, &names).await,
        false => Ok(()),
    }
}

/// Has whole tables read again, and waits until their rows are in the stream. Sinks that hold them already throw them away.
async fn reread(inside: &Inside, tables: Vec<TableName>) -> Result<()> {
    let source = &inside.0.source;
    for table in tables {
        source.read(Selection { table, what: What::Table, placed: Placed::Here }).await?;
    }
    while source.status().pending_reads > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Followed {
    Yes,
    No,
    /// Its first snapshot isn't finished, or it is parked in the sink: a repair would not reach it.
    NotYet,
}

fn state(shared: &Shared, sink: &SinkState, schema: &Schema) -> Followed {
    if locked(&sink.parked).contains_key(&schema.table.to_string()) {
        return Followed::NotYet;
    }
    let status = shared.source.status();
    match status.tables.iter().find(|t| t.table == schema.table).map(|t| &t.state) {
        Some(TableState::Streaming) => Followed::Yes,
        Some(TableState::Pending | TableState::Copying { .. }) => Followed::NotYet,
        Some(TableState::Parked { .. } | TableState::Left { .. }) | None => Followed::No,
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
