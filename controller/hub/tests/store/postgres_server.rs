//! A PostgreSQL server of a test program, in a temporary directory, with a Unix socket only.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// Programs of the server, which are not in PATH.
pub(crate) const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// A running server. It is stopped, and its directory removed, when it is dropped or the process ends.
pub(crate) struct PostgresServer {
    dir: PathBuf,
    /// Ends when its input does.
    keeper: Child,
    input: Option<ChildStdin>,
}

/// Creates the files of a server, starts it, and stops it at the end of the input.
const KEEPER: &str = r#"
trap '' INT TERM
cd "$1" || exit 1
initdb --no-sync --auth trust --username hub --encoding UTF8 --no-locale data >log || exit 1
cat >>data/postgresql.conf <<END
listen_addresses = ''
unix_socket_directories = '$1'
fsync = $2
shared_buffers = 32MB
autovacuum = off
END
pg_ctl --pgdata data --log log --wait --timeout 60 start >/dev/null || exit 1
echo ready
cat >/dev/null
pg_ctl --pgdata data --mode immediate stop >/dev/null
rm -rf "$1""#;

impl PostgresServer {
    /// Starts a server; `None` if PostgreSQL is not installed. `fsync` is `on` or `off`.
    pub(crate) fn start(fsync: &str) -> Option<Self> {
        if !Path::new(PROGRAMS).join("initdb").exists() {
            return None;
        }
        let dir = tempfile::Builder::new().prefix("dwell-pg-").tempdir().unwrap().keep();
        let mut command = Self::command("sh", &dir);
        command.args(["-c", KEEPER, "sh"]).arg(&dir).arg(fsync);
        let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = keeper.stdin.take();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let log = || std::fs::read_to_string(dir.join("log")).unwrap_or_default();
        assert_eq!(line, "ready\n", "{}", log());
        Some(Self { dir, keeper, input })
    }

    /// A command as the owner of the directory: the server refuses to run as root.
    pub(crate) fn command(program: &str, dir: &Path) -> Command {
        let mut command = Command::new("setpriv");
        if std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0 {
            std::os::unix::fs::chown(dir, Some(65_534), Some(65_534)).unwrap();
            command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        }
        let path = std::env::var("PATH").unwrap_or_default();
        command.arg(program).env("PATH", format!("{PROGRAMS}:{path}")).current_dir(dir);
        command
    }

    /// Executes `pg_ctl`.
    pub(crate) fn control(&self, args: &[&str]) {
        let mut command = Self::command("pg_ctl", &self.dir);
        command.args(["--pgdata", "data", "--log", "log", "--wait"]).args(args);
        assert!(command.stdout(Stdio::null()).status().unwrap().success(), "pg_ctl {args:?}");
    }

    /// The directory of the server.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The URL of a database.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://hub@/{database}?host={}", self.dir.display())
    }

    /// Executes statements as the superuser.
    pub(crate) fn execute(&self, database: &str, sql: &str) {
        let mut client = postgres::Client::connect(&self.url(database), postgres::NoTls).unwrap();
        client.batch_execute(sql).unwrap();
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.keeper.wait();
    }
}
