//! The path of a request's address.

/// The parts between slashes; one at the end says nothing.
pub(crate) fn segments(path: &str) -> Result<Vec<String>, &'static str> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    match path {
        "" => Ok(Vec::new()),
        path => path.split('/').map(decoded).collect(),
    }
}

/// `%41` is `A`.
pub(crate) fn decoded(text: &str) -> Result<String, &'static str> {
    const WRONG: &str = "The address holds a % that isn't followed by two hexadecimal digits, or no UTF-8";
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |at: usize| rest.get(at).and_then(|byte| char::from(*byte).to_digit(16)).ok_or(WRONG);
        bytes.push((digit(0)? << 4 | digit(1)?) as u8);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| WRONG)
}
