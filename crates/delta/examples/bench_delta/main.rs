//! Measures the Delta sink. Every part prints one line of JSON; `testbed/bench_delta.py` makes tables of them.
//!
//! ```text
//! bench_delta commits ROWS …       filling, then commits of 1,000, 10,000 and 100,000 changes; the index. --short: only those
//!                                  of 10,000 changes of uniform keys
//! bench_delta touched ROWS FILES   commits of 10,000 changes that touch all of so many files
//! bench_delta long ROWS COMMITS    many commits: what lies in the folder right after them, and when the table has come to rest. --folder F
//!                                  keeps it; --struck=0.15 has files written anew when that part of them is struck
//!
//! --buckets=N with any of them: tables of so many buckets.
//! ```

mod mixed;
mod rows;

use mixed::{bytes_of, Keys};
use rows::Rows;
use serde_json::{json, Value};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewire_change::*;
use tidewire_connector::Sink;
use tidewire_delta::{Config, DeltaSink, Sizes};

const BATCH: u64 = 20_000;
const WARM_UP: usize = 3;
const COMMITS: usize = 50;

struct Bench {
    config: Config,
    sink: DeltaSink,
    rows: Rows,
    /// Anonymous memory at most, in kB, looked at after each commit.
    memory_kb: u64,
}

impl Bench {
    async fn open(mut config: Config) -> Result<Bench> {
        if let Some(count) = std::env::args().find_map(|a| a.strip_prefix("--buckets=")?.parse().ok()) {
            config.buckets = count;
        }
        let mut sink = DeltaSink::new(config.clone());
        sink.open().await?;
        let rows = Rows::new();
        sink.prepare(rows.schema.clone()).await?;
        Ok(Bench { config, sink, rows, memory_kb: 0 })
    }

    /// Fills the table, `per_commit` rows a commit; returns seconds and CPU milliseconds.
    async fn fill(&mut self, rows: u64, per_commit: u64) -> Result<(f64, f64)> {
        let (mut time, cpu, mut waiting) = (Duration::ZERO, cpu_ms(), 0);
        while self.rows.next < rows {
            let batch = self.rows.fill(BATCH.min(per_commit).min(rows - self.rows.next));
            let start = Instant::now();
            waiting += batch.changes.len() as u64;
            self.sink.write(batch).await?;
            if waiting >= per_commit || self.rows.next == rows {
                self.sink.commit(&self.rows.progress()).await?;
                waiting = 0;
            }
            time += start.elapsed();
        }
        self.look();
        Ok((time.as_secs_f64(), cpu_ms() - cpu))
    }

    /// Waits until upkeep has nothing left to do: what filling left isn't what commits cost.
    async fn rest(&mut self) -> Result<f64> {
        let (start, mut files) = (Instant::now(), 0);
        loop {
            self.sink.settle().await?;
            let now = self.sink.sizes().await?["public.orders"].files;
            if now == files {
                return Ok(start.elapsed().as_secs_f64());
            }
            files = now;
            // Starts the next merge.
            self.sink.commit(&self.rows.progress()).await?;
        }
    }

    /// The table rests until upkeep has nothing left to do for it.
    async fn fold(&mut self) -> Result<Sizes> {
        let mut struck = u64::MAX;
        loop {
            self.sink.commit(&self.rows.progress()).await?;
            self.sink.settle().await?;
            self.look();
            let sizes = self.sink.sizes().await?["public.orders"];
            if sizes.struck == struck {
                return Ok(sizes);
            }
            struck = sizes.struck;
        }
    }

    fn look(&mut self) {
        self.memory_kb = self.memory_kb.max(kilobytes("RssAnon:"));
    }

    /// One commit; returns milliseconds and the bytes of its changes.
    async fn commit(&mut self, changes: usize, rows: u64, keys: Keys) -> Result<(f64, u64)> {
        let batch = self.rows.mixed(changes, rows, keys);
        let (progress, bytes) = (self.rows.progress(), bytes_of(&batch));
        let start = Instant::now();
        let written = self.sink.write(batch).await?;
        self.sink.commit(&progress).await?;
        let took = start.elapsed().as_secs_f64() * 1e3;
        assert_eq!(written.applied, changes as u64);
        self.look();
        Ok((took, bytes))
    }

    async fn commits(&mut self, part: &str, changes: usize, rows: u64, keys: Keys) -> Result<Value> {
        let (mut times, mut cpu) = (Vec::new(), cpu_ms());
        for round in 0..WARM_UP + COMMITS {
            if round == WARM_UP {
                cpu = cpu_ms();
            }
            let (took, _) = self.commit(changes, rows, keys).await?;
            times.extend((round >= WARM_UP).then_some(took));
        }
        let mut said = spread(&mut times);
        let more = json!({
            "part": part, "rows": rows, "changes": changes, "keys": format!("{keys:?}"),
            "cpu_ms": (cpu_ms() - cpu) / COMMITS as f64, "memory_mb": self.memory_kb / 1024, "load": load(),
        });
        merge(&mut said, more);
        Ok(said)
    }

    /// The index: its size, a lookup of 10,000 keys by changes that the guard throws away, and building it anew.
    async fn index(mut self, rows: u64) -> Result<Value> {
        self.sink.settle().await?;
        let sizes = self.sink.sizes().await?["public.orders"];
        let mut times = Vec::new();
        for _ in 0..12 {
            let mut batch = self.rows.mixed(10_000, rows, Keys::Uniform);
            batch.changes.retain(|change| change.op == Op::Update);
            batch.changes.iter_mut().for_each(|change| change.position = Position::new(1, 0));
            let count = batch.changes.len() as f64;
            let start = Instant::now();
            assert_eq!(self.sink.write(batch).await?.applied, 0);
            times.push(start.elapsed().as_secs_f64() * 1e3 * 10_000.0 / count);
        }
        times.drain(..2);
        let Bench { config, sink, rows: made, .. } = self;
        drop(sink);
        let index = config.path.join("public/orders/_tidewire");
        std::fs::remove_dir_all(&index).map_err(|e| Error::io(e, index.display()))?;
        let mut sink = DeltaSink::new(config);
        sink.open().await?;
        let start = Instant::now();
        sink.prepare(made.schema.clone()).await?;
        let rebuild = start.elapsed().as_secs_f64();
        let again = sink.sizes().await?["public.orders"];
        let mut said = spread(&mut times);
        let more = json!({
            "part": "index", "rows": rows, "rebuild_s": rebuild, "files": sizes.files,
            "bytes_a_key": sizes.index_bytes as f64 / sizes.rows as f64,
            "bytes_a_key_rebuilt": again.index_bytes as f64 / again.rows as f64, "load": load(),
        });
        merge(&mut said, more);
        Ok(said)
    }
}

async fn commits(folder: &Path, rows: u64) -> Result<()> {
    let mut bench = Bench::open(Config::new(folder, "bench", "lake")).await?;
    let (seconds, cpu) = bench.fill(rows, 100_000).await?;
    let rested = bench.rest().await?;
    say(json!({
        "part": "fill", "rows": rows, "rows_per_s": rows as f64 / seconds, "cpu_us_per_row": cpu * 1e3 / rows as f64,
        "settled_after_s": rested, "memory_mb": bench.memory_kb / 1024, "load": load(),
    }));
    bench.memory_kb = 0;
    for (changes, keys) in [
        (10_000, Keys::Uniform),
        (10_000, Keys::Zipf),
        (10_000, Keys::Hot),
        (1_000, Keys::Uniform),
        (100_000, Keys::Uniform),
    ] {
        let is_wanted = std::env::args().all(|a| a != "--short") || (changes, keys) == (10_000, Keys::Uniform);
        if is_wanted && changes * 4 < rows as usize {
            say(bench.commits("commits", changes, rows, keys).await?);
        }
    }
    say(bench.index(rows).await?);
    Ok(())
}

async fn touched(folder: &Path, rows: u64, files: u64) -> Result<()> {
    let mut config = Config::new(folder, "bench", "lake");
    // No merges: they would make fewer files of them.
    config.upkeep.merge_files = usize::MAX;
    config.upkeep.vectors_max = usize::MAX;
    let mut bench = Bench::open(config).await?;
    bench.fill(rows, rows.div_ceil(files)).await?;
    let held = bench.sink.sizes().await?["public.orders"].files;
    let mut said = bench.commits("touched", 10_000, rows, Keys::Uniform).await?;
    merge(&mut said, json!({"files": held}));
    say(said);
    Ok(())
}

async fn long(folder: &Path, rows: u64, commits: usize) -> Result<()> {
    let mut config = Config::new(folder, "bench", "lake");
    let (clock, ahead) = (config.clock.clone(), Arc::new(AtomicI64::new(0)));
    let later = ahead.clone();
    config.clock = Arc::new(move || clock() + later.load(Relaxed));
    let rest = config.upkeep.rest;
    if let Some(part) = std::env::args().find_map(|a| a.strip_prefix("--struck=")?.parse().ok()) {
        config.upkeep.struck_part = part;
    }
    let mut bench = Bench::open(config).await?;
    bench.fill(rows, 100_000).await?;
    bench.rest().await?;
    say(json!({"part": "before", "rows": rows, "folder": sizes_in(&folder.join("public/orders"))}));
    wait();
    let (mut times, mut bytes, written) = (Vec::new(), 0, written_bytes());
    let (mut struck, mut files, cpu) = (Vec::new(), Vec::new(), cpu_ms());
    for _ in 0..commits {
        let (took, of_changes) = bench.commit(10_000, rows, Keys::Uniform).await?;
        times.push(took);
        bytes += of_changes;
        let sizes = bench.sink.sizes().await?["public.orders"];
        struck.push(sizes.struck as f64 / (sizes.rows + sizes.struck) as f64);
        files.push(sizes.files);
    }
    let cpu = (cpu_ms() - cpu) / commits as f64;
    let written_while = written_bytes() - written;
    bench.sink.settle().await?;
    let sizes = bench.sink.sizes().await?["public.orders"];
    let mut said = spread(&mut times);
    let more = json!({
        "part": "long", "rows": rows, "commits": commits, "bytes_of_changes": bytes, "bytes_written": written_while,
        "written_per_byte": written_while as f64 / bytes as f64, "live_files": sizes.files, "load": load(),
        "memory_mb": bench.memory_kb / 1024, "folder": sizes_in(&folder.join("public/orders")), "cpu_ms": cpu,
        "struck_mean": struck.iter().sum::<f64>() / commits as f64, "struck_max": struck.iter().copied().fold(0.0, f64::max),
        "struck_last": struck.last(), "files_mean": files.iter().sum::<usize>() as f64 / commits as f64,
        "files_max": files.iter().max(),
    });
    merge(&mut said, more);
    say(said);
    wait();
    let (start, written, cpu) = (Instant::now(), written_bytes(), cpu_ms());
    ahead.fetch_add(rest.as_micros() as i64, Relaxed);
    let sizes = bench.fold().await?;
    let written = written_bytes() - written;
    say(json!({
        "part": "rested", "seconds": start.elapsed().as_secs_f64(), "cpu_ms": cpu_ms() - cpu, "bytes_written": written,
        "written_per_byte": (written_while + written) as f64 / bytes as f64, "live_files": sizes.files,
        "struck": sizes.struck as f64 / (sizes.rows + sizes.struck) as f64, "memory_mb": bench.memory_kb / 1024,
        "folder": sizes_in(&folder.join("public/orders")), "load": load(),
    }));
    Ok(())
}

/// Somebody measures the table as it is now.
fn wait() {
    if std::env::args().any(|a| a == "--wait") {
        let _ = std::io::stdin().read_line(&mut String::new());
    }
}

/// Number and bytes of the files in a table's folder, by kind.
fn sizes_in(table: &Path) -> Value {
    let sum = |folder: PathBuf, end: &str| {
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let sizes: Vec<u64> = files
            .filter(|f| f.file_name().to_string_lossy().ends_with(end))
            .filter_map(|f| f.metadata().ok().map(|m| m.len()))
            .collect();
        json!({"files": sizes.len(), "bytes": sizes.iter().sum::<u64>()})
    };
    json!({
        "data": sum(table.into(), ".parquet"), "vectors": sum(table.into(), ".bin"),
        "log": sum(table.join("_delta_log"), ".json"), "checkpoints": sum(table.join("_delta_log"), ".parquet"),
        "index": sum(table.join("_tidewire"), ".idx"),
    })
}

fn spread(times: &mut [f64]) -> Value {
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() as f64 * part) as usize).min(times.len() - 1)];
    json!({"median_ms": at(0.5), "p90_ms": at(0.9), "p99_ms": at(0.99), "max_ms": at(1.0)})
}

fn merge(into: &mut Value, more: Value) {
    if let (Some(into), Value::Object(more)) = (into.as_object_mut(), more) {
        into.extend(more);
    }
}

fn say(value: Value) {
    println!("{value}");
}

fn proc_number(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0)
}

fn kilobytes(name: &str) -> u64 {
    proc_number("/proc/self/status", name)
}

/// What the process gave to the disk, caches left out.
fn written_bytes() -> u64 {
    proc_number("/proc/self/io", "write_bytes:")
}

fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|t| t.parse().ok()).unwrap_or(0.0)
}

/// CPU time of the process, all threads, in milliseconds: what it costs whatever else the machine does.
fn cpu_ms() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> =
        stat.rsplit(')').next().unwrap_or_default().split(' ').filter_map(|f| f.parse().ok()).collect();
    // After the command's name: state, then numbers; utime and stime are fields 14 and 15, in ticks of 10 ms.
    fields.get(10..12).map_or(0.0, |ticks| ticks.iter().sum::<f64>() * 10.0)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let kept = words.iter().position(|w| w == "--folder").and_then(|at| words.get(at + 1)).map(PathBuf::from);
    let folder = std::env::temp_dir().join(format!("tidewire-bench-delta-{}", std::process::id()));
    let folder = kept.clone().unwrap_or(folder);
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let part = words.first().map(String::as_str).unwrap_or("commits");
    let done = match (part, &numbers[..]) {
        ("touched", [rows, files]) => touched(&folder, *rows, *files).await,
        ("long", [rows, count]) => long(&folder, *rows, *count as usize).await,
        ("commits", sizes) => {
            for rows in if sizes.is_empty() { &[1_000_000, 5_000_000] } else { sizes } {
                commits(&folder, *rows).await?;
                let _ = std::fs::remove_dir_all(&folder);
            }
            Ok(())
        }
        _ => Err(Error::invalid("say: commits ROWS …, touched ROWS FILES, or long ROWS COMMITS")),
    };
    if kept.is_none() {
        let _ = std::fs::remove_dir_all(&folder);
    }
    done
}
