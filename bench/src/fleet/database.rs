//! A PostgreSQL server in a temporary directory, with a Unix socket only and the default settings of
//! Debian.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use postgres::{Client, NoTls};
use tempfile::TempDir;

use crate::Server;

/// Programs of the server, which are not in PATH.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// User that owns the server if the bench runs as root: the server refuses root.
const UNPRIVILEGED: u32 = 65_534;

/// Time for the server to accept connections.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A running server.
pub(super) struct Database {
    // Stopped before its directory is removed.
    server: Server,
    dir: TempDir,
}

impl Database {
    /// Whether the programs are installed.
    pub(super) fn is_installed() -> bool {
        Path::new(PROGRAMS).join("postgres").exists()
    }

    /// Starts a server with an empty database.
    pub(super) fn start() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("dwell-pg-").tempdir()?;
        if rustix::process::getuid().is_root() {
            std::os::unix::fs::chown(dir.path(), Some(UNPRIVILEGED), Some(UNPRIVILEGED))?;
        }
        let mut initdb = Self::command("initdb", dir.path());
        initdb.args(["--no-sync", "--auth", "trust", "--username", "hub"]);
        initdb.args(["--encoding", "UTF8", "--no-locale", "data"]);
        let output = initdb.output().context("cannot start initdb")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "initdb: {said}");
        let settings = dir.path().join("data/postgresql.conf");
        let path = dir.path().display();
        writeln!(
            OpenOptions::new().append(true).open(settings)?,
            "listen_addresses = ''\nunix_socket_directories = '{path}'"
        )?;
        let mut command = Self::command("postgres", dir.path());
        command.args(["-D", "data"]);
        let server = Server::start_within(command, Some("ready to accept"), START_TIMEOUT)?;
        let database = Self { server, dir };
        database.connect("postgres")?.batch_execute("CREATE DATABASE dwell")?;
        Ok(database)
    }

    /// A command as the owner of the directory.
    fn command(program: &str, dir: &Path) -> Command {
        let program = Path::new(PROGRAMS).join(program);
        let mut command = if rustix::process::getuid().is_root() {
            let mut command = Command::new("setpriv");
            let (user, group) =
                (format!("--reuid={UNPRIVILEGED}"), format!("--regid={UNPRIVILEGED}"));
            command.args([&user, &group, "--clear-groups"]);
            // A change of the user clears the signal at the end of the bench.
            command.args(["--pdeathsig", "INT"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir(dir);
        command
    }

    /// Process id of the server's first process.
    pub(super) fn id(&self) -> u32 {
        self.server.id()
    }

    /// URL of the hub's database.
    pub(super) fn url(&self) -> String {
        self.url_of("dwell")
    }

    fn url_of(&self, database: &str) -> String {
        format!("postgres://hub@/{database}?host={}", self.dir.path().display())
    }

    fn connect(&self, database: &str) -> Result<Client> {
        Client::connect(&self.url_of(database), NoTls).context("cannot connect to PostgreSQL")
    }

    /// Connects to the hub's database.
    pub(super) fn client(&self) -> Result<Client> {
        self.connect("dwell")
    }
}
