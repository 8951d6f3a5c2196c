use super::{Finding, Severity};
use crate::status::SignalsView;

/// For `check`, too.
pub(super) fn lacks_table(table: &str) -> Finding {
    Finding::new(Severity::Warning, "signals", format!("there is no table {table} by which they could come"))
        .why("it isn't among the tables that are followed: it isn't there, or a publication of your own doesn't have it")
        .next(format!(
            "CREATE TABLE {table} (id varchar(64) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048)), and add it to the \
             publication, if that is your own"
        ))
}

/// What is amiss with signals.
pub(super) fn signals(view: &SignalsView, findings: &mut Vec<Finding>) {
    let facts = &view.facts;
    findings.extend(facts.lacks_table.as_deref().map(lacks_table));
    for refused in &facts.refused {
        findings.push(
            Finding::new(Severity::Warning, "signals", "one was not carried out")
                .why(refused.clone())
                .next("send it again, mended; everything else goes on (docs/debezium.md, Signals)"),
        );
    }
    if facts.is_paused {
        findings.push(
            Finding::new(Severity::Note, "signals", "reads that signals asked for are paused")
                .why("a signal pause-snapshot came; the stream goes on")
                .next("send the signal resume-snapshot"),
        );
    }
    for (channel, why) in &view.deaf {
        findings.push(
            Finding::new(
                Severity::Warning,
                "signals",
                format!("the channel {channel} can't be read; it is tried again"),
            )
            .why(why.clone())
            .next("mend what is told; signals wait in their channel meanwhile"),
        );
    }
}
