//! The pieces that JSON is made of.

use super::modes::BinaryMode;
use std::io::Write;

/// Bytes that a JSON string can't hold as they are.
const ESCAPED: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table[0x7f] = true;
    table
};

/// Appends a JSON string. False: bytes that aren't UTF-8 were replaced.
pub(super) fn push_string(text: &[u8], out: &mut Vec<u8>) -> bool {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let exact = push_inside(text, out);
    out.push(b'"');
    exact
}

/// `push_string` without the quotes.
pub(super) fn push_inside(text: &[u8], out: &mut Vec<u8>) -> bool {
    match std::str::from_utf8(text) {
        Ok(_) => {
            push_escaped(text, out);
            true
        }
        Err(_) => {
            push_escaped(String::from_utf8_lossy(text).as_bytes(), out);
            false
        }
    }
}

fn push_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    let mut start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if !ESCAPED[usize::from(*byte)] {
            continue;
        }
        out.extend_from_slice(&bytes[start..at]);
        start = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            // Writing to a Vec can't fail.
            _ => drop(write!(out, "\\u{byte:04x}")),
        }
    }
    out.extend_from_slice(&bytes[start..]);
}

pub(super) fn push_integer(number: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Appends a string of base64, as Connect's JsonConverter writes bytes.
pub(super) fn push_base64(bytes: &[u8], out: &mut Vec<u8>) {
    push_in_base64(bytes, LETTERS, out);
}

fn push_in_base64(bytes: &[u8], letters: &[u8; 64], out: &mut Vec<u8>) {
    out.reserve(bytes.len().div_ceil(3) * 4 + 2);
    out.push(b'"');
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for letter in 0..4 {
            let index = group >> (18 - 6 * letter) & 63;
            out.push(if letter <= chunk.len() { letters[index as usize] } else { b'=' });
        }
    }
    out.push(b'"');
}

/// Appends bytes as `binary.handling.mode` says.
pub(super) fn push_binary(bytes: &[u8], mode: BinaryMode, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    match mode {
        BinaryMode::Bytes | BinaryMode::Base64 => push_base64(bytes, out),
        BinaryMode::Base64UrlSafe => push_in_base64(bytes, URL_LETTERS, out),
        BinaryMode::Hex => {
            out.push(b'"');
            out.extend(bytes.iter().flat_map(|b| [HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]));
            out.push(b'"');
        }
    }
}

fn value_of(letter: u8) -> Option<u32> {
    Some(match letter {
        b'A'..=b'Z' => u32::from(letter - b'A'),
        b'a'..=b'z' => u32::from(letter - b'a') + 26,
        b'0'..=b'9' => u32::from(letter - b'0') + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    })
}

/// Appends the bytes that base64 (of either alphabet, padded or not) stands for.
pub(super) fn read_base64(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let end = text.iter().rposition(|b| *b != b'=').map_or(0, |at| at + 1);
    if text.len() - end > 2 {
        return None;
    }
    for chunk in text[..end].chunks(4) {
        let mut group = 0;
        for letter in chunk {
            group = group << 6 | value_of(*letter)?;
        }
        match chunk.len() {
            4 => out.extend_from_slice(&[(group >> 16) as u8, (group >> 8) as u8, group as u8]),
            3 => out.extend_from_slice(&[(group >> 10) as u8, (group >> 2) as u8]),
            2 => out.push((group >> 4) as u8),
            _ => return None,
        }
    }
    Some(())
}

/// Appends the bytes of a text that `push_binary` wrote.
pub(super) fn read_binary(text: &[u8], mode: BinaryMode, out: &mut Vec<u8>) -> Option<()> {
    if mode != BinaryMode::Hex {
        return read_base64(text, out);
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
    if !text.len().is_multiple_of(2) {
        return None;
    }
    for pair in text.chunks_exact(2) {
        out.push(digit(pair[0])? << 4 | digit(pair[1])?);
    }
    Some(())
}
