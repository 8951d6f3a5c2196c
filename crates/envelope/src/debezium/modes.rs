//! How values are written: the properties of a Debezium connector that decide it, validated.

use tidewire_change::{Error, Result};

/// `decimal.handling.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecimalMode {
    Precise,
    Text,
    Double,
}

/// `time.precision.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeMode {
    Adaptive,
    AdaptiveTimeMicroseconds,
    Connect,
    IsoString,
    Microseconds,
    Nanoseconds,
}

/// `binary.handling.mode`. Plain JSON has no bytes: `Bytes` and `Base64` print alike, only their schemas differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryMode {
    Bytes,
    Base64,
    Base64UrlSafe,
    Hex,
}

/// `hstore.handling.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HstoreMode {
    Json,
    Map,
}

/// `interval.handling.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntervalMode {
    Numeric,
    Text,
}

/// A validated configuration of the format. `Modes::default()` is Debezium's default in all but `schemas.enable`, which is
/// Kafka Connect's converter's and off here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modes {
    pub decimal: DecimalMode,
    pub time: TimeMode,
    pub binary: BinaryMode,
    pub hstore: HstoreMode,
    pub interval: IntervalMode,
    /// `unavailable.value.placeholder`, as bytes.
    pub placeholder: Vec<u8>,
    /// `money.fraction.digits`.
    pub money_fraction_digits: u8,
    /// `include.unknown.datatypes`: off, values of types that Debezium doesn't know aren't columns of the row.
    pub include_unknown: bool,
    /// `tombstones.on.delete`.
    pub tombstones: bool,
    /// `key.converter.schemas.enable`.
    pub key_schemas: bool,
    /// `value.converter.schemas.enable`.
    pub value_schemas: bool,
    /// `provide.transaction.metadata`.
    pub transactions: bool,
    /// Not Debezium's: booleans, integers and floats as JSON has them, every other value as the source's own text. For people.
    pub source_text: bool,
}

impl Default for Modes {
    fn default() -> Self {
        Modes {
            decimal: DecimalMode::Precise,
            time: TimeMode::Adaptive,
            binary: BinaryMode::Bytes,
            hstore: HstoreMode::Json,
            interval: IntervalMode::Numeric,
            placeholder: b"__debezium_unavailable_value".to_vec(),
            money_fraction_digits: 2,
            include_unknown: false,
            tombstones: true,
            key_schemas: false,
            value_schemas: false,
            transactions: false,
            source_text: false,
        }
    }
}

impl Modes {
    /// Values as people read them, see `source_text`.
    pub fn for_people() -> Modes {
        Modes { source_text: true, ..Modes::default() }
    }

    /// The properties that `set` knows, under Debezium's and Connect's names.
    pub const PROPERTIES: [&'static str; 12] = [
        "decimal.handling.mode",
        "time.precision.mode",
        "binary.handling.mode",
        "hstore.handling.mode",
        "interval.handling.mode",
        "unavailable.value.placeholder",
        "money.fraction.digits",
        "include.unknown.datatypes",
        "tombstones.on.delete",
        "key.converter.schemas.enable",
        "value.converter.schemas.enable",
        "provide.transaction.metadata",
    ];

    /// Every property with its value, as `set` takes it: who has them reads what was written by these modes.
    pub fn properties(&self) -> [(&'static str, String); 12] {
        let [decimal, time, binary, hstore, interval, placeholder, money, unknown, tombstones, key, value, transactions] =
            Self::PROPERTIES;
        let decimals = match self.decimal {
            DecimalMode::Precise => "precise",
            DecimalMode::Text => "string",
            DecimalMode::Double => "double",
        };
        let times = match self.time {
            TimeMode::Adaptive => "adaptive",
            TimeMode::AdaptiveTimeMicroseconds => "adaptive_time_microseconds",
            TimeMode::Connect => "connect",
            TimeMode::IsoString => "isostring",
            TimeMode::Microseconds => "microseconds",
            TimeMode::Nanoseconds => "nanoseconds",
        };
        let bytes = match self.binary {
            BinaryMode::Bytes => "bytes",
            BinaryMode::Base64 => "base64",
            BinaryMode::Base64UrlSafe => "base64-url-safe",
            BinaryMode::Hex => "hex",
        };
        let maps = if self.hstore == HstoreMode::Map { "map" } else { "json" };
        let intervals = if self.interval == IntervalMode::Text { "string" } else { "numeric" };
        let hex: String = self.placeholder.iter().map(|byte| format!("{byte:02x}")).collect();
        [
            (decimal, decimals.to_string()),
            (time, times.to_string()),
            (binary, bytes.to_string()),
            (hstore, maps.to_string()),
            (interval, intervals.to_string()),
            (placeholder, format!("hex:{hex}")),
            (money, self.money_fraction_digits.to_string()),
            (unknown, self.include_unknown.to_string()),
            (tombstones, self.tombstones.to_string()),
            (key, self.key_schemas.to_string()),
            (value, self.value_schemas.to_string()),
            (transactions, self.transactions.to_string()),
        ]
    }

    /// Sets one property. `Ok(false)`: it isn't one of `PROPERTIES`; `Invalid`: the value isn't one that it may have.
    pub fn set(&mut self, property: &str, value: &str) -> Result<bool> {
        let one_of = |allowed: &[&str]| -> Result<usize> {
            allowed.iter().position(|word| word.eq_ignore_ascii_case(value)).ok_or_else(|| {
                Error::invalid(format!("`{value}` is no value of {property}"))
                    .hint(format!("say one of: {}", allowed.join(", ")))
            })
        };
        let flag = || one_of(&["false", "true"]).map(|at| at == 1);
        match property {
            "decimal.handling.mode" => {
                let at = one_of(&["precise", "string", "double"])?;
                self.decimal = [DecimalMode::Precise, DecimalMode::Text, DecimalMode::Double][at];
            }
            "time.precision.mode" => self.time = time_mode(value)?,
            "binary.handling.mode" => {
                let at = one_of(&["bytes", "base64", "base64-url-safe", "hex"])?;
                let modes = [BinaryMode::Bytes, BinaryMode::Base64, BinaryMode::Base64UrlSafe, BinaryMode::Hex];
                self.binary = modes[at];
            }
            "hstore.handling.mode" => self.hstore = [HstoreMode::Json, HstoreMode::Map][one_of(&["json", "map"])?],
            "interval.handling.mode" => {
                self.interval = [IntervalMode::Numeric, IntervalMode::Text][one_of(&["numeric", "string"])?];
            }
            "unavailable.value.placeholder" => self.placeholder = placeholder(value)?,
            "money.fraction.digits" => self.money_fraction_digits = fraction_digits(value)?,
            "include.unknown.datatypes" => self.include_unknown = flag()?,
            "tombstones.on.delete" => self.tombstones = flag()?,
            "key.converter.schemas.enable" => self.key_schemas = flag()?,
            "value.converter.schemas.enable" => self.value_schemas = flag()?,
            "provide.transaction.metadata" => self.transactions = flag()?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn time_mode(value: &str) -> Result<TimeMode> {
    Ok(match value.to_ascii_lowercase().as_str() {
        "adaptive" => TimeMode::Adaptive,
        "adaptive_time_microseconds" => TimeMode::AdaptiveTimeMicroseconds,
        "connect" => TimeMode::Connect,
        "isostring" => TimeMode::IsoString,
        "microseconds" => TimeMode::Microseconds,
        "nanoseconds" => TimeMode::Nanoseconds,
        _ => {
            return Err(Error::invalid(format!("`{value}` is no value of time.precision.mode")).hint(
                "say one of: adaptive, adaptive_time_microseconds, connect, isostring, microseconds, nanoseconds; \
                 structured isn't written here",
            ))
        }
    })
}

/// Text, or `hex:` and hex digits.
fn placeholder(value: &str) -> Result<Vec<u8>> {
    let Some(hex) = value.strip_prefix("hex:") else { return Ok(value.as_bytes().to_vec()) };
    let mut bytes = Vec::new();
    tidewire_change::text::parse_bytes(format!("\\x{hex}").as_bytes(), &mut bytes).map(|()| bytes).ok_or_else(|| {
        Error::invalid("unavailable.value.placeholder has something behind `hex:` that isn't hex digits")
    })
}

fn fraction_digits(value: &str) -> Result<u8> {
    value.parse().ok().filter(|digits| *digits <= 18).ok_or_else(|| {
        Error::invalid(format!("`{value}` is no value of money.fraction.digits")).hint("say a number from 0 to 18")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_come_back_from_their_properties_as_they_were() {
        let values = [
            ("decimal.handling.mode", "precise string double"),
            ("time.precision.mode", "adaptive adaptive_time_microseconds connect isostring microseconds nanoseconds"),
            ("binary.handling.mode", "bytes base64 base64-url-safe hex"),
            ("hstore.handling.mode", "json map"),
            ("interval.handling.mode", "numeric string"),
            ("unavailable.value.placeholder", "none hex:00ff é"),
            ("money.fraction.digits", "0 18"),
            ("include.unknown.datatypes", "false true"),
            ("tombstones.on.delete", "false true"),
            ("key.converter.schemas.enable", "false true"),
            ("value.converter.schemas.enable", "false true"),
            ("provide.transaction.metadata", "false true"),
        ];
        for (property, values) in values {
            for value in values.split(' ') {
                let (mut modes, mut back) = (Modes::default(), Modes::default());
                assert!(modes.set(property, value).unwrap());
                for (property, value) in modes.properties() {
                    assert!(back.set(property, &value).unwrap(), "{property}");
                }
                assert_eq!(back, modes, "{property} {value}");
            }
        }
    }
}
