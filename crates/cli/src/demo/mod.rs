//! `tidewire demo`: a private PostgreSQL with a shop in it, kept changing, copied and proved equal.

mod folder;
mod load;
mod report;
mod server;
mod shop;
mod watch;

use crate::args::Demo;
use crate::catalog;
use crate::commands::reconcile::{compare, Wanted};
use crate::config::{self, Config};
use crate::exit::Answer;
use crate::progress::{Progress, Show};
use crate::serve;
use crate::signals;
use folder::Folder;
use load::Load;
use report::Report;
use server::Server;
use std::time::{Duration, Instant};
use tidewire_change::{Error, Result};
use tidewire_pgwire::{Connection, Mode};
use tidewire_pipeline::Running;
use watch::Watch;

pub async fn demo(args: &Demo) -> Result<Answer> {
    let folder = Folder::make(args)?;
    let answer = tokio::select! {
        answer = play(args, &folder) => answer,
        signal = signals::first() => signal.map(|()| Answer::No),
    };
    folder.end();
    answer
}

async fn play(args: &Demo, folder: &Folder) -> Result<Answer> {
    let began = Instant::now();
    let place = folder.path.join("postgres");
    let server = tokio::task::spawn_blocking(move || Server::start(&place));
    let server = server.await.map_err(|e| Error::bug("the starter of PostgreSQL panicked").caused_by(e))??;
    eprintln!("PostgreSQL {} on 127.0.0.1:{}, {:.1} s", server.version, server.port, began.elapsed().as_secs_f64());
    make_databases(&server, args).await?;
    let shop = server.url("shop");
    load::fill(&shop, args.rows).await?;
    eprintln!(
        "{} rows made, {:.1} s",
        crate::terminal::thousands(args.rows + shop::CARTS),
        began.elapsed().as_secs_f64()
    );

    let config = configure(args, folder, &server)?;
    let running = catalog::start(&config).await?;
    let served = serve::serve(running.clone(), serve::bind(&config).await?, &config, catalog::Part::Whole)?;
    let report = tokio::select! {
        report = prove(args, &config, &running, &shop, began) => report,
        // It ends by itself only when something is beyond mending.
        ended = running.wait() => Err(ended.err().unwrap_or_else(|| Error::bug("the pipeline ended by itself"))),
    };
    running.stop().await?;
    served.stop().await;
    let report = report?;
    if args.json {
        println!("{}", report.json(folder));
    } else {
        print!("{}", report.text(folder));
    }
    Ok(if report.is_equal() { Answer::Yes } else { Answer::No })
}

async fn make_databases(server: &Server, args: &Demo) -> Result<()> {
    let config = tidewire_pgwire::Config::parse(&server.url("postgres"))?;
    let mut connection = Connection::connect(&config, Mode::Sql).await?;
    connection.execute("CREATE DATABASE shop").await?;
    if args.replica {
        connection.execute("CREATE DATABASE replica").await?;
    }
    connection.close().await;
    Ok(())
}

/// Writes pipeline.yaml as a user would, and reads it as `run` does.
fn configure(args: &Demo, folder: &Folder, server: &Server) -> Result<Config> {
    let mut text = format!(
        "source: {{ postgres: {{ url: \"{}\", tables: [\"shop.*\"] }} }}\nsinks:\n  lake: {{ delta: {{ path: ./lake }} }}\n",
        server.url("shop")
    );
    if args.replica {
        text.push_str(&format!("  replica: {{ postgres: {{ url: \"{}\" }} }}\n", server.url("replica")));
    }
    text.push_str("http: 127.0.0.1:0\n");
    let path = folder.path.join("pipeline.yaml");
    std::fs::write(&path, text).map_err(|e| Error::io(e, path.display()))?;
    config::load(&path)
}

/// Lets the load run, waits until the copies have it all, and compares.
async fn prove(args: &Demo, config: &Config, running: &Running, shop: &str, began: Instant) -> Result<Report> {
    let length = Duration::from_secs(args.seconds);
    let load = Load::start(shop, args.rows, args.rate, length)?;
    let done = load.done.clone();
    let mut watch = Watch::new(began);
    let mut progress = (!args.json).then(|| Progress::new(Show::All));
    let mut tick = tokio::time::interval(watch::PAUSE);
    let load_began = Instant::now();
    while load_began.elapsed() < length {
        tick.tick().await;
        let status = running.status();
        watch.look(&status, true);
        if let Some(progress) = &mut progress {
            progress.update(&status);
        }
    }
    load.stop().await?;
    let stopped = Instant::now();
    let caught_up = running.caught_up();
    tokio::pin!(caught_up);
    loop {
        tokio::select! {
            result = &mut caught_up => break result?,
            _ = tick.tick() => {
                let status = running.status();
                watch.look(&status, false);
                if let Some(progress) = &mut progress {
                    progress.update(&status);
                }
            }
        }
    }
    watch.look(&running.status(), false);
    if let Some(progress) = &mut progress {
        progress.clear();
    }
    let caught_up_after = stopped.elapsed();
    let compared = compare(config, running, &Wanted::default(), &mut |_| {}).await?;
    if let Some(error) = compared.failed.or(compared.missing.into_iter().next()) {
        return Err(error);
    }
    Ok(Report::new(compared.found, &watch, &done, length, caught_up_after))
}
