//! Owns: the binary `tidewire`: arguments, configuration, terminal output, the demo, and `catalog.rs`.
//! May import: every crate of the workspace; only `catalog.rs` names adapters.
//! Never imports: nothing is above it. It holds no logic of the data path.

mod args;
mod config;
mod exit;
mod secret;

use clap::Parser;
fn main() {
    let cli = args::Cli::parse();
    if let args::Command::ConfigReference = cli.command {
        print!("{}", config::reference());
    }
}
