//! Names of runs: the day and a number not used before on that day, such as 20261121-1.

use std::fs;
use std::path::Path;

use rusqlite::{OptionalExtension, Transaction, params};

use crate::error::StoreError;
use crate::fleet_samples::is_day;

/// Assigns a new name to a run of `day` and records it. Names with samples in `samples` are never
/// assigned, even if the catalogue does not know them.
pub(crate) fn assign(
    transaction: &Transaction<'_>,
    day: &str,
    samples: &Path,
) -> Result<String, StoreError> {
    let last: Option<i64> = transaction
        .query_row("SELECT last FROM days WHERE day = ?1", [day], |row| row.get(0))
        .optional()?;
    let kept = with_samples(samples)
        .filter_map(|name| name.strip_prefix(day)?.strip_prefix('-')?.parse::<i64>().ok());
    let number = last.into_iter().chain(kept).max().unwrap_or(0).saturating_add(1);
    transaction.execute(
        "INSERT INTO days (day, last) VALUES (?1, ?2)
         ON CONFLICT (day) DO UPDATE SET last = excluded.last",
        params![day, number],
    )?;
    Ok(format!("{day}-{number}"))
}

/// Returns the names of runs with samples in `samples`.
pub(crate) fn with_samples(samples: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(samples).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| !is_day(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NewRun, RunKind, Store};

    fn begun(store: &mut Store) -> (String, i64) {
        let name = store.begin_run(&NewRun::without_trials(RunKind::Import)).unwrap();
        let (_, number) = name.split_once('-').unwrap();
        let number = number.parse().unwrap();
        (name, number)
    }

    #[test]
    fn name_of_a_deleted_run_is_not_reused() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        let (name, number) = begun(&mut store);
        let run = store.run(&name).unwrap();
        store.delete(&run).unwrap();
        assert_eq!(begun(&mut store).1, number + 1);
    }

    #[test]
    fn name_with_existing_samples_is_not_assigned() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        let (name, number) = begun(&mut store);
        let day = name.split_once('-').unwrap().0;
        fs::create_dir(dir.path().join("samples").join(format!("{day}-{}", number + 5))).unwrap();
        assert_eq!(begun(&mut store).1, number + 6);
    }
}
