//! The binary: all of it is in the library, which the fuzz targets see, too.

fn main() -> std::process::ExitCode {
    tidewire_cli::main()
}
