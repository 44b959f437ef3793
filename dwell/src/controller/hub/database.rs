//! The database of the hub: SQLite in the data directory, or PostgreSQL.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, FromArgMatches};
use dwell_hub::store::HubStore;
use dwell_hub::{HubError, PostgresStore, SqliteStore};
use dwell_node_cli::Failure;
use dwell_server::HubSource;

use super::super::data::DataArgs;

/// Environment variable with the URL.
const URL_VARIABLE: &str = "DWELL_HUB_DATABASE";

/// Environment variable with the password, as of PostgreSQL's programs.
const PASSWORD_VARIABLE: &str = "PGPASSWORD";

/// The database of the hub.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct DatabaseArgs {
    database: Option<String>,
    /// Whether the URL is an argument, which other users can see.
    is_argument: bool,
}

/// The option.
#[derive(Debug, clap::Args)]
struct DatabaseOption {
    /// PostgreSQL database of the hub, like postgres:///dwell or postgres://USER@HOST/dwell, with a
    /// password only in the environment [default: SQLite in the data directory]
    #[arg(long, value_name = "URL", env = URL_VARIABLE, hide_env_values = true)]
    database: Option<String>,
}

impl Args for DatabaseArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        DatabaseOption::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        DatabaseOption::augment_args_for_update(command)
    }
}

impl FromArgMatches for DatabaseArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_argument = matches.value_source("database") == Some(ValueSource::CommandLine);
        let DatabaseOption { database } = DatabaseOption::from_arg_matches(matches)?;
        Ok(Self { database, is_argument })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl DatabaseArgs {
    /// Opens the database, creating or migrating it.
    pub(in super::super) fn open(
        &self,
        data: &DataArgs,
    ) -> Result<Box<dyn HubStore + Send>, Failure> {
        let Some(url) = self.url()? else {
            return Ok(Box::new(SqliteStore::open(&data.data)?));
        };
        let opened = PostgresStore::open(url, password().as_deref()).map_err(failure)?;
        Ok(Box::new(opened))
    }

    /// Opens the database for reading. A missing one is a usage error.
    pub(in super::super) fn open_to_read(
        &self,
        data: &DataArgs,
    ) -> Result<Box<dyn HubStore + Send>, Failure> {
        self.read(data)?.map_err(failure)
    }

    /// Opens the database for reading; `None` if a hub that starts has not created or migrated it yet.
    pub(in super::super) fn open_if_ready(
        &self,
        data: &DataArgs,
    ) -> Result<Option<Box<dyn HubStore + Send>>, Failure> {
        match self.read(data)? {
            Ok(store) => Ok(Some(store)),
            Err(HubError::Missing(_) | HubError::Older { .. }) => Ok(None),
            Err(error) => Err(failure(error)),
        }
    }

    /// Returns how pages read the database.
    pub(in super::super) fn source(&self, data: &DataArgs) -> Result<HubSource, Failure> {
        let Some(url) = self.url()?.map(str::to_owned) else {
            return Ok(HubSource::sqlite(data.data.clone()));
        };
        Ok(HubSource::new(move || {
            Ok(Box::new(PostgresStore::open_to_read(&url, password().as_deref())?))
        }))
    }

    fn read(&self, data: &DataArgs) -> Result<Result<Box<dyn HubStore + Send>, HubError>, Failure> {
        let Some(url) = self.url()? else {
            return Ok(SqliteStore::open_to_read(&data.data).map(|store| Box::new(store) as Box<_>));
        };
        let opened = PostgresStore::open_to_read(url, password().as_deref());
        Ok(opened.map(|store| Box::new(store) as Box<_>))
    }

    /// Whether other hubs may use the database at the same time.
    pub(in super::super) fn is_shared(&self) -> bool {
        self.database.as_deref().is_some_and(|url| !url.is_empty())
    }

    /// Returns the URL. Arguments are visible to all users, so a password in them is refused.
    fn url(&self) -> Result<Option<&str>, Failure> {
        let Some(url) = self.database.as_deref().filter(|url| !url.is_empty()) else {
            return Ok(None);
        };
        if self.is_argument && PostgresStore::has_password(url) {
            return Err(Failure::usage(format!(
                "invalid value for --database: other users can see a password on the command line; put \
                 the URL into {URL_VARIABLE}, or the password into {PASSWORD_VARIABLE}"
            )));
        }
        Ok(Some(url))
    }
}

fn password() -> Option<String> {
    std::env::var(PASSWORD_VARIABLE).ok()
}

fn failure(error: HubError) -> Failure {
    match error {
        HubError::Missing(_) | HubError::Url(_) => Failure::usage(error.to_string()),
        error => error.into(),
    }
}
