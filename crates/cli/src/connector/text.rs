//! Texts of a connector as YAML, and as parts of addresses.

use std::fmt::Write;

/// Lower case, digits and `_`, as slots and publications are named.
pub fn pipeline_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}

/// A text value of YAML, in which nothing is looked up.
pub(super) fn text(value: &str) -> String {
    quoted(&value.replace("${", "$${"))
}

/// JSON's strings are YAML's, but for some characters that YAML wants escaped.
pub(super) fn quoted(value: &str) -> String {
    let wants = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}');
    let json = serde_json::Value::from(value).to_string();
    json.chars().map(|c| if wants(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() }).collect()
}

pub fn encoded(part: &str) -> String {
    let mut out = String::new();
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'/') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
