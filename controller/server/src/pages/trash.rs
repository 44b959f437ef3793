//! Deletions that can be undone: what is deleted disappears from the lists at once, and a command of
//! dwell deletes it after a time. A server that ends before has deleted nothing.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::app::App;

/// Time in which a deletion can be undone.
const UNDO_TIMEOUT: Duration = Duration::from_secs(300);

/// Time after which the deleting command is ended. Removing a device connects to it.
const DELETE_TIMEOUT: Duration = Duration::from_secs(120);

/// What is deleted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deleted {
    /// A run, by name.
    Run(String),
    /// A device, by name.
    Device(String),
}

impl Deleted {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Run(name) | Self::Device(name) => name,
        }
    }

    /// Path of the page, below which the forms are.
    pub(crate) fn path(&self) -> String {
        match self {
            Self::Run(name) => format!("/runs/{name}"),
            Self::Device(name) => format!("/devices/{name}"),
        }
    }

    /// Noun and name.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Run(name) => format!("Run {name}"),
            Self::Device(name) => format!("Device {name}"),
        }
    }

    fn command(&self) -> Vec<OsString> {
        let words: &[&str] = match self {
            Self::Run(_) => &["delete", "--yes", "--"],
            Self::Device(_) => &["device", "remove", "--yes", "--"],
        };
        words.iter().chain([&self.name()]).map(OsString::from).collect()
    }
}

/// A deletion.
#[derive(Clone, Debug)]
pub(crate) struct Deletion {
    /// What is deleted.
    pub(crate) what: Deleted,
    /// When it can no longer be undone.
    pub(crate) until: Timestamp,
    /// Why the command failed; it is not deleted then.
    pub(crate) failed: Option<String>,
}

impl Deletion {
    /// Time of day until which it can be undone, in UTC.
    pub(crate) fn until_text(&self) -> String {
        self.until.strftime("%H:%M:%SZ").to_string()
    }
}

/// All deletions that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Trash(Mutex<BTreeMap<Deleted, Deletion>>);

impl Trash {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Deleted, Deletion>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is hidden from lists.
    pub(crate) fn contains(&self, what: &Deleted) -> bool {
        self.lock().get(what).is_some_and(|deletion| deletion.failed.is_none())
    }

    pub(crate) fn has_run(&self, run: &str) -> bool {
        self.contains(&Deleted::Run(run.to_owned()))
    }

    pub(crate) fn has_device(&self, name: &str) -> bool {
        self.contains(&Deleted::Device(name.to_owned()))
    }

    /// Returns all deletions.
    pub(crate) fn all(&self) -> Vec<Deletion> {
        self.lock().values().cloned().collect()
    }

    /// Undoes a deletion, or dismisses a failed one.
    pub(crate) fn undo(&self, what: &Deleted) {
        self.lock().remove(what);
    }

    /// Starts a deletion; `None` if it has started before.
    fn begin(&self, what: &Deleted) -> Option<Timestamp> {
        let until = Timestamp::now() + UNDO_TIMEOUT;
        let mut all = self.lock();
        if all.get(what).is_some_and(|deletion| deletion.failed.is_none()) {
            return None;
        }
        all.insert(what.clone(), Deletion { what: what.clone(), until, failed: None });
        Some(until)
    }

    /// Whether this deletion is still wanted.
    fn is_due(&self, what: &Deleted, until: Timestamp) -> bool {
        self.lock().get(what).is_some_and(|it| it.until == until && it.failed.is_none())
    }

    fn fail(&self, what: &Deleted, reason: String) {
        if let Some(deletion) = self.lock().get_mut(what) {
            deletion.failed = Some(reason);
        }
    }
}

impl App {
    /// Deletes something unless that is undone in time.
    pub(crate) fn delete_later(&self, what: Deleted) {
        let Some(until) = self.trash().begin(&what) else { return };
        let app = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(UNDO_TIMEOUT).await;
            if app.trash().is_due(&what, until) {
                app.delete_now(&what).await;
            }
        });
    }

    /// Deletes something for ever.
    async fn delete_now(&self, what: &Deleted) {
        match self.command(what.command(), DELETE_TIMEOUT).await {
            Ok(output) if output.code == Some(0) => self.trash().undo(what),
            Ok(output) => self.trash().fail(what, super::said(&output)),
            Err(error) => self.trash().fail(what, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undone_deletion_is_not_due() {
        let trash = Trash::default();
        let run = Deleted::Run("20261126-1".to_owned());
        let until = trash.begin(&run).unwrap();
        assert!(trash.has_run("20261126-1") && trash.is_due(&run, until));
        assert_eq!(trash.begin(&run), None);
        trash.undo(&run);
        assert!(!trash.has_run("20261126-1") && !trash.is_due(&run, until));
    }

    #[test]
    fn failed_deletion_has_its_reason_and_can_be_repeated() {
        let trash = Trash::default();
        let device = Deleted::Device("pi4".to_owned());
        let until = trash.begin(&device).unwrap();
        trash.fail(&device, "unreachable".to_owned());
        assert!(!trash.has_device("pi4") && !trash.is_due(&device, until));
        assert_eq!(trash.all()[0].failed.as_deref(), Some("unreachable"));
        assert!(trash.begin(&device).is_some() && trash.has_device("pi4"));
    }

    #[test]
    fn names_are_arguments_after_the_options() {
        let command = Deleted::Run("--help".to_owned()).command();
        assert_eq!(command, ["delete", "--yes", "--", "--help"]);
    }
}
