//! Fills the demo's database and keeps changing it.

use super::shop::{self, Dice, Shopper, Sizes};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Error, Result};
use tidewire_pgwire::{sqlstate, Config, Connection, Mode};
use tokio::task::JoinHandle;
use tokio::time::Instant;

const WORKERS: u64 = 2;
const DEADLOCK: &str = "40P01";

/// Makes the tables and their rows, on two connections at once.
pub async fn fill(url: &str, rows: u64) -> Result<()> {
    let config = Config::parse(url)?;
    let mut first = Connection::connect(&config, Mode::Sql).await?;
    first.execute(shop::TABLES).await?;
    let mut second = Connection::connect(&config, Mode::Sql).await?;
    let [one, two] = shop::fill(&Sizes::of(rows));
    tokio::try_join!(first.execute(&one), second.execute(&two))?;
    first.execute("ANALYZE").await?;
    first.close().await;
    second.close().await;
    Ok(())
}

/// What the load has done so far.
#[derive(Default)]
pub struct Done {
    pub changes: AtomicU64,
    pub transactions: AtomicU64,
}

/// A running load.
pub struct Load {
    stop: Arc<AtomicBool>,
    pub done: Arc<Done>,
    tasks: Vec<JoinHandle<Result<()>>>,
}

impl Load {
    /// Starts the workers, and what happens once at parts of `length`. `rate`: changes a second, all workers together.
    pub fn start(url: &str, rows: u64, rate: u64, length: Duration) -> Result<Load> {
        let config = Config::parse(url)?;
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(Done::default()));
        let mut tasks: Vec<_> = (0..WORKERS)
            .map(|number| {
                let shopper = Shopper {
                    dice: Dice::new(number + 1),
                    sizes: Sizes::of(rows),
                    next_id: 1_000_000_000 + number * 400_000_000,
                };
                tokio::spawn(work(config.clone(), shopper, rate.div_ceil(WORKERS), stop.clone(), done.clone()))
            })
            .collect();
        tasks.push(tokio::spawn(events(config, length, stop.clone(), done.clone())));
        Ok(Load { stop, done, tasks })
    }

    /// Lets every worker end its transaction.
    pub async fn stop(self) -> Result<()> {
        self.stop.store(true, Relaxed);
        for task in self.tasks {
            task.await
                .map_err(|e| Error::bug("a worker of the load panicked").caused_by(e))?
                .map_err(|e| e.context("load"))?;
        }
        Ok(())
    }
}

async fn work(config: Config, mut shopper: Shopper, rate: u64, stop: Arc<AtomicBool>, done: Arc<Done>) -> Result<()> {
    let mut connection = Connection::connect(&config, Mode::Sql).await?;
    let began = Instant::now();
    let mut own = 0;
    while !stop.load(Relaxed) {
        let statements = shopper.transaction();
        match transaction(&mut connection, &statements).await {
            Ok(changes) => {
                own += changes;
                done.changes.fetch_add(changes, Relaxed);
                done.transactions.fetch_add(1, Relaxed);
            }
            // Two workers wanted the same rows in another order: the server has rolled one back.
            Err(error) if sqlstate(&error).is_some_and(|state| state == DEADLOCK) => {
                connection.execute("ROLLBACK").await?
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep_until(began + Duration::from_secs_f64(own as f64 / rate as f64)).await;
    }
    connection.close().await;
    Ok(())
}

async fn transaction(connection: &mut Connection, statements: &[String]) -> Result<u64> {
    if let [one] = statements {
        return Ok(connection.query(one).await?.affected);
    }
    connection.execute("BEGIN").await?;
    let mut changes = 0;
    for statement in statements {
        changes += connection.query(statement).await?.affected;
    }
    connection.execute("COMMIT").await?;
    Ok(changes)
}

async fn events(config: Config, length: Duration, stop: Arc<AtomicBool>, done: Arc<Done>) -> Result<()> {
    let mut connection = Connection::connect(&config, Mode::Sql).await?;
    let began = Instant::now();
    for (percent, statement) in shop::EVENTS {
        let at = began + length.mul_f64(*percent as f64 / 100.0);
        while Instant::now() < at {
            if stop.load(Relaxed) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20).min(at - Instant::now())).await;
        }
        let changes = loop {
            match connection.query(statement).await {
                Ok(rows) => break rows.affected,
                Err(error) if sqlstate(&error).is_some_and(|state| state == DEADLOCK) => continue,
                Err(error) => return Err(error),
            }
        };
        done.changes.fetch_add(changes, Relaxed);
    }
    connection.close().await;
    Ok(())
}
