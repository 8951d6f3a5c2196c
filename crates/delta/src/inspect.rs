use crate::config::Config;
use crate::data::{self, Rows};
use crate::key::{KeyReader, Secret};
use crate::log::{State, FOLDER};
use crate::noted::Noted;
use crate::rows::{Decoder, Layout, Marks, DELETED, LSN, SEQ};
use crate::sink::blocking;
use crate::store::Store;
use crate::table::{folder_of, read_domains, Mark};
use crate::vector;
use arrow_array::cast::AsArray;
use arrow_array::Array;
use roaring::RoaringBitmap;
use std::collections::HashSet;
use std::sync::Arc;
use tidewire_change::{topic::topic_of, Error, ErrorKind, Key, Position, Result, Row, Schema, TableName};
use tidewire_connector::{BoxFuture, Inspect, Scan, Standing};
use tokio::sync::mpsc;

/// Rows that travel from the reading thread at once.
const ROWS_AT_ONCE: usize = 4096;

/// Reads the lake's tables as they are, on its own: another process may be writing them.
pub struct DeltaInspect {
    config: Arc<Config>,
    is_shared: bool,
}

impl DeltaInspect {
    pub fn new(config: Config) -> DeltaInspect {
        DeltaInspect { config: Arc::new(config), is_shared: false }
    }

    /// Several processes write the lake: how far a table is stands beside it.
    pub fn of_shared(config: Config) -> DeltaInspect {
        DeltaInspect { config: Arc::new(config), is_shared: true }
    }
}

/// Rows, each with how it stands to the position that was asked about.
type Standings = Vec<(Row, Standing)>;

impl DeltaInspect {
    async fn rows(
        &mut self,
        scan: &Scan,
        since: Option<Position>,
        each: &mut (dyn FnMut(Row, Standing) + Send),
    ) -> Result<Position> {
        let (sender, mut receiver) = mpsc::channel::<Standings>(4);
        let (config, scan) = (self.config.clone(), scan.clone());
        let reading = tokio::spawn(blocking(move || read_table(&config, &scan, since, &sender)));
        while let Some(rows) = receiver.recv().await {
            rows.into_iter().for_each(|(row, standing)| each(row, standing));
        }
        reading.await.unwrap_or_else(|e| Err(Error::bug("the task that reads a table panicked").caused_by(e)))
    }
}

impl Inspect for DeltaInspect {
    fn scan<'a>(
        &'a mut self,
        scan: &'a Scan,
        each: &'a mut (dyn FnMut(Row) + Send),
    ) -> BoxFuture<'a, Result<Position>> {
        Box::pin(async move { self.rows(scan, None, &mut |row, _| each(row)).await })
    }

    fn scan_since<'a>(
        &'a mut self,
        scan: &'a Scan,
        since: Position,
        each: &'a mut (dyn FnMut(Row, Standing) + Send),
    ) -> BoxFuture<'a, Result<Position>> {
        Box::pin(self.rows(scan, Some(since), each))
    }

    fn holds<'a>(&'a mut self, table: &'a TableName) -> BoxFuture<'a, Result<Option<Position>>> {
        let (config, table) = (self.config.clone(), table.clone());
        match self.is_shared {
            false => Box::pin(async { Ok(None) }),
            true => Box::pin(blocking(move || match View::of(&config, &table) {
                Ok(view) => Ok(Some(view.holds())),
                // Whoever waits for it waits until it is made.
                Err(error) if error.kind() == ErrorKind::Lost => Ok(Some(Position::default())),
                Err(error) => Err(error),
            })),
        }
    }

    fn schemas(&mut self) -> BoxFuture<'_, Result<Vec<Arc<Schema>>>> {
        let config = self.config.clone();
        Box::pin(blocking(move || {
            let lake = config.lake();
            let mut schemas = Vec::new();
            for schema in lake.folders("")? {
                for table in lake.folders(&schema)? {
                    let store = lake.below(&format!("{schema}/{table}"));
                    if !store.folders("")?.iter().any(|name| name == FOLDER) {
                        continue;
                    }
                    let Some(state) = State::load(&store, None)? else { continue };
                    if let Some((mark, layout)) = read_domains(&state, &store.root())? {
                        if mark.owner == config.owner() {
                            schemas.push(layout.schema);
                        }
                    }
                }
            }
            Ok(schemas)
        }))
    }
}

struct View {
    store: Store,
    state: State,
    mark: Mark,
    layout: Layout,
    /// What was noted beside the table.
    noted: Option<Position>,
}

fn read_table(
    config: &Config,
    scan: &Scan,
    since: Option<Position>,
    sender: &mpsc::Sender<Standings>,
) -> Result<Position> {
    let view = View::of(config, &scan.schema.table)?;
    view.send_rows(scan, since, sender)?;
    Ok(view.holds())
}

impl View {
    fn of(config: &Config, table: &TableName) -> Result<View> {
        let topic = topic_of(table);
        // Read first: all that they say was in the table before the table was looked at.
        let notes = Noted::read_all(&config.lake(), &Config { only: Some(topic.clone()), ..config.clone() })?;
        let store = config.lake().below(&folder_of(table));
        let place = store.root();
        let missing = || Error::lost(format!("{place}: there is no table {table}")).on_table(table);
        let foreign = || Error::invalid(format!("{place} isn't a table that Tidewire made for {table}"));
        let state = State::load(&store, None)?.ok_or_else(missing)?;
        let (mark, layout) = read_domains(&state, &place)?.ok_or_else(foreign)?;
        let covers = |noted: &Noted| noted.covers(&topic, &state.metadata.id, state.version);
        let noted = notes.iter().filter(|noted| covers(noted)).map(|noted| noted.boundary.position).max();
        Ok(View { store, state, mark, layout, noted })
    }

    /// Up to where all is there.
    fn holds(&self) -> Position {
        self.mark.boundary.position.max(self.noted.unwrap_or_default())
    }

    fn send_rows(&self, scan: &Scan, since: Option<Position>, sender: &mpsc::Sender<Standings>) -> Result<()> {
        let decoder = self.decoder(&scan.schema, 0..scan.schema.columns.len());
        let keys = scan.keys.as_ref().map(|keys| KeyFilter::new(self, &scan.schema, keys)).transpose()?;
        let mut rows = Vec::with_capacity(ROWS_AT_ONCE);
        for add in self.state.files.values() {
            let struck = add.deletion_vector.as_ref().map(|v| vector::read(&self.store, v)).transpose()?;
            let only = keys.as_ref().map(|keys| keys.rows_in(self, &add.path, struck.as_ref())).transpose()?;
            if only.as_ref().is_some_and(RoaringBitmap::is_empty) {
                continue;
            }
            let which = only.as_ref().map_or(Rows::But(struck.as_ref()), Rows::Only);
            let mut columns = decoder.projection();
            match since {
                Some(_) => columns.extend([LSN, SEQ, DELETED]),
                None => columns.push(DELETED),
            }
            data::read(&self.store, &add.path, &columns, which, |_, batch| {
                let deleted = batch.column_by_name(DELETED).and_then(|c| c.as_boolean_opt());
                let marks = since.map(|since| Marks::of(batch).map(|marks| (marks, since))).transpose()?;
                decoder.rows(batch, |i, row| {
                    let is_later = marks.as_ref().is_some_and(|(marks, since)| marks.position(i) >= *since);
                    let is_gone = deleted.is_some_and(|deleted| deleted.is_valid(i) && deleted.value(i));
                    let standing = match (is_gone, is_later) {
                        (true, false) => return Ok(()),
                        (true, true) => Standing::Gone,
                        (false, true) => Standing::Later,
                        (false, false) => Standing::Below,
                    };
                    rows.push((row, standing));
                    match rows.len() >= ROWS_AT_ONCE {
                        true => send(sender, &mut rows),
                        false => Ok(()),
                    }
                })
            })?;
        }
        send(sender, &mut rows)
    }

    /// Decodes columns of a schema of the source's.
    fn decoder(&self, schema: &Schema, columns: impl Iterator<Item = usize>) -> Decoder {
        let place = |i: usize| {
            let column = &self.layout.columns[self.layout.place_of(&schema.columns[i])?];
            Some((column.name.clone(), column.physical.clone()))
        };
        Decoder::new(columns.map(place).collect())
    }
}

fn send(sender: &mpsc::Sender<Standings>, rows: &mut Standings) -> Result<()> {
    let rows = std::mem::replace(rows, Vec::with_capacity(ROWS_AT_ONCE));
    sender.blocking_send(rows).map_err(|_| Error::unavailable("whoever asked for the rows has gone"))
}

/// Picks rows by their keys.
struct KeyFilter {
    wanted: HashSet<u128>,
    secret: Secret,
    /// Only the key columns, in key order.
    schema: Schema,
    decoder: Decoder,
}

impl KeyFilter {
    fn new(view: &View, schema: &Schema, keys: &[Row]) -> Result<KeyFilter> {
        let Key::Columns(columns) = &schema.key else {
            return Err(Error::invalid(format!("rows of {} can't be asked for by key: it has none", schema.table)));
        };
        let secret = Secret::random();
        let mut reader = KeyReader::new(schema, secret);
        let wanted = keys.iter().map(|row| reader.key(row)).collect::<Result<_>>()?;
        let only = Schema {
            columns: columns.iter().map(|i| schema.columns[usize::from(*i)].clone()).collect(),
            key: Key::Columns((0..columns.len() as u16).collect()),
            ..schema.clone()
        };
        let decoder = view.decoder(schema, columns.iter().map(|i| usize::from(*i)));
        Ok(KeyFilter { wanted, secret, schema: only, decoder })
    }

    fn rows_in(&self, view: &View, path: &str, struck: Option<&RoaringBitmap>) -> Result<RoaringBitmap> {
        let mut reader = KeyReader::new(&self.schema, self.secret);
        let mut found = RoaringBitmap::new();
        data::read(&view.store, path, &self.decoder.projection(), Rows::But(struck), |numbers, batch| {
            self.decoder.rows(batch, |i, row| {
                if self.wanted.contains(&reader.key(&row)?) {
                    found.insert(numbers[i]);
                }
                Ok(())
            })
        })?;
        Ok(found)
    }
}
