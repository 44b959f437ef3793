//! Access to the data directory.

use std::path::PathBuf;

use dwell_node_cli::{Failure, say};
use dwell_plan::Accurate;
use dwell_store::{RunRow, Store, StoreError};

/// Tolerances for senders of paced packets.
#[derive(Debug, clap::Args)]
pub(super) struct AccurateArgs {
    /// Tolerances for paced packets instead of those in the plan, such as 'rate 5%, gap 10%' or
    /// 'trains 20, confidence 95%'
    #[arg(long, value_name = "TOLERANCE")]
    pub(super) accurate: Option<Accurate>,
}

/// The data directory.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DataArgs {
    /// Directory of runs and samples
    #[arg(long, value_name = "DIR", env = "DWELL_DATA", default_value = "dwell-data")]
    pub(super) data: PathBuf,
}

impl DataArgs {
    /// Opens the directory, creating it if it does not exist.
    pub(super) fn open(&self) -> Result<Store, Failure> {
        self.check()?;
        Ok(Store::open(&self.data)?)
    }

    /// Opens an existing directory for changes. Never creates one.
    pub(super) fn open_existing(&self) -> Result<Store, Failure> {
        if !self.exists()? {
            return Err(Failure::from(anyhow::anyhow!(
                "there are no runs in {}; create one with `dwell run PLAN` or `dwell import FILE`, or \
                 name another directory with --data",
                self.data.display()
            )));
        }
        self.open()
    }

    /// Opens an existing directory for reading, which needs no write permission.
    pub(super) fn open_to_read(&self) -> Result<Store, Failure> {
        match self.open_if_exists()? {
            Some(store) => Ok(store),
            None => self.open_existing(),
        }
    }

    /// Like [`Self::open_to_read`], but returns `None` if there is no data.
    pub(super) fn open_if_exists(&self) -> Result<Option<Store>, Failure> {
        let exists = self.exists()?;
        Ok(if exists { Some(Store::open_to_read(&self.data)?) } else { None })
    }

    /// Returns the path of the catalogue, for errors that do not name it.
    pub(super) fn catalogue(&self) -> PathBuf {
        self.data.join("catalogue.sqlite")
    }

    fn exists(&self) -> Result<bool, Failure> {
        self.check()?;
        Ok(Store::is_at(&self.data))
    }

    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.data.exists() && !self.data.is_dir() {
            let path = self.data.display();
            return Err(Failure::usage(format!(
                "invalid value {path} for --data: it is a file, not a directory"
            )));
        }
        Ok(())
    }
}

/// Returns the run with this name. A missing run is a usage error.
pub(super) fn find(store: &Store, name: &str) -> Result<RunRow, Failure> {
    store.run(name).map_err(|error| match error {
        StoreError::NoRun(_) => Failure::usage(error.to_string()),
        other => other.into(),
    })
}

/// Prints a problem with stored data that is left out.
pub(super) fn say_problem(text: &str) {
    say(&format!("dwell: {text}"));
}

/// Fails if trials with damaged samples were left out.
pub(super) fn fail_if_damaged(left_out: usize) -> Result<(), Failure> {
    match left_out {
        0 => Ok(()),
        n => Err(anyhow::anyhow!("trials left out because their samples are damaged: {n}").into()),
    }
}
