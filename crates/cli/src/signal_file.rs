//! Signals that come by a file, as Debezium's channel `file` has them: a JSON object a line.
//!
//! ```text
//!   signals.txt ─ renamed ─▶ signals.txt.taken ─▶ signals, and how much of the file they are ─ durable ─▶ removed
//! ```

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidewire_change::{Error, Result};
use tidewire_connector::{BoxFuture, Heard, Signal, SignalChannel};
use tidewire_envelope::debezium::signal;
use tidewire_flow::key_hash128;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// A last line without an end that can't be read is taken for whole after so many looks.
const PATIENCE: u32 = 10;
const MOST_BYTES: u64 = 16 << 20;

pub struct FileSignals {
    path: PathBuf,
    taken: PathBuf,
    looks: u32,
}

impl FileSignals {
    pub fn new(path: &Path) -> FileSignals {
        let mut taken = path.as_os_str().to_owned();
        taken.push(".taken");
        FileSignals { path: path.to_owned(), taken: taken.into(), looks: 0 }
    }

    /// What is there now. None: nothing new.
    fn look(&mut self, behind: &str) -> Result<Option<Heard>> {
        let Some(bytes) = self.read()? else {
            if !behind.is_empty() {
                // The file that the place was in is gone: one like it that comes later is another.
                return Ok(Some(Heard::default()));
            }
            return self.take().map(|()| None);
        };
        let from = known(&bytes, behind);
        let rest = &bytes[from..];
        if rest.is_empty() {
            // Everything in it is durable, and nobody has added to it since the last look.
            std::fs::remove_file(&self.taken).map_err(|error| Error::io(error, self.taken.display()))?;
            return Ok(None);
        }
        self.looks += 1;
        let end = from + whole(rest, self.looks > PATIENCE);
        let signals = signals(&bytes[from..end]);
        if signals.is_empty() && end < bytes.len() {
            return Ok(None);
        }
        self.looks = 0;
        Ok(Some(Heard { place: place(&bytes[..end]), signals }))
    }

    fn read(&self) -> Result<Option<Vec<u8>>> {
        match std::fs::metadata(&self.taken) {
            Ok(found) if found.len() > MOST_BYTES => {
                let what = format!("{} has {} bytes", self.taken.display(), found.len());
                Err(Error::invalid(what).hint("signals are a line each: move the file away"))
            }
            Ok(_) => std::fs::read(&self.taken).map(Some).map_err(|error| Error::io(error, self.taken.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(error, self.taken.display())),
        }
    }

    /// Takes the file away, if there is one with something in it: whoever writes the next signal makes a new one.
    fn take(&self) -> Result<()> {
        match std::fs::metadata(&self.path) {
            Ok(found) if !found.is_file() => Err(Error::invalid(format!("{} is no file", self.path.display()))
                .hint("`signals.file` names a file of signals, a line each")),
            Ok(found) if found.len() == 0 => Ok(()),
            Ok(_) => std::fs::rename(&self.path, &self.taken).map_err(|error| {
                Error::io(error, self.path.display()).hint("the folder of the file for signals must be writable")
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::io(error, self.path.display())),
        }
    }
}

fn signals(bytes: &[u8]) -> Vec<Signal> {
    let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let one = |line: &[u8]| match signal::parts(line, "") {
        Ok((id, kind, data)) => Signal { id, kind, data },
        // Whoever carries it out refuses it, and says why.
        Err(_) => Signal { data: String::from_utf8_lossy(line).into_owned(), ..Signal::default() },
    };
    lines.map(one).collect()
}

/// Bytes at the start that were taken in before.
fn known(bytes: &[u8], behind: &str) -> usize {
    let end = behind.split_once(':').and_then(|(end, _)| end.parse::<usize>().ok());
    end.filter(|end| bytes.get(..*end).is_some_and(|known| place(known) == behind)).unwrap_or(0)
}

fn place(bytes: &[u8]) -> String {
    format!("{}:{:x}", bytes.len(), key_hash128(bytes))
}

/// Up to where lines are whole: somebody may be at writing the last one.
fn whole(bytes: &[u8], is_late: bool) -> usize {
    let ended = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    match is_late || signal::parts(&bytes[ended..], "").is_ok() {
        true => bytes.len(),
        false => ended,
    }
}

impl SignalChannel for FileSignals {
    fn name(&self) -> &'static str {
        "file"
    }

    fn next<'a>(&'a mut self, behind: Option<&'a str>) -> BoxFuture<'a, Result<Heard>> {
        Box::pin(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                if let Some(heard) = self.look(behind.unwrap_or_default())? {
                    return Ok(heard);
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn folder(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tidewire-signals-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn ids(heard: &Heard) -> Vec<&str> {
        heard.signals.iter().map(|signal| signal.id.as_str()).collect()
    }

    const A: &str = "{\"id\":\"a\",\"type\":\"log\"}\n";
    const B: &str = "{\"id\":\"b\",\"type\":\"log\"}";

    #[test]
    fn each_line_is_told_once_whenever_the_process_dies() {
        let folder = folder("once");
        let path = folder.0.join("signals.txt");
        std::fs::write(&path, format!("{A}\n{B}")).unwrap();
        let mut first = FileSignals::new(&path);
        assert_eq!(first.look("").unwrap(), None, "it is taken away first");
        assert!(!path.exists());
        let heard = first.look("").unwrap().unwrap();
        assert_eq!(ids(&heard), ["a", "b"]);
        // It dies before that is durable: it comes again.
        assert_eq!(FileSignals::new(&path).look("").unwrap().unwrap(), heard);
        // And behind that: it doesn't, though another file of the same words is there already.
        std::fs::write(&path, format!("{A}\n{B}")).unwrap();
        let mut second = FileSignals::new(&path);
        assert_eq!(second.look(&heard.place).unwrap(), None);
        assert_eq!(second.look(&heard.place).unwrap().unwrap(), Heard::default(), "the place is forgotten first");
        assert_eq!(second.look("").unwrap(), None);
        assert_eq!(ids(&second.look("").unwrap().unwrap()), ["a", "b"]);
    }

    #[test]
    fn a_folder_in_the_place_of_the_file_stays_where_it_is() {
        let folder = folder("folder");
        let path = folder.0.join("precious");
        std::fs::create_dir(&path).unwrap();
        let error = FileSignals::new(&path).look("").unwrap_err();
        assert!(path.is_dir() && error.to_string().contains("precious is no file"), "{error}");
    }

    #[test]
    fn what_is_added_while_the_file_is_read_is_told_and_a_line_that_is_not_whole_is_waited_for() {
        let folder = folder("added");
        let path = folder.0.join("signals.txt");
        std::fs::write(&path, format!("{A}{{\"id\":\"b\",\"ty")).unwrap();
        let mut channel = FileSignals::new(&path);
        assert_eq!(channel.look("").unwrap(), None);
        let heard = channel.look("").unwrap().unwrap();
        assert_eq!(ids(&heard), ["a"]);
        assert_eq!(channel.look(&heard.place).unwrap(), None, "the rest is half a line");
        std::fs::write(&channel.taken, format!("{A}{B}")).unwrap();
        let heard = channel.look(&heard.place).unwrap().unwrap();
        assert_eq!(ids(&heard), ["b"]);
        std::fs::write(&channel.taken, format!("{A}{B}\nnonsense")).unwrap();
        let heard = (0..=PATIENCE).find_map(|_| channel.look(&heard.place).unwrap()).unwrap();
        assert_eq!((heard.signals[0].kind.as_str(), heard.signals[0].data.as_str()), ("", "nonsense"));
    }
}
