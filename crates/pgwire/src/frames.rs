//! Cuts the server's byte stream into messages ("Message Formats"): a tag byte, a length that counts itself, a body.
//! Pure; nothing is copied.

use bytes::{Buf, Bytes, BytesMut};
use tidewire_change::{Error, Result};

/// Length of tag and length field.
pub(crate) const HEADER: usize = 5;
/// The server builds messages in memory blocks of at most 1 GiB.
pub(crate) const MAX_FRAME: usize = (1 << 30) + HEADER;
/// What a server that we don't trust yet may send in one message.
pub(crate) const MAX_STARTUP_FRAME: usize = 64 * 1024;

pub(crate) const AUTHENTICATION: u8 = b'R';
pub(crate) const BACKEND_KEY: u8 = b'K';
pub(crate) const COMMAND_COMPLETE: u8 = b'C';
pub(crate) const COPY_BOTH: u8 = b'W';
pub(crate) const COPY_DATA: u8 = b'd';
pub(crate) const COPY_DONE: u8 = b'c';
pub(crate) const COPY_IN: u8 = b'G';
pub(crate) const COPY_OUT: u8 = b'H';
pub(crate) const DATA_ROW: u8 = b'D';
pub(crate) const EMPTY_QUERY: u8 = b'I';
pub(crate) const ERROR: u8 = b'E';
pub(crate) const NEGOTIATE_VERSION: u8 = b'v';
pub(crate) const NOTICE: u8 = b'N';
pub(crate) const NOTIFICATION: u8 = b'A';
pub(crate) const PARAMETER_STATUS: u8 = b'S';
pub(crate) const PARSE_COMPLETE: u8 = b'1';
pub(crate) const READY: u8 = b'Z';
pub(crate) const ROW_DESCRIPTION: u8 = b'T';

const KNOWN: &[u8] = b"RKCWdcGHDIEvNASZT123nst";

#[derive(Debug)]
pub(crate) struct Frame {
    pub tag: u8,
    pub body: Bytes,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub tag: u8,
    /// Header and body.
    pub total: usize,
}

/// The header at the front; `None` while it isn't all there.
#[inline]
pub(crate) fn head(buffer: &[u8], limit: usize) -> Result<Option<Head>> {
    let Some(&[tag, a, b, c, d]) = buffer.first_chunk::<HEADER>() else { return Ok(None) };
    let total = u32::from_be_bytes([a, b, c, d]) as usize + 1;
    if total < HEADER || total > limit || !KNOWN.contains(&tag) {
        return Err(torn(tag, total));
    }
    Ok(Some(Head { tag, total }))
}

#[cold]
fn torn(tag: u8, total: usize) -> Error {
    let shown = (tag as char).escape_default();
    let what = match KNOWN.contains(&tag) {
        true => format!("a message '{shown}' with the impossible length {}", total - 1),
        false => format!("an unknown message '{shown}' (0x{tag:02x})"),
    };
    broken(what)
}

/// A body that ends too early.
#[cold]
pub(crate) fn cut(message: &str) -> Error {
    broken(format!("a message of the kind {message} is cut short"))
}

#[cold]
pub(crate) fn broken(what: String) -> Error {
    Error::unavailable(format!("the server's byte stream is broken: {what}"))
        .hint("is it a PostgreSQL server, and does nothing on the way change the bytes?")
}

/// Takes the message at the front once it is all there.
pub(crate) fn take(buffer: &mut BytesMut, limit: usize) -> Result<Option<Frame>> {
    match head(buffer, limit)? {
        Some(Head { tag, total }) if total <= buffer.len() => {
            let mut body = buffer.split_to(total).freeze();
            body.advance(HEADER);
            Ok(Some(Frame { tag, body }))
        }
        _ => Ok(None),
    }
}

/// Takes all whole CopyData messages at the front, headers and all, as one slice; `None` if there is none. `check` sees each
/// body; what it refuses ends the run, and is an error when it is the first.
pub(crate) fn take_copy_data(
    buffer: &mut BytesMut,
    mut check: impl FnMut(&[u8]) -> Result<()>,
) -> Result<Option<Bytes>> {
    let mut end = 0;
    loop {
        let next = match head(&buffer[end..], MAX_FRAME) {
            Ok(Some(Head { tag: COPY_DATA, total })) if total <= buffer.len() - end => {
                check(&buffer[end + HEADER..end + total]).map(|()| total)
            }
            Ok(_) => break,
            Err(error) => Err(error),
        };
        match next {
            Ok(total) => end += total,
            // What came whole before it is delivered first.
            Err(_) if end > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok((end > 0).then(|| buffer.split_to(end).freeze()))
}

/// Bodies of a run that `take_copy_data` made, as ranges of it.
#[derive(Clone, Debug)]
pub(crate) struct Bodies<'a> {
    run: &'a [u8],
    at: usize,
}

impl<'a> Bodies<'a> {
    pub(crate) fn new(run: &'a [u8]) -> Self {
        Bodies { run, at: 0 }
    }
}

impl Iterator for Bodies<'_> {
    type Item = std::ops::Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let length = self.run.get(self.at + 1..)?.first_chunk::<4>()?;
        let start = self.at + HEADER;
        self.at += 1 + u32::from_be_bytes(*length) as usize;
        Some(start..self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![tag];
        out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        out.extend_from_slice(body);
        out
    }

    #[test]
    fn a_broken_header_is_an_error_that_names_the_message() {
        for (bytes, words) in [
            (&b"d\0\0\0\x03"[..], "'d' with the impossible length 3"),
            (&b"T\x7f\xff\xff\xff"[..], "'T' with the impossible length 2147483647"),
            (&b"HTTP/"[..], "impossible length"),
            (&b"!\0\0\0\x04"[..], "unknown message '!' (0x21)"),
            (&b"\0\0\0\0\x04"[..], "(0x00)"),
        ] {
            let error = take(&mut BytesMut::from(bytes), MAX_FRAME).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert!(take_copy_data(&mut BytesMut::from(bytes), |_| Ok(())).is_err());
        }
    }

    #[test]
    fn what_came_whole_before_a_broken_message_is_delivered() {
        let mut buffer = BytesMut::from(&[frame(b'd', b"a"), frame(b'd', b"b"), b"!!!!!".to_vec()].concat()[..]);
        let run = take_copy_data(&mut buffer, |_| Ok(())).unwrap().unwrap();
        assert_eq!(Bodies::new(&run).map(|range| &run[range]).collect::<Vec<_>>(), [b"a", b"b"]);
        assert!(take_copy_data(&mut buffer, |_| Ok(())).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = take(&mut buffer, MAX_FRAME) {}
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some(run)) = take_copy_data(&mut buffer, |_| Ok(())) {
                Bodies::new(&run).for_each(|range| assert!(run.get(range).is_some()));
            }
        }

        #[test]
        fn messages_come_out_as_they_went_in_at_any_cut(
            bodies in proptest::collection::vec(
                (proptest::sample::select(KNOWN), proptest::collection::vec(any::<u8>(), 0..40)), 1..20),
            cut in 1usize..50,
        ) {
            let bytes: Vec<u8> = bodies.iter().flat_map(|(tag, body)| frame(*tag, body)).collect();
            let (mut buffer, mut got) = (BytesMut::new(), Vec::new());
            for piece in bytes.chunks(cut) {
                buffer.extend_from_slice(piece);
                loop {
                    if let Some(run) = take_copy_data(&mut buffer, |_| Ok(())).unwrap() {
                        got.extend(Bodies::new(&run).map(|range| (b'd', run[range].to_vec())));
                    }
                    match take(&mut buffer, MAX_FRAME).unwrap() {
                        Some(frame) => got.push((frame.tag, frame.body.to_vec())),
                        None => break,
                    }
                }
            }
            prop_assert_eq!(got, bodies);
            prop_assert!(buffer.is_empty());
        }
    }
}
