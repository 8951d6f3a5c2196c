use std::path::{Path, PathBuf};
use std::process::Command;

/// A real file system that is soon full: a small tmpfs. It goes away when this is dropped.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// On a folder that is there. None when this user may not mount.
    pub fn mount(folder: &Path, bytes: u64) -> Option<SmallDisk> {
        let option = format!("size={bytes}");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &option, "tidewire-test"]).arg(folder).output();
        let mount = mount.expect("mount is installed");
        if !mount.status.success() {
            let text = String::from_utf8_lossy(&mount.stderr);
            let user = Command::new("id").arg("-u").output().expect("id is installed").stdout;
            assert_ne!(user, b"0\n", "root can't mount a tmpfs, so a full disk wasn't tested: {text}");
            eprintln!("skipped: only root may mount a tmpfs ({text})");
            return None;
        }
        Some(SmallDisk(folder.to_path_buf()))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}
