//! What the demo found.

use super::folder::Folder;
use super::load::Done;
use super::watch::Watch;
use crate::commands::reconcile::{is_equal, row};
use crate::terminal::{bytes, seconds, thousands, Grid};
use serde_json::{json, Value};
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tidewire_pipeline::reconcile::Comparison;

pub struct Report {
    comparisons: Vec<Comparison>,
    copied_after: Option<f64>,
    /// 50th and 95th percentile and the greatest.
    ages: [Option<f64>; 3],
    peak_memory_bytes: Option<u64>,
    changes: u64,
    transactions: u64,
    length: Duration,
    caught_up_after: Duration,
}

impl Report {
    pub fn new(
        comparisons: Vec<Comparison>,
        watch: &Watch,
        done: &Done,
        length: Duration,
        caught_up_after: Duration,
    ) -> Report {
        Report {
            comparisons,
            copied_after: watch.copied_after,
            ages: [0.5, 0.95, 1.0].map(|share| watch.age(share)),
            peak_memory_bytes: peak_memory(),
            changes: done.changes.load(Relaxed),
            transactions: done.transactions.load(Relaxed),
            length,
            caught_up_after,
        }
    }

    pub fn is_equal(&self) -> bool {
        !self.comparisons.is_empty() && self.comparisons.iter().all(is_equal)
    }

    pub fn text(&self, folder: &Folder) -> String {
        let mut grid = Grid::new(&["table", "sink", "rows at source", "rows in copy", "differing", "verdict"]);
        self.comparisons.iter().for_each(|comparison| grid.row(row(comparison)));
        let mut text = format!("\n{}\n", grid.text());
        let known = |value: Option<f64>| value.map(seconds).unwrap_or("not seen".into());
        let _ = writeln!(
            text,
            "all rows in the copy after  {} (server's start and filling included)",
            known(self.copied_after)
        );
        let [p50, p95, most] = self.ages.map(known);
        let _ = writeln!(text, "age of the copy under load  p50 {p50}, p95 {p95}, at most {most}");
        let _ = writeln!(
            text,
            "load                        {} changes in {} transactions, {} s",
            thousands(self.changes),
            thousands(self.transactions),
            self.length.as_secs()
        );
        let _ = writeln!(text, "caught up after its end     {}", seconds(self.caught_up_after.as_secs_f64()));
        if let Some(peak) = self.peak_memory_bytes {
            let _ = writeln!(text, "memory, at most             {}", bytes(peak));
        }
        let verdict =
            if self.is_equal() { "EQUAL: every row of every copy is what the source has" } else { "NOT EQUAL" };
        let _ = writeln!(text, "\n{verdict}");
        text.push_str(&self.next(folder));
        text
    }

    fn next(&self, folder: &Folder) -> String {
        if !folder.is_kept {
            return "\n(--keep leaves the copy, to be queried)\n".into();
        }
        let path = folder.path.display();
        format!(
            "\nThe copy stays in {path}. To query it:\n  pip install duckdb\n  python3 -c \"import duckdb; duckdb.sql('INSTALL delta; LOAD delta'); \
             print(duckdb.sql('''SELECT status, count(*), sum(total) FROM delta_scan('{path}/lake/shop/orders') \
             WHERE NOT _deleted GROUP BY 1 ORDER BY 1'''))\"\n"
        )
    }

    pub fn json(&self, folder: &Folder) -> Value {
        let tables = self.comparisons.iter().map(|c| {
            json!({"table": c.table, "sink": c.sink, "rows_source": c.rows_source, "rows_copy": c.rows_sink,
                "differing": c.drift() + c.moving, "verdict": c.verdict})
        });
        json!({
            "equal": self.is_equal(),
            "tables": tables.collect::<Vec<_>>(),
            "seconds_until_copied": self.copied_after,
            "age_seconds": {"p50": self.ages[0], "p95": self.ages[1], "max": self.ages[2]},
            "load": {"changes": self.changes, "transactions": self.transactions, "seconds": self.length.as_secs()},
            "seconds_until_caught_up": self.caught_up_after.as_secs_f64(),
            "peak_memory_bytes": self.peak_memory_bytes,
            "folder": folder.is_kept.then(|| folder.path.display().to_string()),
        })
    }
}

/// The most that this process had resident so far.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
