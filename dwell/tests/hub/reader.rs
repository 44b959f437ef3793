//! A person at a PC who types the commands of a document, with five devices of a lab that SSH reaches as an
//! ordinary user. Only the addresses are replaced.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use dwell_io::process::{Handle, Signal};
use serde_json::Value;

use crate::fixture::{DWELL, object, repository, skip, stdout, wait_until};
use crate::lab_devices::{DeviceLab, HOME, Peculiarity, nodes_dir};
use crate::postgres_server::{PROGRAMS, PostgresServer};

pub(crate) const NODES: [&str; 5] = ["berlin", "lyon", "oslo", "porto", "turin"];

/// Number of pairs that the nodes measure.
pub(crate) const PAIRS: usize = NODES.len() * (NODES.len() - 1);

/// Time limit of a block.
const BLOCK_TIMEOUT: &str = "180";

/// Path of nats-server in Debian, as in the documents.
const NATS_SERVER: &str = "/usr/sbin/nats-server";

/// Directory of the socket of PostgreSQL in Debian.
const SOCKETS: &str = "/run/postgresql";

/// Where the agent of an ordinary user has its spool, in the home.
pub(crate) const SPOOL: &str = ".local/state/dwell-agent";

/// Gives a device a user of its own, who has the home, and no spool of an installed agent.
const ORDINARY_USER: &str = "
home=~root
mkdir /tmp/lib $home/.ssh
mount --bind /tmp/lib /var/lib
cp /etc/passwd /tmp/passwd
echo \"reader:x:6543:6543::$home:/bin/sh\" >>/tmp/passwd
mount --bind /tmp/passwd /etc/passwd
cp /run/dwell-*/key.pub $home/.ssh/authorized_keys
chown -R 6543:6543 $home
";

/// Configuration of sshd for this user.
const USER_CONFIG: &str = "Subsystem sftp internal-sftp\nAuthorizedKeysFile .ssh/authorized_keys";

/// Mounts the directory of a socket and executes the rest of the arguments.
const WITH_SOCKET: &str = "mount --bind \"$0\" /run/postgresql && exec \"$@\"";

/// As sudo(8) for `-u postgres`, with the superuser of the test's server.
const SUDO: &str =
    "#!/bin/sh\n[ \"$1 $2\" = '-u postgres' ] || exit 1\nshift 2\nPGUSER=hub exec \"$@\"\n";

/// The person, the machines, and a PostgreSQL server for the documents that need one.
pub(crate) struct Reader {
    pub(crate) lab: DeviceLab,
    pub(crate) work: PathBuf,
    /// Time in which commands ran, without waits for results.
    pub(crate) typed: Duration,
    database: Option<PostgresServer>,
    /// Whether the hub uses the database.
    pub(crate) uses_database: bool,
    /// Address of the PC that the devices reach.
    address: String,
    /// Lines that set variables: all blocks are typed in one shell.
    settings: String,
}

impl Reader {
    /// Creates devices; `None` if this machine cannot.
    pub(crate) fn new() -> Option<Self> {
        let of = |_| Peculiarity {
            setup: ORDINARY_USER.to_owned(),
            config: USER_CONFIG.to_owned(),
            ..Peculiarity::default()
        };
        let lab = DeviceLab::with(NODES.len(), of)?;
        let work = lab.sandbox.path("work");
        // The program of `make nodes`, and dwell as it is installed.
        let built = work.join("target/nodes/x86_64");
        fs::create_dir_all(&built).unwrap();
        let node = nodes_dir().join(std::env::consts::ARCH).join("dwell-node");
        symlink(node, built.join("dwell-node")).unwrap();
        let programs = work.join("bin");
        fs::create_dir_all(&programs).unwrap();
        symlink(DWELL, programs.join("dwell")).unwrap();
        // ssh(1) finds its configuration by the user database, not by HOME.
        for program in ["ssh", "scp"] {
            let script = format!("#!/bin/sh\nexec /usr/bin/{program} -F ~/.ssh/config \"$@\"\n");
            write_program(&programs.join(program), &script);
        }
        write_program(&programs.join("sudo"), SUDO);
        // Keys, user and port of the lab: the reader's own configuration.
        fs::create_dir_all(work.join(".ssh")).unwrap();
        let config = fs::read_to_string(lab.ssh_config()).unwrap();
        let config = config.replace("User root", "User reader");
        fs::write(work.join(".ssh/config"), config).unwrap();
        let address = source_address(&lab);
        let (typed, settings) = (Duration::ZERO, String::new());
        Some(Self { lab, work, typed, database: None, uses_database: false, address, settings })
    }

    /// Creates devices, a PostgreSQL server without databases, and what NATS needs; `None` if this machine
    /// cannot.
    pub(crate) fn with_servers() -> Option<Self> {
        if !Path::new(NATS_SERVER).exists() {
            skip("needs nats-server (setup/packages.txt)");
            return None;
        }
        let uplink = Path::new(DWELL).with_file_name("dwell-uplink");
        if !uplink.exists() {
            skip("needs dwell-uplink; build it with `cargo build -p dwell-uplink`");
            return None;
        }
        let Some(database) = PostgresServer::start("off") else {
            skip("needs PostgreSQL 15");
            return None;
        };
        fs::create_dir_all(SOCKETS).unwrap();
        let mut reader = Self::new()?;
        let installed = reader.work.join("bin/dwell-uplink");
        // Copies of debug programs are slow.
        let strip = Command::new("strip").arg("-o").arg(installed).arg(uplink).status();
        assert!(strip.unwrap().success());
        reader.database = Some(database);
        Some(reader)
    }

    /// Types commands. Returns what they print; fails if one fails.
    pub(crate) fn types(&mut self, commands: &str) -> String {
        let mut commands = commands.to_owned();
        let devices = self.lab.devices.iter().map(|device| &device.address);
        for (at, address) in std::iter::once(&self.address).chain(devices).enumerate() {
            commands = commands.replace(&format!("192.0.2.1{at}\n"), &format!("{address}\n"));
        }
        let script = format!("{}{commands}", self.settings);
        let mut shell = vec!["timeout", "--kill-after=5", BLOCK_TIMEOUT, "sh", "-euc", &script];
        if let Some(database) = &self.database {
            let dir = database.dir().to_str().unwrap();
            let mount = ["unshare", "--mount", "--propagation", "private"];
            shell.splice(..0, [&mount[..], &["sh", "-euc", WITH_SOCKET, dir]].concat());
        }
        let log = self.work.join("log");
        let file = File::create(&log).unwrap();
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{PROGRAMS}:{path}", self.work.join("bin").display());
        let since = Instant::now();
        // A file, because programs in the background keep a pipe open.
        let status = self
            .lab
            .controller(&shell)
            .current_dir(&self.work)
            .env("HOME", &self.work)
            .env("PATH", path)
            .env("USER", "root")
            .env("DWELL_READER", &self.work)
            .env_remove("DWELL_DATA")
            .env_remove("DWELL_SSH_COMMAND")
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .status()
            .unwrap();
        self.typed += since.elapsed();
        let shown = fs::read_to_string(log).unwrap();
        println!("--- {:.1?}\n{}\n{shown}", since.elapsed(), commands.trim_end());
        assert!(status.success(), "{status}");
        let sets = |line: &&str| line.starts_with("export ") || is_assignment(line);
        let settings = commands.split_inclusive('\n').filter(sets);
        self.settings.extend(settings);
        shown
    }

    /// Runs a command of dwell that only reads.
    pub(crate) fn dwell(&self, arguments: &[&str]) -> Output {
        let mut command = self.lab.sandbox.command(arguments);
        command.env("DWELL_DATA", self.work.join("dwell-data"));
        if let Some(database) = self.database.as_ref().filter(|_| self.uses_database) {
            command.env("DWELL_HUB_DATABASE", database.url(self.database_name()));
        }
        command.output().unwrap()
    }

    /// The database that the last `export` names.
    fn database_name(&self) -> &str {
        let (_, url) = self.settings.rsplit_once("DWELL_HUB_DATABASE=postgres:///").unwrap();
        url.lines().next().unwrap()
    }

    /// Rows of 10 s of a pair, with probes.
    pub(crate) fn rows(&self, pair: &str) -> Vec<Value> {
        let output =
            self.dwell(&["query", pair, "--last", "10m", "--step", "10s", "--format", "json"]);
        if !output.status.success() {
            return Vec::new();
        }
        let rows = object(&output)["streams"][0]["rows"].as_array().unwrap().clone();
        rows.into_iter().filter(|row| sent(std::slice::from_ref(row)) > 0).collect()
    }

    /// Number of pairs with rows.
    pub(crate) fn pairs(&self) -> usize {
        stdout(&self.dwell(&["query"])).matches(" mesh ").count()
    }

    /// Waits for a row of the first pair with as many probes, in place of a `sleep` of the document.
    pub(crate) fn wait_for_row(&self, probes: u64) {
        let has_row =
            || self.rows("berlin:lyon").iter().any(|row| sent(std::slice::from_ref(row)) >= probes);
        wait_until("rows of 10 s", has_row);
    }

    /// A file in the working directory; empty if it is missing.
    pub(crate) fn file(&self, name: &str) -> String {
        fs::read_to_string(self.work.join(name)).unwrap_or_default()
    }

    /// A file in the home of a device; empty if it is missing.
    pub(crate) fn remote_file(&self, node: &str, name: &str) -> String {
        fs::read_to_string(self.home(node).join(name)).unwrap_or_default()
    }

    /// The home of the user of a device.
    pub(crate) fn home(&self, node: &str) -> PathBuf {
        let index = NODES.iter().position(|known| *known == node).unwrap();
        self.lab.devices[index].folder(HOME)
    }

    /// Requests a page of the PC itself; `None` if there is no answer.
    pub(crate) fn page(&self, url: &str) -> Option<String> {
        let output = self.lab.controller(&["curl", "--silent", "--fail", url]).output().unwrap();
        output.status.success().then(|| stdout(&output))
    }

    /// Processes on the PC that the commands started.
    fn processes(&self) -> Vec<Handle> {
        let mark = format!("DWELL_READER={}", self.work.display());
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_ours = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
        };
        pids.filter(is_ours).filter_map(|pid| Handle::open(pid).ok()).collect()
    }

    /// Waits until no process is left on the PC.
    pub(crate) fn wait_until_stopped(&self) {
        wait_until("the programs on the PC to end", || self.processes().is_empty());
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        for process in self.processes() {
            let _ = process.signal(Signal::Kill);
        }
        if std::thread::panicking() {
            for log in ["hub.log", "nats.log", "serve.log", "messages.log", "receiver.log"] {
                println!("--- {log}:\n{}", self.file(log));
            }
            for node in NODES {
                for log in ["agent.log", "uplink.log"] {
                    println!("--- {log} of {node}:\n{}", self.remote_file(node, log));
                }
            }
        }
        (0..self.lab.devices.len()).for_each(|index| self.lab.kill_all(index));
    }
}

fn write_program(path: &Path, script: &str) {
    fs::write(path, script).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// The address of the PC from which packets to the first device leave.
fn source_address(lab: &DeviceLab) -> String {
    let route = ["ip", "-o", "route", "get", &lab.devices[0].address];
    let output = stdout(&lab.controller(&route).output().unwrap());
    let (_, rest) = output.split_once(" src ").unwrap_or_else(|| panic!("{output}"));
    rest.split(' ').next().unwrap().to_owned()
}

/// Whether a line sets a variable and does nothing else.
fn is_assignment(line: &str) -> bool {
    let name = line.split_once('=').map_or("", |(name, _)| name);
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase()) && !line.contains(' ')
}

/// Probes of rows.
pub(crate) fn sent(rows: &[Value]) -> u64 {
    rows.iter().map(|row| row["packets"]["sent"].as_u64().unwrap()).sum()
}

/// The blocks of commands of a document with a mark after `sh`, such as `fleet`.
pub(crate) fn blocks(document: &str, mark: &str) -> Vec<String> {
    let text = fs::read_to_string(repository(document)).unwrap();
    let start = format!("```sh {mark}\n");
    let blocks = text.split(&start).skip(1);
    blocks.map(|block| block.split("```\n").next().unwrap().to_owned()).collect()
}

/// Returns the lines before and after the first line of a block that begins with a command.
pub(crate) fn split_at(block: &str, command: &str) -> (String, String) {
    let lines: Vec<_> = block.split_inclusive('\n').collect();
    let at = lines.iter().position(|line| line.starts_with(command)).unwrap();
    (lines[..at].concat(), lines[at + 1..].concat())
}
