//! A table that is written anew beside the one that readers see. The files of the new one stand in the same log, each as a
//! domain of Tidewire's own, which readers pass over; one commit then adds all of them and removes those of the old one.

use super::action::{Action, Add, DomainMetadata};
use super::State;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidewire_change::{Error, Position, Result};

/// The domain that says that the table is written anew, and since where.
const DOMAIN: &str = "tidewire.next";
/// Before the path of each file of the new table.
const FILE: &str = "tidewire.next/";

/// While a table is written anew: `State::files` are the new one's.
#[derive(Clone, Debug)]
pub struct Rewrite {
    /// Rows of the old table lie at or below; what the source has read since makes the new one.
    pub since: Position,
    /// What readers see.
    pub shown: BTreeMap<Arc<str>, Add>,
}

/// What an action says of a table that is written anew.
pub(super) enum Word {
    Since(Position),
    Over,
    Has(Box<Add>),
    HasNot(Arc<str>),
}

pub(super) fn word(domain: &DomainMetadata, place: &str) -> Result<Option<Word>> {
    let bad = |e: serde_json::Error| Error::invalid(format!("{place}: {} can't be read: {e}", domain.domain));
    if domain.domain == DOMAIN {
        return match domain.removed {
            true => Ok(Some(Word::Over)),
            false => serde_json::from_str(&domain.configuration).map(|at| Some(Word::Since(at))).map_err(bad),
        };
    }
    let Some(path) = domain.domain.strip_prefix(FILE) else { return Ok(None) };
    if domain.removed {
        return Ok(Some(Word::HasNot(path.into())));
    }
    let add: Add = serde_json::from_str(&domain.configuration).map_err(bad)?;
    Action::from(add.clone()).check_paths(place)?;
    Ok(Some(Word::Has(Box::new(add))))
}

/// The domains that say what a rewrite holds.
pub(super) fn domains(rewrite: &Rewrite, files: &BTreeMap<Arc<str>, Add>) -> Result<Vec<DomainMetadata>> {
    let mut domains = vec![since(rewrite.since)?];
    for add in files.values() {
        domains.push(has(add)?);
    }
    Ok(domains)
}

fn since(at: Position) -> Result<DomainMetadata> {
    let configuration = serde_json::to_string(&at).map_err(no_json)?;
    Ok(DomainMetadata { domain: DOMAIN.into(), configuration, removed: false })
}

fn has(add: &Add) -> Result<DomainMetadata> {
    let configuration = serde_json::to_string(add).map_err(no_json)?;
    Ok(DomainMetadata { domain: format!("{FILE}{}", add.path), configuration, removed: false })
}

fn gone(domain: String) -> Action {
    DomainMetadata { domain, configuration: String::new(), removed: true }.into()
}

fn no_json(e: serde_json::Error) -> Error {
    Error::bug("a domain of the log has no JSON form").caused_by(e)
}

/// Takes adds and removes out of a commit's actions: by path what each file is after it.
fn fates(actions: &mut Vec<Action>) -> BTreeMap<Arc<str>, Option<Add>> {
    let mut fates: BTreeMap<Arc<str>, Option<Add>> = BTreeMap::new();
    for action in actions.iter_mut() {
        if let Some(remove) = action.remove.take() {
            fates.entry(remove.path).or_insert(None);
        } else if let Some(add) = action.add.take() {
            fates.insert(add.path.clone(), Some(add));
        }
    }
    actions.retain(Action::says_something);
    fates
}

/// A commit to the new table, from one to the table itself: no reader sees what it does. `from`: the new table begins.
pub fn hidden(state: &State, mut actions: Vec<Action>, from: Option<Position>) -> Result<Vec<Action>> {
    let fates = fates(&mut actions);
    if let Some(from) = from {
        actions.push(since(from)?.into());
    }
    if state.rewrite.is_none() {
        // It begins with what this commit leaves of the old one.
        for add in state.files.values().filter(|add| !fates.contains_key(&add.path)) {
            actions.push(has(add)?.into());
        }
    }
    for (path, fate) in fates {
        match fate {
            Some(add) => actions.push(has(&add)?.into()),
            None if state.rewrite.is_some() => actions.push(gone(format!("{FILE}{path}"))),
            None => {}
        }
    }
    Ok(actions)
}

/// The commit after which readers see the new table, and what `actions` do to it.
pub fn shown(state: &State, mut actions: Vec<Action>, millis: i64) -> Vec<Action> {
    let Some(rewrite) = &state.rewrite else { return actions };
    let fates = fates(&mut actions);
    let mut files = state.files.clone();
    for (path, fate) in fates {
        match fate {
            Some(add) => drop(files.insert(path, add)),
            None => drop(files.remove(&path)),
        }
    }
    let stays = |add: &Add, there: &BTreeMap<Arc<str>, Add>| {
        there.get(&add.path).is_some_and(|other| other.deletion_vector == add.deletion_vector)
    };
    let old = rewrite.shown.values().filter(|add| !stays(add, &files));
    actions.extend(old.map(|add| Action::from(add.remove(millis, true))));
    let new = files.values().filter(|add| !stays(add, &rewrite.shown)).cloned();
    actions.extend(new.map(|add| Action::from(Add { data_change: true, ..add })));
    actions.extend(state.files.keys().map(|path| gone(format!("{FILE}{path}"))));
    actions.push(gone(DOMAIN.into()));
    actions
}
