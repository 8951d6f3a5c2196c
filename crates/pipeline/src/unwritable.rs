//! Tables of which the bus could not write a message. Which value has no place in the messages' form is found out when it is met, so the append
//! fails as a whole; capture begins again behind the last that was durable, and the table is refused there before anything of it is told.

use crate::shared::locked;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tidewire_change::{Error, ErrorKind, Result, Schema, TableName};
use tidewire_connector::{BoxFuture, Contract, Refusal};

/// Why, by table.
#[derive(Default)]
pub(crate) struct Unwritable(Mutex<BTreeMap<String, String>>);

/// The bus's contract, and what was met.
struct Both {
    met: Arc<Unwritable>,
    of_bus: Arc<dyn Contract>,
}

impl Unwritable {
    /// An append failed: is it for what was met in a table?
    pub fn note(&self, error: &Error) {
        if let (ErrorKind::Schema, Some(table)) = (error.kind(), error.table()) {
            let ways_out = error.hint_text().map(|hint| format!(" \u{2014} {hint}")).unwrap_or_default();
            locked(&self.0).insert(table.to_string(), format!("{}{ways_out}", error.message()));
        }
    }

    pub fn has(&self, error: &Error) -> bool {
        error.table().is_some_and(|table| locked(&self.0).contains_key(table))
    }

    pub fn beside(self: &Arc<Self>, of_bus: Arc<dyn Contract>) -> Arc<dyn Contract> {
        Arc::new(Both { met: self.clone(), of_bus })
    }
}

impl Contract for Both {
    fn takes(&self, schema: Arc<Schema>) -> BoxFuture<'_, Result<Option<Refusal>>> {
        let met = locked(&self.met.0).get(&schema.table.to_string()).cloned();
        match met {
            Some(why) => Box::pin(std::future::ready(Ok(Some(Refusal { why, passes: false })))),
            None => self.of_bus.takes(schema),
        }
    }

    fn forget(&self, table: &TableName) {
        locked(&self.met.0).remove(&table.to_string());
        self.of_bus.forget(table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_change::{Identity, Key};

    struct TakesAll;

    impl Contract for TakesAll {
        fn takes(&self, _: Arc<Schema>) -> BoxFuture<'_, Result<Option<Refusal>>> {
            Box::pin(std::future::ready(Ok(None)))
        }
    }

    #[tokio::test]
    async fn a_table_whose_value_could_not_be_written_is_refused_with_the_way_out_until_it_is_to_be_told_anew() {
        let unwritable = Arc::new(Unwritable::default());
        let contract = unwritable.beside(Arc::new(TakesAll));
        let schema = |name: &str| {
            let table = TableName::new("public", name);
            let (columns, key, identity) = (Vec::new(), Key::WholeRow, Identity::Full);
            Arc::new(Schema { table, columns, key, identity, source_id: 1 })
        };
        let odd = Error::schema("no place").hint("mend it").on_table("public.odd");
        assert!(!unwritable.has(&odd));
        unwritable.note(&Error::schema("of no table"));
        unwritable.note(&Error::unavailable("away").on_table("public.other"));
        unwritable.note(&odd);
        let refused = contract.takes(schema("odd")).await.unwrap().unwrap();
        assert_eq!(refused, Refusal { why: "no place \u{2014} mend it".into(), passes: false });
        assert_eq!(contract.takes(schema("other")).await.unwrap(), None);
        assert_eq!(contract.takes(schema("odd")).await.unwrap(), Some(refused), "however often it is asked");
        contract.forget(&TableName::new("public", "odd"));
        assert_eq!(contract.takes(schema("odd")).await.unwrap(), None);
    }
}
