//! The whole state of a store in a form that does not depend on its numbers.

use std::any::Any;
use std::collections::BTreeMap;

use dwell_hub::store::{HubStore, HubTransaction, Span};
use dwell_hub::{DAY_NS, Resolution, Row, Window};
use dwell_rollup::BootId;

/// A store of a test.
pub(crate) struct TestStore {
    store: Box<dyn HubStore + Send>,
    open: Box<dyn Fn() -> Box<dyn HubStore + Send>>,
    /// Removes the database when it is dropped.
    _place: Box<dyn Any>,
}

impl TestStore {
    /// Opens an empty database, which `open` opens again. Its place is dropped at the end.
    pub(crate) fn new(
        open: impl Fn() -> Box<dyn HubStore + Send> + 'static,
        place: impl Any,
    ) -> Self {
        Self { store: open(), open: Box::new(open), _place: Box::new(place) }
    }

    /// Opens the database as another hub does.
    pub(crate) fn open(&self) -> Box<dyn HubStore + Send> {
        (self.open)()
    }
}

impl std::ops::Deref for TestStore {
    type Target = dyn HubStore;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl std::ops::DerefMut for TestStore {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.store
    }
}

/// Creates an empty store.
pub(crate) type Create<'a> = &'a dyn Fn() -> TestStore;

/// Number of rows of each resolution.
pub(crate) fn row_counts(store: &mut dyn HubStore) -> [usize; 4] {
    Resolution::ALL.map(|resolution| rows(store, resolution).len())
}

pub(crate) fn undated(store: &mut dyn HubStore) -> u64 {
    store.begin_to_read().unwrap().nodes().unwrap().iter().map(|node| node.undated).sum()
}

/// State by kind and name, as text.
pub(crate) type State = BTreeMap<String, String>;

/// All times of the tests.
pub(crate) const FROM: i64 = 0;
pub(crate) const TO: i64 = 40_000 * DAY_NS;

/// Returns the state, without counters of duplicates.
pub(crate) fn state(store: &mut dyn HubStore) -> State {
    let mut transaction = store.begin_to_read().unwrap();
    let mut state = State::new();
    for node in transaction.nodes().unwrap() {
        let (name, counts) = (&node.name, node.counts);
        let counted =
            format!("{} {} {} {}", counts.stored, counts.expired, counts.bad, node.undated);
        state.insert(format!("node {name}"), counted);
        for (incarnation, of) in transaction.incarnations_of(node.id).unwrap() {
            state.insert(format!("incarnation {name} {incarnation}"), format!("{of:?}"));
        }
        for status in transaction.statuses(node.id, FROM, TO).unwrap() {
            let key = format!("status {name} {} {:?}", status.wall_ns, status.key);
            state.insert(key, format!("{:?}", status.status));
        }
        for boot in 0..=u8::MAX {
            let of = (node.id, BootId([boot; 16]));
            let undated = transaction.undated(of, i64::MIN, i64::MAX, None, u64::MAX).unwrap();
            for undated in undated {
                let key = format!("undated {name} {:?}", undated.key);
                state.insert(key, format!("{:?}", undated.dated_ns));
            }
        }
    }
    for (key, row) in all_rows(&mut *transaction) {
        state.insert(key, row);
    }
    for window in Window::ALL {
        let streams: BTreeMap<_, _> =
            transaction.streams(None).unwrap().into_iter().map(|sent| (sent.id, sent)).collect();
        for (id, figures) in transaction.windows(window, None).unwrap() {
            let sent = &streams[&id];
            let key = format!("window {window:?} {} {:?}", sent.sender, sent.stream);
            state.insert(key, format!("{figures:?}"));
        }
    }
    state
}

fn all_rows(transaction: &mut dyn HubTransaction) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for stream in transaction.streams(None).unwrap() {
        let span = Span { stream: stream.id, from_ns: FROM, to_ns: TO };
        for resolution in Resolution::ALL {
            for row in transaction.rows(resolution, &[span]).unwrap().remove(0) {
                let Row { stream: _, start_ns, key, counts, delays, duration_ns, clock, .. } = row;
                let key = format!(
                    "row {} {:?} {resolution} {start_ns} {key:?}",
                    stream.sender, stream.stream
                );
                all.push((key, format!("{counts:?} {duration_ns} {clock:?} {delays:?}")));
            }
        }
    }
    all
}

/// Rows of a resolution, of all streams.
pub(crate) fn rows(store: &mut dyn HubStore, resolution: Resolution) -> Vec<Row> {
    let mut transaction = store.begin_to_read().unwrap();
    let streams = transaction.streams(None).unwrap();
    let spans: Vec<_> =
        streams.iter().map(|stream| Span { stream: stream.id, from_ns: FROM, to_ns: TO }).collect();
    transaction.rows(resolution, &spans).unwrap().concat()
}
