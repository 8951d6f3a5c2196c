//! PostgreSQL refuses to run as root: then it gets an account of its own.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// User and group that the server runs as.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    pub uid: u32,
    pub gid: u32,
}

/// `None`: we aren't root, the server runs as we do.
pub(crate) fn server_account() -> Option<Account> {
    if fs::metadata("/proc/self").ok()?.uid() != 0 {
        return None;
    }
    let passwd = fs::read_to_string("/etc/passwd").expect("/etc/passwd can be read");
    let found = ["postgres", "nobody"].iter().find_map(|name| lookup(&passwd, name));
    Some(found.expect("a user postgres or nobody exists; PostgreSQL doesn't run as root"))
}

fn lookup(passwd: &str, name: &str) -> Option<Account> {
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some(Account { uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::lookup;

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let passwd = "post:x:7:8::/:/bin/sh\npostgres:x:101:104:,,,:/var/lib/postgresql:/bin/bash\n";
        let account = lookup(passwd, "postgres").unwrap();
        assert_eq!((account.uid, account.gid), (101, 104));
        assert!(lookup(passwd, "nobody").is_none());
    }
}
