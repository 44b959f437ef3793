//! Leases: the exclusive use of a device by a run.
//!
//! A lease is valid while the process that took it holds the runner's lock of the directory, which
//! the kernel releases when the process ends. A runner replaces all leases of others: it holds the
//! lock, so their runners are dead, even if one had the same process number.

use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};

use super::{Store, time_text};
use crate::device::{DeviceRow, Lease};
use crate::error::StoreError;
use crate::lock::{Runner, runner};
use crate::run::RunRow;

const SELECT: &str = "SELECT devices.name, runs.run, leases.owner, since, pid
     FROM leases JOIN devices ON devices.id = device_id JOIN runs ON runs.id = run_id";

impl Store {
    /// Leases the device of this name to a run of this process, which must hold the runner's lock of
    /// the directory. Replaces any other lease: its runner is dead.
    ///
    /// # Errors
    /// [`StoreError::NoDevice`] if the device does not exist.
    pub fn lease(&mut self, device: &str, run: &RunRow, owner: &str) -> Result<(), StoreError> {
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let select = "SELECT id FROM devices WHERE name = ?1";
        let found: Option<i64> =
            transaction.query_row(select, [device], |row| row.get(0)).optional()?;
        let id = found.ok_or_else(|| StoreError::NoDevice(device.to_owned()))?;
        transaction.execute(
            "INSERT OR REPLACE INTO leases (device_id, run_id, owner, since, pid)
             VALUES (?1, ?2, ?3, ?4, ?5)",
            params![id, run.id, owner, time_text(jiff::Timestamp::now()), std::process::id()],
        )?;
        transaction.commit()?;
        Ok(())
    }

    /// Ends all leases of a run.
    pub fn release(&mut self, run: &RunRow) -> Result<(), StoreError> {
        self.db.execute("DELETE FROM leases WHERE run_id = ?1", [run.id])?;
        Ok(())
    }

    /// Returns the lease of a device, valid or stale.
    pub fn lease_of(&self, device: &DeviceRow) -> Result<Option<Lease>, StoreError> {
        lease_of(&self.db, device.id, runner(&self.dir))
    }

    /// Returns all leases, by device.
    pub fn leases(&self) -> Result<Vec<Lease>, StoreError> {
        let runner = runner(&self.dir);
        let mut select = self.db.prepare(&format!("{SELECT} ORDER BY devices.name"))?;
        let leases = select.query_map([], |row| lease_row(row, runner))?;
        Ok(leases.collect::<Result<_, _>>()?)
    }
}

/// Fails if a run uses the device.
pub(super) fn refuse_leased(
    db: &Connection,
    device: &DeviceRow,
    runner: Option<Runner>,
) -> Result<(), StoreError> {
    match lease_of(db, device.id, runner)? {
        Some(lease) if !lease.stale => Err(StoreError::Leased(Box::new(lease))),
        _ => Ok(()),
    }
}

fn lease_of(
    db: &Connection,
    device: i64,
    runner: Option<Runner>,
) -> Result<Option<Lease>, StoreError> {
    let select = format!("{SELECT} WHERE device_id = ?1");
    Ok(db.query_row(&select, [device], |row| lease_row(row, runner)).optional()?)
}

fn lease_row(row: &Row<'_>, runner: Option<Runner>) -> rusqlite::Result<Lease> {
    let pid = row.get(4)?;
    Ok(Lease {
        device: row.get(0)?,
        run: row.get(1)?,
        owner: row.get(2)?,
        since: row.get(3)?,
        pid,
        stale: match runner {
            None => true,
            Some(Runner::Pid(holder)) => holder != pid,
            Some(Runner::Invisible) => false,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NewRun, RunKind};

    fn run(store: &mut Store) -> RunRow {
        let name = store.begin_run(&NewRun::without_trials(RunKind::Run)).unwrap();
        store.run(&name).unwrap()
    }

    fn with_devices(names: &[&str]) -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        names.iter().for_each(|name| store.add_device(name, "{}").unwrap());
        (dir, store)
    }

    #[test]
    fn leased_device_cannot_be_removed_until_released() {
        let (_dir, mut store) = with_devices(&["pi3", "pi4"]);
        let _lock = store.lock().unwrap();
        let (first, second) = (run(&mut store), run(&mut store));
        store.lease("pi4", &first, "alice@lab").unwrap();
        store.lease("pi4", &first, "alice@lab").unwrap();
        let device = store.device("pi4").unwrap().unwrap();
        let text = store.remove_device(&device).unwrap_err().to_string();
        let wanted = format!("device pi4 is in use by alice@lab, run {}, since ", first.run);
        assert!(text.starts_with(&wanted), "{text}");
        let renamed = store.set_device(&device, "pi5", "{}");
        assert!(matches!(renamed, Err(StoreError::Leased(_))), "{renamed:?}");
        assert!(store.set_device(&device, "pi4", "{ }").unwrap(), "other fields may change");
        store.release(&first).unwrap();
        store.lease("pi3", &second, "bob@lab").unwrap();
        store.lease("pi4", &second, "bob@lab").unwrap();
        let leases = store.leases().unwrap();
        let owners = leases.iter().map(|it| (it.device.as_str(), it.owner.as_str(), it.stale));
        assert_eq!(
            owners.collect::<Vec<_>>(),
            [("pi3", "bob@lab", false), ("pi4", "bob@lab", false)]
        );
    }

    #[test]
    fn lease_is_stale_without_its_runner() {
        let (_dir, mut store) = with_devices(&["pi4"]);
        let lock = store.lock().unwrap();
        let dead = run(&mut store);
        store.lease("pi4", &dead, "alice@lab").unwrap();
        assert!(!store.leases().unwrap()[0].stale);
        drop(lock);
        assert!(store.leases().unwrap()[0].stale, "no runner is active");
        // The next runner has the same process number, as the first process of a container.
        let _lock = store.lock().unwrap();
        let next = run(&mut store);
        store.lease("pi4", &next, "bob@lab").unwrap();
        assert_eq!(store.leases().unwrap()[0].run, next.run);
        // Another runner is active, as after a crash.
        let other_pid = "UPDATE leases SET pid = pid + 1";
        store.db.execute(other_pid, []).unwrap();
        assert!(store.leases().unwrap()[0].stale, "another process is the runner");
        store.lease("pi4", &next, "bob@lab").unwrap();
        let leases = store.leases().unwrap();
        assert_eq!((leases.len(), leases[0].run.as_str(), leases[0].stale), (1, &*next.run, false));
    }

    #[test]
    fn removed_device_or_run_ends_its_lease() {
        let (_dir, mut store) = with_devices(&["pi3", "pi4"]);
        let first = run(&mut store);
        store.lease("pi3", &first, "alice@lab").unwrap();
        store.lease("pi4", &first, "alice@lab").unwrap();
        // Both leases are stale: this process is not the runner.
        let device = store.device("pi3").unwrap().unwrap();
        store.remove_device(&device).unwrap();
        assert_eq!(store.leases().unwrap().len(), 1);
        store.delete(&first).unwrap();
        assert!(store.leases().unwrap().is_empty());
    }

    #[test]
    fn unknown_device_cannot_be_leased() {
        let (_dir, mut store) = with_devices(&[]);
        let run = run(&mut store);
        let error = store.lease("pi9", &run, "alice@lab").unwrap_err();
        assert!(error.to_string().contains("there is no device 'pi9'"), "{error}");
    }
}
