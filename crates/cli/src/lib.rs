//! Owns: the binary `tidewire`: arguments, configuration, terminal output, the demo, and `catalog.rs`.
//! May import: every crate of the workspace; only `catalog.rs` names adapters.
//! Never imports: nothing is above it. It holds no logic of the data path.

mod args;
mod catalog;
mod commands;
mod config;
mod connector;
mod connectors;
mod demo;
mod exit;
mod local;
mod memory;
mod offsets;
mod progress;
mod secret;
mod serve;
mod signal_file;
mod signals;
mod terminal;

use args::{Cli, Command, Dlq, LogChoice, Offsets, Slot, Table, Topic};
use clap::Parser;
use config::{Config, LogForm};
use exit::Answer;
use std::path::Path;
use std::process::ExitCode;
use tidewire_change::{Error, Result};
use tracing_subscriber::EnvFilter;

#[cfg(feature = "fuzz")]
pub mod outside {
    pub use super::config::outside::configuration;
}

/// The whole program, from its arguments to its exit code.
pub fn main() -> ExitCode {
    memory::bound_what_is_kept();
    end_quietly_without_a_reader();
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(answer(&cli));
            // A blocking task that still waits for a disk or a lock must not hold up the end.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(Error::io(error, "the async runtime")),
    };
    match outcome {
        Ok(answer) => answer.into(),
        Err(error) => exit::report(&error),
    }
}

/// `tidewire status | head`: nobody reads the rest, which is no fault of ours.
fn end_quietly_without_a_reader() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        if text.starts_with("failed printing to stdout") && text.contains("Broken pipe") {
            std::process::exit(0);
        }
        default(panic);
    }));
}

async fn answer(cli: &Cli) -> Result<Answer> {
    match &cli.command {
        Command::Version => println!("tidewire {}", env!("CARGO_PKG_VERSION")),
        Command::ConfigReference => print!("{}", config::reference()),
        Command::Init(args) => {
            log(cli, LogForm::Text)?;
            return commands::init::init(args).await;
        }
        Command::Demo(args) => {
            log(cli, LogForm::Text)?;
            return demo::demo(args).await;
        }
        Command::Plan(args) => {
            log(cli, LogForm::Text)?;
            return commands::plan::run(args);
        }
        Command::Serve(args) => {
            log(cli, LogForm::Text)?;
            return commands::serve::run(args).await;
        }
        Command::Registry(args) => {
            log(cli, LogForm::Text)?;
            return commands::registry::run(args).await;
        }
        Command::Check(args) => return commands::check::run(&load(cli, &args.config)?, args).await,
        Command::Run(args) => return commands::run::run(&load(cli, &args.config)?, args).await,
        Command::Capture(args) => return commands::run::capture(&load(cli, &args.config)?, args).await,
        Command::Deliver(args) => return commands::run::deliver(&load(cli, &args.config)?, args).await,
        Command::Status(args) => return commands::status::run(&load(cli, &args.config)?, args).await,
        Command::Lag(args) => return commands::lag::run(&load(cli, &args.config)?, args).await,
        Command::Replay(args) => return commands::replay::run(&load(cli, &args.config)?, args).await,
        Command::Dlq(Dlq::List(args)) => return commands::dlq::list(&load(cli, &args.config)?, args).await,
        Command::Dlq(Dlq::Show(args)) => return commands::dlq::show(&load(cli, &args.config)?, args).await,
        Command::Dlq(Dlq::Replay(args)) => return commands::dlq::replay(&load(cli, &args.config)?, args).await,
        Command::Dlq(Dlq::Drop(args)) => return commands::dlq::drop(&load(cli, &args.config)?, args).await,
        Command::Offsets(Offsets::Import(args)) => {
            return commands::offsets::import(&load(cli, &args.config)?, args).await
        }
        Command::Offsets(Offsets::Export(args)) => {
            return commands::offsets::export(&load(cli, &args.config)?, args).await
        }
        Command::Reconcile(args) => return commands::reconcile::run(&load(cli, &args.config)?, args).await,
        Command::Snapshot(args) => return commands::snapshot::run(&load(cli, &args.config)?, args).await,
        Command::Sql(args) => return commands::sql::run(&load(cli, &args.config)?, args).await,
        Command::Topic(Topic::List(args)) => return commands::topic::list(&load(cli, &args.config)?, args),
        Command::Topic(Topic::Read(args)) => return commands::topic::read(&load(cli, &args.config)?, args),
        Command::Cut(args) => return commands::cut::run(&load(cli, &args.config)?, args).await,
        Command::Table(Table::Describe(args)) => {
            return commands::table::describe(&load(cli, &args.config)?, args).await
        }
        Command::Table(Table::Maintain(args)) => {
            return commands::table::maintain(&load(cli, &args.config)?, args).await
        }
        Command::Table(Table::Vacuum(args)) => return commands::table::vacuum(&load(cli, &args.config)?, args).await,
        Command::Slot(Slot::List(args)) => return commands::slot::list(&load(cli, &args.config)?, args).await,
        Command::Slot(Slot::Drop(args)) => return commands::slot::drop_slot(&load(cli, &args.config)?, args).await,
    }
    Ok(Answer::Yes)
}

/// Reads the configuration and starts the log as it says.
fn load(cli: &Cli, path: &Path) -> Result<Config> {
    let config = match config::load(path) {
        Ok(config) => config,
        Err(error) => {
            log(cli, LogForm::Text)?;
            return Err(error);
        }
    };
    log(cli, config.log)?;
    Ok(config)
}

/// Log lines go to stderr; `--log` wins over the configuration.
fn log(cli: &Cli, form: LogForm) -> Result<()> {
    let filter = EnvFilter::try_new(&cli.log_level).map_err(|e| {
        Error::invalid(format!("--log-level {:?} can't be understood: {e}", cli.log_level))
            .hint("say error, warn, info, debug or trace, or per part: warn,tidewire_postgres=debug")
    })?;
    // It tells each try to reach an object store as an error of its own; the sink tells it once.
    let filter = filter.add_directive("rustls_platform_verifier=off".parse().expect("a directive"));
    let form = match cli.log {
        Some(LogChoice::Text) => LogForm::Text,
        Some(LogChoice::Json) => LogForm::Json,
        None => form,
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match form {
        LogForm::Text => lines.with_ansi(terminal::is_live()).init(),
        LogForm::Json => {
            lines.json().init();
            terminal::set_json();
        }
    }
    Ok(())
}
