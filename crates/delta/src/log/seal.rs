//! What proves that the log is as Tidewire wrote it: each commit of ours holds a digest of its own bytes, and names the commit
//! of ours before it with that one's digest. So a commit that was emptied, cut, edited or put back from elsewhere is found when
//! the log is read. Commits of earlier versions hold none, and are proved by those that follow them only.

use super::action::Action;
use super::foreign::is_ours;
use crate::store::RESTORE;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use tidewire_change::{Error, Result};
use tidewire_flow::key_hash128;

/// In `commitInfo`: the digest of the commit's bytes, with these digits as `BLANK`.
const SEAL: &str = "tidewireSeal";
/// In `commitInfo`: version and digest of the commit of ours that came before.
const FOLLOWS: &str = "tidewireFollows";
const BLANK: &str = "00000000000000000000000000000000";

/// A commit of ours in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub version: u64,
    pub digest: u128,
}

impl Link {
    pub fn parse(text: &str) -> Option<Link> {
        let (version, digest) = text.split_once(' ')?;
        Some(Link { version: version.parse().ok()?, digest: u128::from_str_radix(digest, 16).ok()? })
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:032x}", self.version, self.digest)
    }
}

/// The bytes of a commit that follows `before`, and their digest.
pub fn sealed(actions: &[Action], before: Option<Link>) -> Result<(Vec<u8>, u128)> {
    let mut bytes = Vec::with_capacity(actions.len() * 512);
    let mut write = |action: &Action| -> Result<()> {
        serde_json::to_writer(&mut bytes, action)
            .map_err(|e| Error::bug("a log action has no JSON form").caused_by(e))?;
        bytes.push(b'\n');
        Ok(())
    };
    for action in actions {
        match action.commit_info.as_ref().and_then(Value::as_object) {
            Some(info) => {
                let mut info = info.clone();
                if let Some(before) = before {
                    info.insert(FOLLOWS.into(), before.to_string().into());
                }
                info.insert(SEAL.into(), BLANK.into());
                write(&Action { commit_info: Some(info.into()), ..Action::default() })?;
            }
            None => write(action)?,
        }
    }
    let digest = key_hash128(&bytes);
    let blank = format!("\"{SEAL}\":\"{BLANK}\"");
    let at = bytes.windows(blank.len()).position(|part| part == blank.as_bytes());
    let at = at.ok_or_else(|| Error::bug("a commit without commitInfo"))? + SEAL.len() + 4;
    bytes[at..at + BLANK.len()].copy_from_slice(format!("{digest:032x}").as_bytes());
    Ok((bytes, digest))
}

/// Is there a seal? Then it is a commit of ours, whatever else it says.
pub fn is_sealed(info: &Value) -> bool {
    info.get(SEAL).is_some()
}

/// The commits of a log as they are read, one after the other.
#[derive(Default)]
pub struct Chain {
    digests: BTreeMap<u64, u128>,
    pub last: Option<Link>,
}

impl Chain {
    /// One of which only the last commit is known.
    pub fn behind(last: Option<Link>) -> Chain {
        Chain { digests: last.iter().map(|link| (link.version, link.digest)).collect(), last }
    }

    /// Takes the next commit. `place`: of any version's file.
    pub fn take(
        &mut self,
        version: u64,
        bytes: &[u8],
        actions: &[Action],
        place: impl Fn(u64) -> String,
    ) -> Result<()> {
        let damaged = |version: u64, what: &str| {
            Err(Error::invalid(format!("{} isn't what was committed: {what}", place(version))).hint(RESTORE))
        };
        if actions.is_empty() {
            return damaged(version, "it is empty");
        }
        let info = actions.iter().find_map(|action| action.commit_info.as_ref());
        let word = |name: &str| info?.get(name)?.as_str();
        let seal = word(SEAL).filter(|seal| seal.len() == BLANK.len());
        let digest = match seal {
            Some(seal) => key_hash128(&blanked(bytes, seal)),
            None => key_hash128(bytes),
        };
        let is_copy = word(FOLLOWS).is_none() && self.digests.values().any(|other| *other == digest);
        self.digests.insert(version, digest);
        if is_copy {
            return damaged(version, "it is another version's");
        }
        if info.is_some_and(is_sealed) && seal != Some(&*format!("{digest:032x}")) {
            return damaged(version, "lines are missing from it, or were changed");
        }
        let domain = |a: &Action| a.domain_metadata.as_ref().is_some_and(|d| d.domain.starts_with("tidewire"));
        if info.is_none() && actions.iter().any(domain) {
            return damaged(version, "its commitInfo is missing");
        }
        if !is_ours(actions) {
            return Ok(());
        }
        if let Some(before) = word(FOLLOWS) {
            let Some(before) = Link::parse(before) else { return damaged(version, "what it follows can't be read") };
            if self.last.is_some_and(|last| last.version > before.version) || before.version >= version {
                return damaged(version, "it is another version's");
            }
            if self.digests.get(&before.version).is_some_and(|digest| *digest != before.digest) {
                return damaged(before.version, "lines are missing from it, or were changed");
            }
        }
        self.last = Some(Link { version, digest });
        Ok(())
    }
}

/// The bytes with the seal's digits as they were when the digest was taken.
fn blanked(bytes: &[u8], seal: &str) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let told = format!("\"{SEAL}\":\"{seal}\"");
    if let Some(at) = bytes.windows(told.len()).position(|part| part == told.as_bytes()) {
        let at = at + SEAL.len() + 4;
        bytes[at..at + BLANK.len()].copy_from_slice(BLANK.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::parse;

    fn commit(n: i64, before: Option<Link>) -> (Vec<u8>, u128) {
        let line = |line: String| serde_json::from_str::<Action>(&line).unwrap();
        let actions = [
            line(format!("{{\"commitInfo\":{{\"timestamp\":{n},\"engineInfo\":\"tidewire/9\"}}}}")),
            line(format!("{{\"txn\":{{\"appId\":\"tidewire/p\",\"version\":{n}}}}}")),
            line(format!(
                "{{\"domainMetadata\":{{\"domain\":\"tidewire\",\"configuration\":\"{n}\",\"removed\":false}}}}"
            )),
        ];
        sealed(&actions, before).unwrap()
    }

    fn read(commits: &[Vec<u8>]) -> Result<Chain> {
        let mut chain = Chain::default();
        for (version, bytes) in (0..).zip(commits) {
            chain.take(version, bytes, &parse(bytes, "t")?, |version| format!("{version}.json"))?;
        }
        Ok(chain)
    }

    #[test]
    fn any_byte_that_is_changed_and_any_line_that_is_gone_is_found_and_named() {
        let (mut commits, mut before) = (Vec::new(), None);
        for version in 0..4 {
            let (bytes, digest) = commit(version as i64, before);
            before = Some(Link { version, digest });
            commits.push(bytes);
        }
        assert_eq!(read(&commits).unwrap().last, before);
        for version in 0..4 {
            let told = |bytes: Vec<u8>| {
                let mut commits = commits.clone();
                commits[version] = bytes;
                let error = read(&commits).err().unwrap_or_else(|| panic!("version {version}")).to_string();
                assert!(error.contains(&format!("{version}.json")) || error.starts_with("t "), "{error}");
            };
            let whole = &commits[version];
            for at in 0..whole.len() {
                let mut commits = commits.clone();
                commits[version][at] ^= 1;
                // Under another name the seal of the last commit is none: it is as one of an earlier version.
                let is_found = read(&commits).is_err() || (version == 3 && in_seal_name(whole, at));
                assert!(is_found, "version {version}, byte {at}");
            }
            let lines: Vec<&[u8]> = whole.split_inclusive(|b| *b == b'\n').collect();
            (0..lines.len()).for_each(|gone| told([&lines[..gone], &lines[gone + 1..]].concat().concat()));
            told(Vec::new());
            told(commits[(version + 1) % 4].clone());
        }
    }

    fn in_seal_name(bytes: &[u8], at: usize) -> bool {
        let from = bytes.windows(SEAL.len()).position(|part| part == SEAL.as_bytes()).unwrap();
        (from..from + SEAL.len()).contains(&at)
    }
}
