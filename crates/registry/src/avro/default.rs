//! Whether a field's default is a value of the field's type: one that isn't fails at the first reader that needs it.

use super::{Field, Kind, Schema, TypeId};
use crate::bounds::{too_deep, Budget, DEEPEST};
use crate::json::Json;
use tidewire_change::{Error, Result};

/// Looks at the defaults of the schema's own fields, not at those of referenced schemas.
pub fn check_defaults(schema: &Schema, budget: &mut Budget) -> Result<()> {
    for of in &schema.types[schema.own..] {
        let Kind::Record(record) = &of.kind else { continue };
        for field in &record.fields {
            if let Some(default) = &field.default {
                if !fits(schema, field.of, default, budget, 0)? {
                    return Err(misfit(schema, field).context(format!("in the record `{}`", record.name.full)));
                }
            }
        }
    }
    Ok(())
}

fn misfit(schema: &Schema, field: &Field) -> Error {
    let of = schema.kind(field.of).shown();
    let error = Error::invalid(format!("the default of the field `{}` is no value of its type, {of}", field.name));
    match (&field.default, schema.kind(field.of)) {
        (Some(Json::Text(text)), _) if text == "null" => error.hint("null is written without quotes"),
        _ => error.hint("give a default that fits, or none"),
    }
}

fn fits(schema: &Schema, of: TypeId, value: &Json, budget: &mut Budget, depth: usize) -> Result<bool> {
    budget.spend(1)?;
    if depth > DEEPEST {
        return Err(too_deep());
    }
    let whole = |least: i64, most: i64| match value {
        Json::Number(digits) => digits.parse::<i64>().is_ok_and(|number| (least..=most).contains(&number)),
        _ => false,
    };
    // Bytes are written as text whose characters stand for one byte each.
    let bytes = || value.text().is_some_and(|text| text.chars().all(|c| u32::from(c) < 256));
    Ok(match schema.kind(of) {
        Kind::Null => matches!(value, Json::Null),
        Kind::Boolean => matches!(value, Json::Bool(_)),
        Kind::Int => whole(i32::MIN.into(), i32::MAX.into()),
        Kind::Long => whole(i64::MIN, i64::MAX),
        Kind::Float | Kind::Double => match value {
            Json::Number(_) => true,
            other => other.text().is_some_and(|text| ["NaN", "Infinity", "-Infinity"].contains(&text)),
        },
        Kind::Bytes => bytes(),
        Kind::String => value.text().is_some(),
        Kind::Fixed(fixed) => bytes() && value.text().is_some_and(|text| text.chars().count() as u64 == fixed.size),
        Kind::Enum(of) => value.text().is_some_and(|text| of.symbols.iter().any(|symbol| symbol == text)),
        Kind::Array(items) => match value.list() {
            Some(list) => all(list.iter(), |item| fits(schema, *items, item, budget, depth + 1))?,
            None => false,
        },
        Kind::Map(values) => match value.members() {
            Some(members) => all(members.iter(), |(_, item)| fits(schema, *values, item, budget, depth + 1))?,
            None => false,
        },
        // The specification once asked for the first branch, and now takes any.
        Kind::Union(branches) => {
            for branch in branches {
                if fits(schema, *branch, value, budget, depth + 1)? {
                    return Ok(true);
                }
            }
            false
        }
        Kind::Record(record) => match value {
            Json::Object(_) => {
                all(record.fields.iter(), |field| match value.get(&field.name).or(field.default.as_ref()) {
                    Some(item) => fits(schema, field.of, item, budget, depth + 1),
                    None => Ok(false),
                })?
            }
            _ => false,
        },
    })
}

fn all<T>(mut items: impl Iterator<Item = T>, mut fits: impl FnMut(T) -> Result<bool>) -> Result<bool> {
    items.try_fold(true, |fine, item| Ok(fine && fits(item)?))
}
