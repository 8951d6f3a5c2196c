//! `tidewire check`: is the source ready, are the sinks reachable?

use crate::args::Plain;
use crate::catalog;
use crate::config::{Config, SourceConfig};
use crate::exit::{self, Answer};
use crate::serve;
use tidewire_change::{Error, ErrorKind, Result};
use tidewire_pipeline::{check, check_folder, Finding, Severity};

#[derive(Default)]
struct Found {
    findings: Vec<Finding>,
    /// Of whom, and what.
    faults: Vec<(String, Error)>,
    /// Somebody could not be asked.
    away: bool,
}

impl Found {
    fn fault(&mut self, subject: &str, error: Error) {
        self.away |= error.kind() == ErrorKind::Unavailable;
        self.faults.push((subject.to_string(), error));
    }

    fn has_failed(&self, subject: &str) -> bool {
        self.faults.iter().any(|(at, _)| at == subject)
    }
}

pub async fn run(config: &Config, args: &Plain) -> Result<Answer> {
    let mut found = Found::default();
    match &config.source {
        SourceConfig::Debezium(source) => match catalog::look_at_topics(config, source).await {
            Ok(topics) if topics.is_empty() => found.findings.push(no_topic(&source.topics)),
            Ok(_) => {}
            Err(error) => found.fault("source", error),
        },
        SourceConfig::Postgres(_) => database(config, &mut found).await?,
    }
    let mut unfit = catalog::unfit(config).await;
    found.findings.extend(unfit.notes.drain(..).map(|(subject, what)| does_nothing(subject, what)));
    for (subject, looked) in catalog::folders(config) {
        match looked {
            Ok(facts) => found.findings.extend(check_folder(&facts)),
            Err(error) => found.faults.push((subject, error)),
        }
    }
    if let Err(error) = catalog::reach_bus(config).await {
        found.fault("bus", error);
    }
    // Whoever writes a sink has reached it, and may be the only one that can open it.
    let written = serve::written(config)?;
    for sink in &config.sinks {
        let subject = format!("sink {}", sink.name);
        if found.has_failed(&subject) || written.contains(&sink.name) {
            continue;
        }
        match catalog::writer(config, sink).await {
            Ok(Some(writer)) if writer.is_own => {
                found.findings.push(is_written(subject, &writer));
                continue;
            }
            // Whoever else writes it is told of when it is opened.
            Ok(_) | Err(_) => {}
        }
        if let Err(error) = catalog::reach(config, sink).await {
            found.fault(&subject, error);
        }
    }
    // What was said already isn't said twice.
    unfit.faults.retain(|(subject, error)| {
        let same_table = |told: &Error| error.table().is_some() && told.table() == error.table();
        let is_same = |told: &Error| told.message() == error.message() || same_table(told);
        !found.faults.iter().any(|(at, told)| at == subject && is_same(told))
    });
    unfit.faults.into_iter().for_each(|(subject, error)| found.fault(&subject, error));
    let Found { findings, faults, away } = found;
    let is_ready = faults.is_empty() && findings.iter().all(|finding| finding.severity < Severity::Critical);
    print(args.json, &findings, &faults, is_ready);
    Ok(match is_ready {
        true => Answer::Yes,
        // What could not be asked may have more to say.
        false if away => Answer::Unavailable,
        false => Answer::No,
    })
}

async fn database(config: &Config, found: &mut Found) -> Result<()> {
    let facts = match catalog::facts(config).await {
        Ok(facts) => facts,
        Err(error) => {
            found.fault("source", error);
            return Ok(());
        }
    };
    found.findings = check(&facts);
    let checks = [
        catalog::targets_are_apart(config, &facts),
        catalog::publication_is_whole(config, &facts),
        catalog::slot_can_be_made(config, &facts),
        catalog::slot_is_free(config).await,
    ];
    found.findings.extend(catalog::unknown_names(config).await?.into_iter().map(nobody_has));
    found.faults.extend(checks.into_iter().filter_map(Result::err).map(|error| ("source".to_string(), error)));
    Ok(())
}

fn no_topic(names: &[String]) -> Finding {
    Finding {
        severity: Severity::Warning,
        subject: "source".to_string(),
        since: None,
        what: format!("no topic is called {}", names.join(", ")),
        why: "there is nothing to read; a topic that comes later is read then".to_string(),
        next: "compare source.debezium.topics with the topics' names (kafka-topics --list)".to_string(),
    }
}

fn is_written(subject: String, writer: &catalog::SinkWriter) -> Finding {
    let from = if writer.address.is_empty() { String::new() } else { format!(" from {}", writer.address) };
    Finding {
        severity: Severity::Note,
        subject,
        since: None,
        what: format!("a process of this pipeline writes it just now (session {}{from})", writer.pid),
        why: "the pipeline runs elsewhere, or with another data_dir: it has reached the sink, which has one writer at a time".to_string(),
        next: "nothing; a second process would wait until that one ends".to_string(),
    }
}

fn does_nothing(subject: String, what: String) -> Finding {
    Finding {
        severity: Severity::Warning,
        subject,
        since: None,
        what,
        why: "what the setting asks for isn't so, or may cost rows".to_string(),
        next: "take the setting out, or do what it needs: docs/configuration.md".to_string(),
    }
}

fn nobody_has(what: String) -> Finding {
    Finding {
        severity: Severity::Warning,
        subject: "configuration".to_string(),
        since: None,
        what,
        why: "no table that is followed has it now: the setting does nothing".to_string(),
        next: "correct the name, or take it out; for a table that is still to come nothing".to_string(),
    }
}

fn print(json: bool, findings: &[Finding], faults: &[(String, Error)], is_ready: bool) {
    if json {
        let faults = faults.iter().map(|(subject, error)| {
            serde_json::json!({"subject": subject, "message": error.to_string(), "exit_code": exit::code(error.kind())})
        });
        let faults = faults.collect::<Vec<_>>();
        println!("{}", serde_json::json!({"ready": is_ready, "findings": findings, "errors": faults}));
        return;
    }
    for (subject, error) in faults {
        println!("CRITICAL: {subject}: {}", error.message());
        if let Some(hint) = error.hint_text() {
            println!("  do:  {hint}");
        }
    }
    findings.iter().for_each(|finding| println!("{finding}"));
    if is_ready {
        println!("ready");
    }
}
