//! Measures the sink: bulk insert, then commits of 10,000 changes (80 % updates, 10 % inserts, 10 % deletes, uniform keys) on
//! tables of 8 columns.
//!
//!     cargo run --release -p tidewire-delta --example bench_delta [--json] [ROWS …]      (1000000 5000000 by default)

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewire_change::*;
use tidewire_connector::{Sink, TableBatch};
use tidewire_delta::{Config, DeltaSink};

const BATCH: u64 = 20_000;
const CHANGES: usize = 10_000;
const WARM_UP: usize = 3;
const COMMITS: usize = 50;

fn schema() -> Arc<Schema> {
    let kinds = [
        ("id", Kind::Int64),
        ("customer", Kind::Int32),
        ("status", Kind::Text),
        ("amount", Kind::Numeric { precision_scale: Some((12, 2)) }),
        ("created_at", Kind::TimestampTz),
        ("updated_at", Kind::TimestampTz),
        ("note", Kind::Text),
        ("weight", Kind::Float64),
    ];
    let column = |(i, (name, kind)): (usize, (&str, Kind))| Column {
        name: name.into(),
        ty: Type { kind, name: name.into(), builtin: true },
        attribute: i as i32 + 1,
    };
    Arc::new(Schema {
        table: TableName::new("public", "orders"),
        columns: kinds.into_iter().enumerate().map(column).collect(),
        key: Key::Columns(vec![0]),
        identity: Identity::Default,
        source_id: 1,
    })
}

struct Rows {
    schema: Arc<Schema>,
    state: u64,
    commit: u64,
    builder: RowBuilder,
    text: String,
}

impl Rows {
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.state >> 33
    }

    fn change(&mut self, op: Op, id: u64, ordinal: u32) -> Change {
        let n = self.random();
        let text = &mut self.text;
        let mut ends = Vec::with_capacity(8);
        text.clear();
        for column in 0..8 {
            let _ = match column {
                0 => write!(text, "{id}"),
                1 => write!(text, "{}", n % 100_000),
                2 => write!(text, "{}", ["new", "paid", "shipped", "refunded"][n as usize % 4]),
                3 => write!(text, "{}.{:02}", n % 10_000, n % 100),
                4 | 5 => write!(
                    text,
                    "2026-{:02}-{:02} 12:{:02}:{:02}.{:06}+00",
                    n % 12 + 1,
                    n % 28 + 1,
                    n % 60,
                    n % 59,
                    n % 999_999 + 1
                ),
                6 => write!(text, "order {n:x} of customer, to be left at the door"),
                _ => write!(text, "{}.5", n % 1000),
            };
            ends.push(text.len());
        }
        let mut start = 0;
        for (column, end) in ends.into_iter().enumerate() {
            let value = Datum::Text(&self.text.as_bytes()[start..end]);
            self.builder.push(if op == Op::Delete && column > 0 { Datum::Unchanged } else { value });
            start = end;
        }
        let row = self.builder.finish();
        let (before, after) = if op == Op::Delete { (Some(row), None) } else { (None, Some(row)) };
        let position = Position::new(self.commit, ordinal);
        Change { schema: self.schema.clone(), op, position, committed_at: self.commit as i64, xid: None, before, after }
    }

    fn progress(&self) -> Progress {
        let partition = TopicPartition { topic: "public.orders".into(), partition: 0 };
        let boundary = Boundary { position: Position::end_of(self.commit), complete_through: self.commit as i64 };
        Progress { offsets: BTreeMap::from([(partition, self.commit)]), boundary }
    }

    fn batch(&self, changes: Vec<Change>) -> TableBatch {
        TableBatch { schema: self.schema.clone(), truncate: None, changes }
    }
}

fn kilobytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0)
}

/// CPU time of the process, all threads, in milliseconds: what it costs whatever else the machine does.
fn cpu_ms() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> =
        stat.rsplit(')').next().unwrap_or_default().split(' ').filter_map(|f| f.parse().ok()).collect();
    // After the command's name: state, then numbers; utime and stime are fields 14 and 15, in ticks of 10 ms.
    fields.get(10..12).map_or(0.0, |ticks| ticks.iter().sum::<f64>() * 10.0)
}

async fn measure(rows: u64) -> Result<serde_json::Value> {
    let folder = std::env::temp_dir().join(format!("tidewire-bench-delta-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let mut sink = DeltaSink::new(Config::new(&folder, "bench", "lake"));
    sink.open().await?;
    let schema = schema();
    sink.prepare(schema.clone()).await?;
    let mut make =
        Rows { schema, state: 42, commit: 1, builder: RowBuilder::with_capacity(1 << 20), text: String::new() };
    let (mut bulk, cpu) = (Duration::ZERO, cpu_ms());
    let mut next = 0;
    while next < rows {
        let count = BATCH.min(rows - next);
        make.commit += 1;
        let changes = (0..count).map(|i| make.change(Op::Read, next + i, i as u32)).collect();
        let start = Instant::now();
        sink.write(make.batch(changes)).await?;
        next += count;
        if (next / BATCH) % 5 == 0 || next == rows {
            sink.commit(&make.progress()).await?;
        }
        bulk += start.elapsed();
    }
    let start = Instant::now();
    sink.settle().await?;
    let settled = start.elapsed();
    let bulk_cpu = cpu_ms() - cpu;
    let mut times = Vec::new();
    let cpu = cpu_ms();
    for round in 0..WARM_UP + COMMITS {
        make.commit += 1;
        let mut ids = std::collections::BTreeSet::new();
        let mut changes = Vec::with_capacity(CHANGES);
        while changes.len() < CHANGES {
            let kind = changes.len() % 10;
            let id = if kind == 9 { next } else { make.random() % rows };
            next += u64::from(kind == 9);
            if ids.insert(id) {
                let op = [Op::Update, Op::Delete, Op::Create][usize::from(kind >= 8) + usize::from(kind == 9)];
                changes.push(make.change(op, id, changes.len() as u32));
            }
        }
        let (batch, progress) = (make.batch(changes), make.progress());
        let start = Instant::now();
        let written = sink.write(batch).await?;
        sink.commit(&progress).await?;
        if round >= WARM_UP {
            times.push(start.elapsed());
        }
        assert_eq!(written.applied, CHANGES as u64);
    }
    times.sort();
    sink.settle().await?;
    let cpu = cpu_ms() - cpu;
    let sizes = sink.sizes().await?["public.orders"];
    let result = serde_json::json!({
        "rows": rows,
        "insert_rows_per_second": (rows as f64 / bulk.as_secs_f64()) as u64,
        "insert_and_bench_cpu_us_per_row": bulk_cpu * 1e3 / rows as f64,
        "settle_after_insert_ms": settled.as_millis() as u64,
        "commit_10000_median_ms": times[times.len() / 2].as_secs_f64() * 1e3,
        "commit_10000_p90_ms": times[times.len() * 9 / 10].as_secs_f64() * 1e3,
        "commit_10000_max_ms": times[times.len() - 1].as_secs_f64() * 1e3,
        "commit_and_upkeep_cpu_ms": cpu / (WARM_UP + COMMITS) as f64,
        "files": sizes.files,
        "index_bytes_per_key": sizes.index_bytes as f64 / (sizes.rows as f64),
        "rss_kb": kilobytes("VmRSS:"),
        "rss_anonymous_kb": kilobytes("RssAnon:"),
        "peak_rss_kb": kilobytes("VmHWM:"),
    });
    drop(sink);
    let _ = std::fs::remove_dir_all(&folder);
    Ok(result)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let (flags, sizes): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|a| a.starts_with("--"));
    let mut sizes: Vec<u64> = sizes.iter().filter_map(|size| size.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![1_000_000, 5_000_000];
    }
    for rows in sizes {
        let result = measure(rows).await?;
        if flags.iter().any(|flag| flag == "--json") {
            println!("{result}");
            continue;
        }
        for (name, value) in result.as_object().into_iter().flatten() {
            println!("{name:>24}  {value}");
        }
        println!();
    }
    Ok(())
}
