//! Devices and their checks.

use std::collections::HashMap;

use rusqlite::types::ValueRef;
use rusqlite::{ErrorCode, OptionalExtension, Row, TransactionBehavior, params};

use super::leases::refuse_leased;
use super::{Store, time_text};
use crate::device::{CheckResult, DeviceCheck, DeviceRow, LastCheck};
use crate::error::StoreError;
use crate::lock::runner;
use crate::run::RunRow;

impl Store {
    /// Adds a device with its description as JSON.
    ///
    /// # Errors
    /// [`StoreError::DeviceExists`] if there is a device of this name.
    pub fn add_device(&mut self, name: &str, description: &str) -> Result<(), StoreError> {
        let added = self.db.execute(
            "INSERT INTO devices (name, added, description) VALUES (?1, ?2, ?3)",
            params![name, time_text(jiff::Timestamp::now()), description],
        );
        added.map_err(name_conflict(name))?;
        Ok(())
    }

    /// Returns all devices, by name.
    pub fn devices(&self) -> Result<Vec<DeviceRow>, StoreError> {
        let mut select =
            self.db.prepare("SELECT id, name, added, description FROM devices ORDER BY name")?;
        let devices = select.query_map([], device_row)?;
        Ok(devices.collect::<Result<_, _>>()?)
    }

    /// Returns the device of this name.
    pub fn device(&self, name: &str) -> Result<Option<DeviceRow>, StoreError> {
        let select = "SELECT id, name, added, description FROM devices WHERE name = ?1";
        Ok(self.db.query_row(select, [name], device_row).optional()?)
    }

    /// Replaces name and description of a device. Returns false, and changes nothing, if another
    /// process has removed or changed it since `device` was read.
    ///
    /// # Errors
    /// [`StoreError::DeviceExists`] if another device has this name; [`StoreError::Leased`] if a run,
    /// which knows the device by its name, uses a device that is to be renamed.
    pub fn set_device(
        &mut self,
        device: &DeviceRow,
        name: &str,
        description: &str,
    ) -> Result<bool, StoreError> {
        let runner = runner(&self.dir);
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if name != device.name {
            refuse_leased(&transaction, device, runner)?;
        }
        let changed = transaction.execute(
            "UPDATE devices SET name = ?4, description = ?5
             WHERE id = ?1 AND name = ?2 AND description = ?3",
            params![device.id, device.name, device.description, name, description],
        );
        let is_changed = changed.map_err(name_conflict(name))? == 1;
        transaction.commit()?;
        Ok(is_changed)
    }

    /// Removes a device with its checks. Its runs stay, without a device.
    ///
    /// # Errors
    /// [`StoreError::Leased`] if a run uses the device.
    pub fn remove_device(&mut self, device: &DeviceRow) -> Result<(), StoreError> {
        let runner = runner(&self.dir);
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        refuse_leased(&transaction, device, runner)?;
        transaction.execute("DELETE FROM devices WHERE id = ?1", [device.id])?;
        transaction.commit()?;
        Ok(())
    }

    /// Records a check that ended now, and returns the time, RFC 3339. Of the earlier checks of the
    /// device, only the last answer is kept. Records nothing if the device was removed.
    pub fn add_check(
        &mut self,
        device: &DeviceRow,
        result: &CheckResult,
    ) -> Result<String, StoreError> {
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let at = time_text(jiff::Timestamp::now());
        let (arch, kernel, build, answer, error) = match result {
            CheckResult::Answer { arch, kernel, build, answer } => {
                (Some(arch), Some(kernel), Some(build), Some(answer), None)
            }
            CheckResult::Error(error) => (None, None, None, None, Some(error)),
        };
        transaction.execute(
            "INSERT INTO device_checks (device_id, at, arch, kernel, build, answer, error)
             SELECT id, ?2, ?3, ?4, ?5, ?6, ?7 FROM devices WHERE id = ?1",
            params![device.id, at, arch, kernel, build, answer, error],
        )?;
        transaction.execute(
            "DELETE FROM device_checks WHERE device_id = ?1
             AND id < (SELECT max(id) FROM device_checks WHERE device_id = ?1)
             AND id IS NOT (SELECT max(id) FROM device_checks WHERE device_id = ?1 AND answer IS NOT NULL)",
            [device.id],
        )?;
        transaction.commit()?;
        Ok(at)
    }

    /// Returns the last check of a device.
    pub fn last_check(&self, device: &DeviceRow) -> Result<Option<DeviceCheck>, StoreError> {
        self.newest_check(device, "")
    }

    /// Returns the last check that the device answered.
    pub fn last_answer(&self, device: &DeviceRow) -> Result<Option<DeviceCheck>, StoreError> {
        self.newest_check(device, "AND answer IS NOT NULL")
    }

    /// Returns the last check of every device that was checked, by the name of the device. Of the
    /// answers, which are long, it reads only the number at this path of SQLite's JSON functions.
    pub fn last_checks(&self, path: &str) -> Result<HashMap<String, LastCheck>, StoreError> {
        let mut select = self.db.prepare(
            "SELECT name, at, error,
                 CASE WHEN json_valid(answer) THEN json_extract(answer, ?1) END
             FROM devices JOIN device_checks AS last ON last.id = (
                 SELECT max(id) FROM device_checks WHERE device_id = devices.id)",
        )?;
        let checks = select.query_map([path], |row| {
            let number = match row.get_ref(3)? {
                ValueRef::Integer(number) => Some(number),
                _ => None,
            };
            Ok((row.get(0)?, LastCheck { at: row.get(1)?, error: row.get(2)?, number }))
        })?;
        Ok(checks.collect::<Result<_, _>>()?)
    }

    /// Returns the number of devices that answered their last check.
    pub fn answering_devices(&self) -> Result<u64, StoreError> {
        let count: i64 = self.db.query_row(
            "SELECT count(*) FROM device_checks AS last
             WHERE answer IS NOT NULL AND id = (
                 SELECT max(id) FROM device_checks WHERE device_id = last.device_id)",
            [],
            |row| row.get(0),
        )?;
        Ok(count.max(0) as u64)
    }

    fn newest_check(
        &self,
        device: &DeviceRow,
        condition: &str,
    ) -> Result<Option<DeviceCheck>, StoreError> {
        let select = format!(
            "SELECT at, arch, kernel, build, answer, error FROM device_checks
             WHERE device_id = ?1 {condition} ORDER BY id DESC LIMIT 1"
        );
        // Cached, because lists of devices ask for each device.
        Ok(self.db.prepare_cached(&select)?.query_row([device.id], check_row).optional()?)
    }

    /// Returns the runs in which a node was bound to this device, newest first.
    pub fn runs_of_device(&self, device: &DeviceRow) -> Result<Vec<RunRow>, StoreError> {
        self.select_runs(
            "WHERE runs.id IN (SELECT run_id FROM nodes WHERE device_id = ?1)
             ORDER BY runs.id DESC",
            [device.id],
        )
    }

    /// Returns the nodes of a run that were bound to this device, by name. A device that was renamed
    /// keeps its runs.
    pub fn nodes_on_device(
        &self,
        run: &RunRow,
        device: &DeviceRow,
    ) -> Result<Vec<String>, StoreError> {
        let mut select = self
            .db
            .prepare("SELECT node FROM nodes WHERE run_id = ?1 AND device_id = ?2 ORDER BY node")?;
        let nodes = select.query_map([run.id, device.id], |row| row.get(0))?;
        Ok(nodes.collect::<Result<_, _>>()?)
    }
}

fn device_row(row: &Row<'_>) -> rusqlite::Result<DeviceRow> {
    Ok(DeviceRow {
        id: row.get(0)?,
        name: row.get(1)?,
        added: row.get(2)?,
        description: row.get(3)?,
    })
}

fn check_row(row: &Row<'_>) -> rusqlite::Result<DeviceCheck> {
    let text = |place: usize| row.get::<_, Option<String>>(place);
    let result = match text(4)? {
        Some(answer) => CheckResult::Answer {
            arch: text(1)?.unwrap_or_default(),
            kernel: text(2)?.unwrap_or_default(),
            build: text(3)?.unwrap_or_default(),
            answer,
        },
        None => CheckResult::Error(text(5)?.unwrap_or_default()),
    };
    Ok(DeviceCheck { at: row.get(0)?, result })
}

/// Converts a violated uniqueness of the name.
fn name_conflict(name: &str) -> impl FnOnce(rusqlite::Error) -> StoreError {
    move |error| match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation) => StoreError::DeviceExists(name.to_owned()),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rusqlite::Connection;

    use super::*;
    use crate::run::{BoundDevice, RunNode};
    use crate::{NewRun, RunKind};

    fn answer(kernel: &str) -> CheckResult {
        CheckResult::Answer {
            arch: "aarch64".into(),
            kernel: kernel.into(),
            build: "5f".into(),
            answer: "{}".into(),
        }
    }

    fn kernel(check: Option<DeviceCheck>) -> Option<String> {
        match check?.result {
            CheckResult::Answer { kernel, .. } => Some(kernel),
            CheckResult::Error(_) => None,
        }
    }

    /// Creates a run with a node `sender` on the device of this name.
    fn run_on(store: &mut Store, device: &str) -> RunRow {
        let name = store.begin_run(&NewRun::without_trials(RunKind::Run)).unwrap();
        let run = store.run(&name).unwrap();
        let bound = BoundDevice {
            name: device.into(),
            destination: "pi@192.0.2.7".into(),
            program_sha256: "5f".into(),
            arch: "aarch64".into(),
        };
        let node = RunNode {
            node: "sender".into(),
            dwell: "0".into(),
            clock: Some("sender".into()),
            device: Some(bound),
        };
        store.set_node(&run, &node).unwrap();
        assert_eq!(store.nodes(&run).unwrap(), [node]);
        run
    }

    #[test]
    fn last_check_and_last_answer_differ_after_a_failure() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        store.add_device("pi4", "{}").unwrap();
        let device = store.device("pi4").unwrap().unwrap();
        assert_eq!(store.last_check(&device).unwrap(), None);
        store.add_check(&device, &answer("6.1")).unwrap();
        store.add_check(&device, &CheckResult::Error("no route".into())).unwrap();
        let last = store.last_check(&device).unwrap().unwrap();
        assert_eq!(last.result, CheckResult::Error("no route".into()));
        assert_eq!(kernel(store.last_answer(&device).unwrap()).as_deref(), Some("6.1"));
    }

    #[test]
    fn last_check_and_last_answer_of_each_device_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        store.add_device("pi3", "{}").unwrap();
        store.add_device("pi4", "{}").unwrap();
        let [pi3, pi4] = ["pi3", "pi4"].map(|name| store.device(name).unwrap().unwrap());
        store.add_check(&pi3, &answer("5.10")).unwrap();
        store.add_check(&pi4, &answer("6.1")).unwrap();
        store.add_check(&pi4, &answer("6.12")).unwrap();
        for _ in 0..3 {
            store.add_check(&pi4, &CheckResult::Error("no route".into())).unwrap();
        }
        let count = |device: &DeviceRow| -> u32 {
            let select = "SELECT count(*) FROM device_checks WHERE device_id = ?1";
            store.db.query_row(select, [device.id], |row| row.get(0)).unwrap()
        };
        assert_eq!((count(&pi3), count(&pi4)), (1, 2));
        assert_eq!(kernel(store.last_answer(&pi4).unwrap()).as_deref(), Some("6.12"));
        assert_eq!(kernel(store.last_check(&pi4).unwrap()), None, "the last one failed");
    }

    #[test]
    fn last_checks_have_a_number_of_each_answer() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        let answers = [
            ("known", Some(r#"{"doctor":{"ns":7}}"#)),
            ("null", Some(r#"{"doctor":{"ns":null}}"#)),
            ("text", Some(r#"{"doctor":{"ns":"7"}}"#)),
            ("damaged", Some("{")),
            ("failed", None),
        ];
        for (name, answer) in answers {
            store.add_device(name, "{}").unwrap();
            let device = store.device(name).unwrap().unwrap();
            store.add_check(&device, &CheckResult::Error("no route".into())).unwrap();
            let text = String::new;
            let (arch, kernel, build) = (text(), text(), text());
            if let Some(answer) = answer.map(str::to_owned) {
                let answer = CheckResult::Answer { arch, kernel, build, answer };
                store.add_check(&device, &answer).unwrap();
            }
        }
        store.add_device("unchecked", "{}").unwrap();
        let checks = store.last_checks("$.doctor.ns").unwrap();
        assert_eq!(checks.len(), answers.len());
        for (name, answer) in answers {
            let expected = (name == "known").then_some(7);
            assert_eq!(checks[name].number, expected, "{name}");
            assert_eq!(checks[name].error.is_none(), answer.is_some(), "{name}");
        }
        let device = store.device("known").unwrap().unwrap();
        assert_eq!(checks["known"].at, store.last_check(&device).unwrap().unwrap().at);
    }

    #[test]
    fn second_device_of_a_name_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        store.add_device("pi4", "{}").unwrap();
        let error = store.add_device("pi4", "{}").unwrap_err();
        assert!(matches!(error, StoreError::DeviceExists(name) if name == "pi4"));
        store.add_device("pi3", "{}").unwrap();
        let device = store.device("pi3").unwrap().unwrap();
        let error = store.set_device(&device, "pi4", "{}").unwrap_err();
        assert!(matches!(error, StoreError::DeviceExists(name) if name == "pi4"));
    }

    #[test]
    fn change_based_on_old_data_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        store.add_device("pi4", "{\"notes\":\"a\"}").unwrap();
        let device = store.device("pi4").unwrap().unwrap();
        assert!(store.set_device(&device, "pi5", "{\"notes\":\"b\"}").unwrap());
        assert!(!store.set_device(&device, "pi4", "{\"notes\":\"c\"}").unwrap());
        assert_eq!(store.device("pi4").unwrap(), None);
        let renamed = store.device("pi5").unwrap().unwrap();
        assert_eq!(renamed.description, "{\"notes\":\"b\"}");
    }

    #[test]
    fn runs_follow_a_renamed_device_but_not_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        store.add_device("pi4", "{}").unwrap();
        let run = run_on(&mut store, "pi4");
        let device = store.device("pi4").unwrap().unwrap();
        assert!(store.set_device(&device, "pi5", "{}").unwrap());
        let device = store.device("pi5").unwrap().unwrap();
        let runs = |store: &Store, device: &DeviceRow| {
            let runs = store.runs_of_device(device).unwrap();
            runs.into_iter().map(|run| run.run).collect::<Vec<_>>()
        };
        assert_eq!(runs(&store, &device), [run.run.as_str()]);
        assert_eq!(store.nodes_on_device(&run, &device).unwrap(), ["sender"]);
        assert_eq!(store.run(&run.run).unwrap().owner.as_deref(), Some("alice@lab"));
        // Another board of the old name has no runs, and neither has one added after a removal.
        store.add_device("pi4", "{}").unwrap();
        assert!(runs(&store, &store.device("pi4").unwrap().unwrap()).is_empty());
        store.remove_device(&device).unwrap();
        store.add_device("pi5", "{}").unwrap();
        assert!(runs(&store, &store.device("pi5").unwrap().unwrap()).is_empty());
        let bound = store.nodes(&run).unwrap().remove(0).device.unwrap();
        assert_eq!(bound.name, "pi4", "the run still says which device it used");
    }

    #[test]
    fn check_of_a_removed_device_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        store.add_device("pi4", "{}").unwrap();
        let device = store.device("pi4").unwrap().unwrap();
        store.add_check(&device, &answer("6.1")).unwrap();
        store.remove_device(&device).unwrap();
        store.add_check(&device, &answer("6.1")).unwrap();
        let count = "SELECT count(*) FROM device_checks";
        assert_eq!(store.db.query_row(count, [], |row| row.get(0)), Ok(0));
    }

    #[test]
    fn concurrent_changes_of_a_device_lose_nothing() {
        const CHANGES: usize = 20;
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        store.add_device("pi4", "0").unwrap();
        let count_up = || {
            let mut store = Store::open(dir.path()).unwrap();
            for _ in 0..CHANGES {
                let device = loop {
                    let device = store.device("pi4").unwrap().unwrap();
                    let next = device.description.parse::<usize>().unwrap() + 1;
                    if store.set_device(&device, "pi4", &next.to_string()).unwrap() {
                        break device;
                    }
                };
                store.add_check(&device, &answer("6.1")).unwrap();
            }
        };
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(count_up);
            }
        });
        let device = store.device("pi4").unwrap().unwrap();
        assert_eq!(device.description, (3 * CHANGES).to_string());
        let db = Connection::open(dir.path().join("catalogue.sqlite")).unwrap();
        let count = "SELECT count(*) FROM device_checks";
        assert_eq!(db.query_row(count, [], |row| row.get(0)), Ok(1), "the last check is kept");
    }
}
