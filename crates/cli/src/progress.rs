//! A pipeline's progress on stderr: bars on a terminal, plain lines elsewhere.

use crate::terminal::{bytes, is_json, is_live, seconds, tell, thousands};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tidewire_pipeline::{Snapshot, Status, TableView};

/// Plain lines come this far apart.
const PAUSE: Duration = Duration::from_secs(3);
const STEPS: u64 = 1000;

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Tables being copied; afterwards nothing.
    Copies,
    /// Also the changes that flow.
    All,
}

pub struct Progress {
    show: Show,
    live: Option<MultiProgress>,
    bars: BTreeMap<String, ProgressBar>,
    summary: Option<ProgressBar>,
    last_line: Option<Instant>,
    was_copying: bool,
}

impl Progress {
    pub fn new(show: Show) -> Progress {
        let live =
            (is_live() && !is_json()).then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10)));
        Progress { show, live, bars: BTreeMap::new(), summary: None, last_line: None, was_copying: false }
    }

    /// Shows how it stands now.
    pub fn update(&mut self, status: &Status) {
        match &self.live {
            Some(live) => {
                let live = live.clone();
                self.draw(&live, status);
            }
            None => self.print(status),
        }
    }

    /// Takes bars and the summary off the screen.
    pub fn clear(&mut self) {
        if let Some(live) = &self.live {
            // The terminal may be gone; there is nothing to clear then.
            let _ = live.clear();
        }
        self.bars.clear();
        self.summary = None;
    }

    fn draw(&mut self, live: &MultiProgress, status: &Status) {
        // The line of what flows stands below the bars.
        let summary = self.summary.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{spinner} {msg}").expect("the template is right");
            live.add(ProgressBar::new_spinner().with_style(style))
        });
        for table in &status.tables {
            let is_done = !matches!(table.state, Snapshot::Pending | Snapshot::Copying);
            if is_done && !self.bars.contains_key(&table.table) {
                continue;
            }
            let bar = self.bars.entry(table.table.clone()).or_insert_with(|| {
                let style = ProgressStyle::with_template("{prefix:<24!} {bar:32} {percent:>3}%  {msg}");
                let bar = ProgressBar::new(STEPS).with_style(style.expect("the template is right"));
                live.insert_before(summary, bar.with_prefix(table.table.clone()))
            });
            if bar.is_finished() {
                continue;
            }
            bar.set_position((table.copied * STEPS as f64) as u64);
            bar.set_message(format!("{} rows", thousands(table.rows_read)));
            if is_done {
                bar.finish_with_message(format!("{} rows, done", thousands(table.rows_read)));
            }
        }
        match self.show {
            Show::All => summary.set_message(flow(status)),
            Show::Copies if is_copying(status) => summary.set_message("copying"),
            Show::Copies => summary.set_message("following changes"),
        }
        summary.tick();
    }

    fn print(&mut self, status: &Status) {
        let is_copying = is_copying(status);
        let ended = self.was_copying && !is_copying;
        self.was_copying = is_copying;
        let is_time = self.last_line.is_none_or(|at| at.elapsed() >= PAUSE);
        if ended {
            tell("every table is copied; following changes");
        }
        if !is_time || (self.show == Show::Copies && !is_copying) {
            return;
        }
        self.last_line = Some(Instant::now());
        if is_copying {
            tell(&copies(status));
        }
        if self.show == Show::All {
            tell(&flow(status));
        }
    }
}

fn is_copying(status: &Status) -> bool {
    status.tables.iter().any(|t| matches!(t.state, Snapshot::Pending | Snapshot::Copying))
}

/// `copying: shop.orders 45 % (112,000 rows), …`
fn copies(status: &Status) -> String {
    let one = |t: &TableView| format!("{} {:.0} % ({} rows)", t.table, t.copied * 100.0, thousands(t.rows_read));
    let copying = status.tables.iter().filter(|t| t.state == Snapshot::Copying).map(one).collect::<Vec<_>>();
    let waiting = status.tables.iter().filter(|t| t.state == Snapshot::Pending).count();
    match (copying.is_empty(), waiting) {
        (true, _) => format!("tables that wait to be copied: {waiting}"),
        (false, 0) => format!("copying: {}", copying.join(", ")),
        (false, _) => format!("copying: {}; waiting: {waiting}", copying.join(", ")),
    }
}

/// `in 5,012 rows/s · lake: out 4,998 rows/s, lag 210 ms, 1.2 MB, 41 commits`
pub fn flow(status: &Status) -> String {
    let rate = |flows: &mut dyn Iterator<Item = f64>| thousands(flows.sum::<f64>() as u64);
    let mut text = format!("in {} rows/s", rate(&mut status.tables.iter().map(|t| t.captured.rows_per_second)));
    for sink in &status.sinks {
        let mut out = status.tables.iter().filter_map(|t| t.delivered.get(&sink.name)).map(|flow| flow.rows_per_second);
        let lag = sink.staleness_seconds.map(seconds).unwrap_or("unknown".into());
        text.push_str(&format!(
            " · {}: out {} rows/s, lag {lag}, {}, {} commits",
            sink.name,
            rate(&mut out),
            bytes(sink.lag_bytes),
            thousands(sink.commits)
        ));
    }
    text
}
