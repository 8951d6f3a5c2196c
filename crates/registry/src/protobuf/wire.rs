//! Protobuf's bytes, as far as descriptors need them.

use tidewire_change::{Error, Result};

pub enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

pub fn fault() -> Error {
    Error::invalid("the schema is neither a .proto file nor a descriptor in base 64")
}

/// The fields of a message, in order. Fixed numbers stand in no descriptor.
pub fn fields(mut bytes: &[u8]) -> Result<Vec<(u32, Value<'_>)>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut bytes)?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).map_err(|_| fault())?;
                let (inside, rest) = bytes.split_at_checked(length).ok_or_else(fault)?;
                bytes = rest;
                Value::Bytes(inside)
            }
            _ => return Err(fault()),
        };
        found.push((u32::try_from(tag >> 3).map_err(|_| fault())?, value));
    }
    Ok(found)
}

fn varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut number = 0u64;
    for at in 0..10 {
        let (byte, rest) = bytes.split_first().ok_or_else(fault)?;
        *bytes = rest;
        number |= u64::from(byte & 0x7F) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(fault())
}

impl<'a> Value<'a> {
    pub fn text(&self) -> Result<String> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| fault())
    }

    pub fn bytes(&self) -> Result<&'a [u8]> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Number(_) => Err(fault()),
        }
    }

    /// Negative numbers take all 64 bits.
    pub fn whole(&self) -> Result<i32> {
        match self {
            Value::Number(number) => i32::try_from(*number as i64).map_err(|_| fault()),
            Value::Bytes(_) => Err(fault()),
        }
    }

    pub fn is(&self) -> bool {
        matches!(self, Value::Number(number) if *number != 0)
    }
}

/// Builds a message.
#[derive(Default)]
pub struct Writer {
    pub out: Vec<u8>,
}

impl Writer {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.out.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.out.push(number as u8);
    }

    pub fn number(&mut self, field: u32, number: i32) {
        self.varint(u64::from(field) << 3);
        self.varint(i64::from(number) as u64);
    }

    pub fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    pub fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }
}
