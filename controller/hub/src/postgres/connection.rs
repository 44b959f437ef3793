//! The connection to a server: it is made again after it was lost, and keeps statements prepared.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postgres::config::{Host, SslMode};
use postgres::error::{DbError, Severity, SqlState};
use postgres::types::ToSql;
use postgres::{Client, Config, NoTls, Row as SqlRow, SimpleQueryMessage, Statement};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::HubError;

/// Time for a connection to one address of the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time after which unacknowledged data, or a peer that does not answer, ends a TCP connection.
const PEER_TIMEOUT: Duration = Duration::from_secs(30);

/// Directories of the server's Unix socket, by the distributions' defaults.
const SOCKET_DIRS: [&str; 2] = ["/run/postgresql", "/tmp"];

/// Schema of all tables, so that the database may be used for other things too.
pub(super) const SCHEMA: &str = "dwell_hub";

/// Time to wait for a lock that another hub holds, and for a hub that is suspended in a transaction.
pub(super) const LOCK_TIMEOUT: &str = "60s";

/// Time after which the server cancels a statement, such as one that waits for a hanging disk or, at a
/// commit, for a standby.
pub(super) const STATEMENT_TIMEOUT: &str = "120s";

/// Returns the settings of a session. A commit is durable when it is confirmed, whatever the server's
/// default.
fn session() -> String {
    format!(
        "SET search_path = {SCHEMA};
         SET jit = off;
         SET lock_timeout = '{LOCK_TIMEOUT}';
         SET statement_timeout = '{STATEMENT_TIMEOUT}';
         SET idle_in_transaction_session_timeout = '{LOCK_TIMEOUT}';
         SELECT set_config('synchronous_commit', 'on', false)
         WHERE current_setting('synchronous_commit') = 'off'"
    )
}

/// Where a database is, and how to reach it.
#[derive(Clone)]
pub(super) struct Address {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    /// For messages; without a password.
    pub(super) place: String,
}

impl Address {
    /// Parses a URL. `sslrootcert=FILE` names the certificates of the authorities that may certify the
    /// server; with it, all connections use TLS.
    pub(super) fn parse(url: &str, password: Option<&str>) -> Result<Self, HubError> {
        let (url, root_file) = split_root_certificate(url)?;
        // The cause may contain a part of the password.
        let mut config: Config = url.parse().map_err(|_| {
            HubError::Url(
                "write it like postgres://USER@HOST/DATABASE or postgres:///DATABASE, with %XX for \
                 special characters"
                    .to_owned(),
            )
        })?;
        if config.get_dbname().is_none() {
            return Err(HubError::Url("it names no database".to_owned()));
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            let exists = |dir: &&&str| Path::new(dir).join(".s.PGSQL.5432").exists();
            config.host_path(SOCKET_DIRS.iter().find(exists).unwrap_or(&SOCKET_DIRS[0]));
        }
        if let Some(password) = password.filter(|_| config.get_password().is_none()) {
            config.password(password);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(PEER_TIMEOUT);
        }
        config.keepalives_idle(config.get_keepalives_idle().min(PEER_TIMEOUT));
        config.application_name(
            config.get_application_name().unwrap_or("dwell hub").to_owned().as_str(),
        );
        let tls = match root_file {
            Some(file) => {
                config.ssl_mode(SslMode::Require);
                Some(MakeRustlsConnect::new(trust(Path::new(&file))?))
            }
            None if config.get_ssl_mode() == SslMode::Require => {
                return Err(HubError::Url(
                    "sslmode=require needs sslrootcert=FILE, the certificate (PEM) of the authority \
                     that certified the server"
                        .to_owned(),
                ));
            }
            None => None,
        };
        Ok(Self { place: place(&config), config, tls })
    }

    /// Connects, with the settings of a session.
    fn connect(&self) -> Result<Client, HubError> {
        let connected = match &self.tls {
            Some(tls) => self.config.connect(tls.clone()),
            None => self.config.connect(NoTls),
        };
        let prepared = connected.and_then(|mut client| {
            client.batch_execute(&session())?;
            Ok(client)
        });
        prepared
            .map_err(|error| HubError::Connect { place: self.place.clone(), source: cause(error) })
    }
}

/// Whether a URL contains a password.
pub(super) fn has_password(url: &str) -> bool {
    let parsed = split_root_certificate(url).map(|(url, _)| url.parse::<Config>());
    matches!(parsed, Ok(Ok(config)) if config.get_password().is_some())
}

/// Takes `sslrootcert`, which libpq knows and this client does not, out of a URL.
fn split_root_certificate(url: &str) -> Result<(String, Option<String>), HubError> {
    let Some((before, options)) = url.split_once('?') else { return Ok((url.to_owned(), None)) };
    let (mut file, mut others) = (None, Vec::new());
    for option in options.split('&') {
        match option.strip_prefix("sslrootcert=") {
            Some(encoded) if !encoded.contains('%') => file = Some(encoded.to_owned()),
            Some(_) => {
                return Err(HubError::Url("sslrootcert is a path without %".to_owned()));
            }
            None => others.push(option),
        }
    }
    let others = others.join("&");
    let separator = if others.is_empty() { "" } else { "?" };
    Ok((format!("{before}{separator}{others}"), file))
}

/// Trusts the authorities of a file of certificates in PEM.
fn trust(file: &Path) -> Result<ClientConfig, HubError> {
    let unreadable = |error: rustls::pki_types::pem::Error| match error {
        rustls::pki_types::pem::Error::Io(error) => HubError::file("read", file)(error),
        error => HubError::file("read", file)(io::Error::other(error.to_string())),
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(unreadable)? {
        let added = roots.add(certificate.map_err(unreadable)?);
        added.map_err(|error| HubError::file("use", file)(io::Error::other(error)))?;
    }
    if roots.is_empty() {
        let empty = io::Error::other("it contains no certificate");
        return Err(HubError::file("use", file)(empty));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let versions =
        versions.map_err(|error| HubError::file("use", file)(io::Error::other(error)))?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}

/// Describes a database without its password.
fn place(config: &Config) -> String {
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        })
        .chain(config.get_hostaddrs().iter().map(ToString::to_string))
        .collect();
    format!("PostgreSQL database {} on {}", config.get_dbname().unwrap_or("?"), hosts.join(", "))
}

/// Returns the error of the server, without the name of its kind.
fn cause(error: postgres::Error) -> crate::error::Cause {
    if error.as_db_error().is_none() {
        return Box::new(error);
    }
    error.into_source().unwrap_or_else(|| "unknown error".into())
}

impl From<postgres::Error> for HubError {
    fn from(error: postgres::Error) -> Self {
        let is_connection = error.is_closed()
            || std::error::Error::source(&error).is_some_and(|source| source.is::<io::Error>());
        let is_temporary = error.code().is_some_and(|code| {
            // Classes of https://www.postgresql.org/docs/15/errcodes-appendix.html: connection
            // exception, transaction rollback, insufficient resources, operator intervention.
            *code == SqlState::LOCK_NOT_AVAILABLE
                || *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
                || *code == SqlState::TOO_MANY_CONNECTIONS
                || ["08", "40", "57"].contains(&&code.code()[..2])
        });
        if is_connection || is_temporary {
            return Self::Unavailable { source: cause(error) };
        }
        let is_full = error.code() == Some(&SqlState::DISK_FULL);
        Self::Database { is_full, source: cause(error) }
    }
}

/// A connection, or the way to one.
pub(super) struct Connection {
    address: Address,
    client: Option<Client>,
    statements: HashMap<String, Statement>,
    /// Whether a statement of the open transaction failed, so that a commit would have no effect.
    has_failed: bool,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Connection").field(&self.address.place).finish()
    }
}

impl Connection {
    /// Connects.
    pub(super) fn open(address: Address) -> Result<Self, HubError> {
        let client = Some(address.connect()?);
        Ok(Self { address, client, statements: HashMap::new(), has_failed: false })
    }

    pub(super) fn place(&self) -> &str {
        &self.address.place
    }

    /// Begins a transaction by these statements, and returns the number that the last one yields; `None`
    /// if it has no tables. Connects again if the connection was lost since the last transaction.
    pub(super) fn begin(&mut self, sql: &str) -> Result<Option<i64>, HubError> {
        self.ensure()?;
        let mut begun = self.number(sql);
        // A connection that the server ended is only noticed by using it.
        if begun.is_err() && self.client.is_none() {
            self.ensure()?;
            begun = self.number(sql);
        }
        self.has_failed = false;
        begun.or_else(|error| {
            self.rollback();
            match error.code() {
                Some(&SqlState::UNDEFINED_TABLE | &SqlState::INVALID_SCHEMA_NAME) => Ok(None),
                _ => Err(error.into()),
            }
        })
    }

    /// Executes statements, and returns the number that the last one yields.
    fn number(&mut self, sql: &str) -> Result<Option<i64>, postgres::Error> {
        let Some(client) = &mut self.client else { return Ok(None) };
        let outcome = client.simple_query(sql);
        let messages = self.note(outcome)?;
        Ok(messages.iter().rev().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.try_get(0).ok().flatten()?.parse().ok(),
            _ => None,
        }))
    }

    /// Makes sure that there is a connection.
    fn ensure(&mut self) -> Result<(), HubError> {
        if self.client.as_ref().is_none_or(Client::is_closed) {
            self.statements.clear();
            self.client = None;
            self.client = Some(self.address.connect()?);
        }
        Ok(())
    }

    /// Notes a failure, and whether it ended the connection.
    fn note<T>(&mut self, outcome: Result<T, postgres::Error>) -> Result<T, postgres::Error> {
        outcome.inspect_err(|error| {
            self.has_failed = true;
            let severity = error.as_db_error().and_then(DbError::parsed_severity);
            let is_ended = matches!(severity, Some(Severity::Fatal | Severity::Panic));
            if is_ended || self.client.as_ref().is_some_and(Client::is_closed) {
                self.client = None;
            }
        })
    }

    fn client(&mut self) -> Result<&mut Client, HubError> {
        let lost = || HubError::Unavailable { source: "the connection was lost".into() };
        self.client.as_mut().ok_or_else(lost)
    }

    fn prepared(&mut self, sql: &str) -> Result<Statement, HubError> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let outcome = self.client()?.prepare(sql);
        let statement = self.note(outcome)?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Returns the rows of a statement, which stays prepared.
    pub(super) fn query(
        &mut self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<SqlRow>, HubError> {
        let statement = self.prepared(sql)?;
        let outcome = self.client()?.query(&statement, params);
        Ok(self.note(outcome)?)
    }

    /// Executes a statement, which stays prepared. Returns the number of rows that it changed.
    pub(super) fn execute(
        &mut self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, HubError> {
        let statement = self.prepared(sql)?;
        let outcome = self.client()?.execute(&statement, params);
        Ok(self.note(outcome)?)
    }

    /// Executes statements without parameters, in one round trip.
    pub(super) fn batch(&mut self, sql: &str) -> Result<(), HubError> {
        let outcome = self.client()?.batch_execute(sql);
        Ok(self.note(outcome)?)
    }

    /// Commits the open transaction.
    pub(super) fn commit(&mut self) -> Result<(), HubError> {
        // The server would roll back without an error.
        if self.has_failed {
            let source = "a statement of the transaction failed".into();
            return Err(HubError::Database { is_full: false, source });
        }
        self.batch("COMMIT")
    }

    /// Rolls back the open transaction. Without a connection, the server does.
    pub(super) fn rollback(&mut self) {
        if let Some(client) = &mut self.client
            && client.batch_execute("ROLLBACK").is_err()
        {
            self.client = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_and_errors_show_no_password() {
        let address =
            Address::parse("postgres://hub:se%20cret@db.example/dwell?port=1", None).unwrap();
        assert_eq!(address.place, "PostgreSQL database dwell on db.example");
        assert!(has_password("postgres://hub:secret@db.example/dwell"));
        assert!(!has_password("postgres:///dwell"));
        for (url, reason) in [
            ("postgres://hub:secret@db.example", "names no database"),
            ("postgres://hub:secret@db.example/dwell?secret=1", "write it like"),
            ("mysql://hub:secret@db.example/dwell", "write it like"),
            ("postgres://hub:secret@db/dwell?sslmode=require", "needs sslrootcert=FILE"),
        ] {
            let error = Address::parse(url, None).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(reason) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn missing_parts_of_a_url_have_defaults() {
        let address = Address::parse("postgres:///dwell", Some("word")).unwrap();
        assert!(matches!(&address.config.get_hosts(), [Host::Unix(_)]));
        assert_eq!(address.config.get_password(), Some(&b"word"[..]));
        let both = Address::parse("postgres://u:mine@h/dwell", Some("word")).unwrap();
        assert_eq!(both.config.get_password(), Some(&b"mine"[..]));
        let missing = Address::parse("postgres://h/dwell?sslrootcert=/no/file&port=1", None);
        assert!(matches!(missing.map(|_| ()), Err(HubError::File { .. })));
    }
}
