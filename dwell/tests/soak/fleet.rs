//! A fleet with real processes: agents that measure each other, their uplinks, nats-server, a hub and
//! PostgreSQL, all on loopback.

use std::fs::{self, File, Permissions};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dwell_io::process::{Handle, Signal};
use dwell_rollup::Name;

use crate::bus::{Bus, signal};
use crate::comparison::Sequences;
use crate::database::{DATABASE, Database};
use crate::fixture::{DWELL, skip, wait_for_exit};
use crate::observer::receipts;
use crate::postgres_server::PostgresServer;
use crate::settings::Victim;

/// Number of nodes.
pub(crate) const NODES: usize = 3;

/// Time-out of all waits. An uplink waits up to a minute before it connects again.
const WAIT_TIMEOUT: Duration = Duration::from_secs(180);

/// Interval between checks of a condition.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Streams from each node to each other one whose probes are answered.
const ANSWERED_STREAMS: usize = 8;

/// The same whose probes are not answered. Their time-outs differ, so that records are written all the time
/// and not only at the end of an interval of 10 s.
const SILENT_STREAMS: usize = 14;

/// Number of log files that are printed after a failure.
const MAX_PRINTED_LOGS: usize = 12;

/// A process, killed at the end.
struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    fn start(mut command: Command, log: PathBuf) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(File::create(&log).unwrap()).spawn().unwrap();
        Self { child, log }
    }

    fn assert_runs(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "{}: {ended:?}", self.log.display());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Node {
    name: Name,
    dir: PathBuf,
    agent: Option<Process>,
    uplink: Option<Process>,
}

/// The processes.
pub(crate) struct Fleet {
    nodes: Vec<Node>,
    hub: Option<Process>,
    bus: Bus,
    postgres: PostgresServer,
    /// Port of the agents' reflectors.
    port: u16,
    /// A port that receives probes and answers none.
    silent: UdpSocket,
    schedules: u32,
    starts: u32,
}

fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 11 + node as u8)
}

fn uplink_program() -> PathBuf {
    Path::new(DWELL).with_file_name("dwell-uplink")
}

impl Fleet {
    /// Starts all processes; `None` if a program is missing.
    pub(crate) fn start() -> Option<Self> {
        if !uplink_program().exists() {
            skip("needs dwell-uplink: cargo build -p dwell-uplink");
            return None;
        }
        let bus = Bus::new()?;
        let Some(postgres) = PostgresServer::start("on") else {
            skip("PostgreSQL 15 is not installed");
            return None;
        };
        postgres.execute("postgres", &format!("CREATE DATABASE {DATABASE}"));
        let any = IpAddr::from(Ipv4Addr::UNSPECIFIED);
        let bind = || UdpSocket::bind((any, 0)).unwrap();
        let (free, silent) = (bind(), bind());
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut fleet = Self {
            nodes: Vec::new(),
            hub: None,
            bus,
            postgres,
            port,
            silent,
            schedules: 0,
            starts: 0,
        };
        fleet.start_hub();
        (0..NODES).for_each(|node| fleet.add_node(node));
        fleet.change_schedule();
        Some(fleet)
    }

    fn url(&self) -> String {
        self.postgres.url(DATABASE)
    }

    fn log(&mut self, name: &str) -> PathBuf {
        self.starts += 1;
        self.bus.sandbox.path(&format!("{name}-{}.log", self.starts))
    }

    fn start_hub(&mut self) {
        let command = self.bus.hub_command(&["--database", &self.url()]);
        self.hub = Some(Process::start(command, self.log("hub")));
    }

    fn add_node(&mut self, number: usize) {
        let name = format!("n{}", number + 1);
        let dir = self.bus.sandbox.path(&name);
        fs::create_dir(&dir).unwrap();
        let (key, spool) = (dir.join("uplink.nk"), dir.join("spool"));
        fs::write(&key, self.bus.enroll(&name)).unwrap();
        fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
        let agent = format!(
            "node = \"{name}\"\nspool = \"{}\"\nspool_size = \"2MiB\"\n\
             [reflect]\nurls = [\"stamp://{}:{}\"]\n",
            spool.display(),
            address(number),
            self.port
        );
        let uplink = format!(
            "node = \"{name}\"\nspool = \"{}\"\nservers = [\"{}\"]\nca_file = \"{}\"\n\
             key_file = \"{}\"\nreceipt_timeout = \"2s\"\n",
            spool.display(),
            self.bus.url(),
            self.bus.path("ca.pem"),
            key.display()
        );
        let config = dir.join("agent.toml");
        fs::write(&config, agent).unwrap();
        fs::write(dir.join("uplink.toml"), uplink).unwrap();
        let command = self.bus.sandbox.command(&["agent", "--config", config.to_str().unwrap()]);
        let agent = Some(Process::start(command, self.log(&format!("agent-{name}"))));
        self.nodes.push(Node { name: name.parse().unwrap(), dir, agent, uplink: None });
        self.start_uplink(number);
    }

    fn start_uplink(&mut self, number: usize) {
        let log = self.log(&format!("uplink-n{}", number + 1));
        let node = &mut self.nodes[number];
        let mut command = Command::new("env");
        command.arg("--default-signal").arg(uplink_program()).args(["run", "--config"]);
        command.arg(node.dir.join("uplink.toml")).env("DWELL_DATA", self.bus.sandbox.data());
        node.uplink = Some(Process::start(command, log));
    }

    /// Names and spools of the nodes.
    pub(crate) fn spools(&self) -> Vec<(Name, PathBuf)> {
        self.nodes.iter().map(|node| (node.name.clone(), node.dir.join("spool"))).collect()
    }

    /// Directory for copies of records, on the file system of the spools.
    pub(crate) fn copies(&self) -> PathBuf {
        self.bus.sandbox.path("copies")
    }

    /// Applies another schedule. With its arrival, agents write the records of all streams so far: of 10 s
    /// and of 5 min.
    pub(crate) fn change_schedule(&mut self) {
        self.schedules += 1;
        let silent = self.silent.local_addr().unwrap().port();
        let mut text = "version = 1\n".to_owned();
        for node in 0..NODES {
            text += &format!("[nodes.n{}]\naddress = \"{}\"\n", node + 1, address(node));
        }
        let mut measure = |name: &str, port: u16, interval_ms: usize, timeout_ms: usize| {
            text += &format!(
                "[[measure]]\nname = \"{name}\"\nmesh = \"all\"\nport = {port}\nsamples = false\n\
                 interval = \"{interval_ms}ms\"\ntimeout = \"{timeout_ms}ms\"\n"
            );
        };
        // A stream that starts again with each schedule; the others continue.
        measure("changed", self.port, 500 + self.schedules as usize % 2, 500);
        for stream in 0..ANSWERED_STREAMS {
            measure(&format!("answered{stream}"), self.port, 500, 500);
        }
        for stream in 1..=SILENT_STREAMS {
            measure(&format!("silent{stream}"), silent, 1_000, 600 * stream);
        }
        let file = self.bus.sandbox.write("mesh.toml", &text);
        self.bus.dwell(&["hub", "schedule", "apply", &file, "--database", &self.url()]);
    }

    /// Makes messages that no hub has acknowledged arrive again after a second instead of 30.
    pub(crate) fn shorten_ack_wait(&self) {
        self.bus.shorten_ack_wait();
    }

    /// Kills a process and starts it again at once. Returns the number of messages that were deleted.
    pub(crate) fn kill(&mut self, victim: Victim) -> u64 {
        let mut deleted = 0;
        match victim {
            Victim::Uplink(node) => {
                self.nodes[node].uplink = None;
                self.start_uplink(node);
            }
            Victim::Hub => {
                self.hub = None;
                self.start_hub();
            }
            Victim::NatsServer => {
                self.bus.kill_server();
                self.bus.start_server();
            }
            Victim::NatsStore { is_hub_down } => {
                if is_hub_down {
                    self.hub = None;
                    self.wait_until("messages in the stream", |fleet| fleet.bus.waiting() > 0);
                }
                deleted = self.bus.waiting();
                self.bus.kill_server();
                fs::remove_dir_all(self.bus.file("jetstream")).unwrap();
                self.bus.start_server();
                if is_hub_down {
                    self.start_hub();
                }
            }
            Victim::Postgres => {
                self.kill_postgres();
                self.postgres.control(&["start"]);
            }
        }
        deleted
    }

    /// Kills the server and all its processes.
    fn kill_postgres(&mut self) {
        let pid_file = self.postgres.dir().join("data/postmaster.pid");
        let text = fs::read_to_string(pid_file).unwrap();
        let postmaster: u32 = text.lines().next().unwrap().trim().parse().unwrap();
        // It starts no more processes.
        signal(postmaster, Signal::Stop);
        let killed: Vec<u32> = children(postmaster).chain([postmaster]).collect();
        for pid in &killed {
            // Some have ended by themselves.
            let _ = Handle::open(*pid).and_then(|process| process.signal(Signal::Kill));
        }
        // A server does not start beside processes of the one before.
        let exists = |pid: &u32| parent(*pid).is_some();
        self.wait_until("the end of PostgreSQL", |_| !killed.iter().any(exists));
    }

    /// Number of records with receipts, of the node of an uplink or of all nodes.
    pub(crate) fn receipted(&self, victim: Victim) -> u64 {
        let is_meant = |number: usize| match victim {
            Victim::Uplink(node) => node == number,
            _ => true,
        };
        let nodes = self.nodes.iter().enumerate().filter(|(number, _)| is_meant(*number));
        let sets = nodes.flat_map(|(_, node)| node.receipts().into_values());
        sets.map(|set| set.len()).sum()
    }

    /// Waits until each node has receipts.
    pub(crate) fn wait_until_all_work(&mut self) {
        for node in 0..NODES {
            self.wait_until("the first receipts", |fleet| {
                fleet.receipted(Victim::Uplink(node)) > 0
            });
        }
    }

    /// Waits until more records have receipts.
    pub(crate) fn wait_until_works(&mut self, victim: Victim) {
        let before = self.receipted(victim);
        self.wait_until("more receipts", |fleet| fleet.receipted(victim) > before);
    }

    /// Receipts in the spools.
    pub(crate) fn receipts(&self) -> Sequences {
        self.nodes.iter().flat_map(Node::receipts).collect()
    }

    /// A connection to the database.
    pub(crate) fn database(&mut self) -> Database {
        let mut database = None;
        self.wait_until("PostgreSQL", |fleet| {
            database = Database::connect(fleet.postgres.dir());
            database.is_some()
        });
        database.unwrap()
    }

    /// Stops the agents, which write their last records.
    pub(crate) fn stop_agents(&mut self) {
        let mut agents: Vec<_> =
            self.nodes.iter_mut().filter_map(|node| node.agent.take()).collect();
        agents.iter().for_each(|agent| signal(agent.child.id(), Signal::Terminate));
        for agent in &mut agents {
            let status = wait_for_exit(&mut agent.child);
            assert!(status.success(), "{}: {status}", agent.log.display());
        }
    }

    /// Waits until all records have receipts and the stream is empty. nats-server 2.9 that was killed may
    /// keep acknowledged messages, until the hub finds them.
    pub(crate) fn wait_until_drained(&mut self, is_receipted: impl Fn(&Sequences) -> bool) {
        self.wait_until("all receipts", |fleet| is_receipted(&fleet.receipts()));
        self.wait_until("an empty stream", |fleet| fleet.bus.waiting() == 0);
    }

    /// Waits for a condition, while no process may end.
    fn wait_until(&mut self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let since = Instant::now();
        while !condition(self) {
            assert!(since.elapsed() < WAIT_TIMEOUT, "waited too long: {what}");
            for node in &mut self.nodes {
                node.agent.iter_mut().chain(&mut node.uplink).for_each(Process::assert_runs);
            }
            self.hub.iter_mut().for_each(Process::assert_runs);
            thread::sleep(CHECK_INTERVAL);
        }
    }
}

impl Node {
    fn receipts(&self) -> Sequences {
        receipts(&self.name, &self.dir.join("spool"))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let entries = fs::read_dir(self.bus.sandbox.path("")).into_iter().flatten().flatten();
        let logs = entries.map(|entry| entry.path());
        let logs = logs.filter(|path| path.extension().is_some_and(|it| it == "log"));
        let mut logs: Vec<PathBuf> = logs.collect();
        logs.sort_by_key(|path| fs::metadata(path).and_then(|file| file.modified()).ok());
        let first = logs.len().saturating_sub(MAX_PRINTED_LOGS);
        for path in logs[first..].iter().chain([&self.postgres.dir().join("log")]) {
            let text = fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let last = &lines[lines.len().saturating_sub(20)..];
            println!("--- {}:\n{}", path.display(), last.join("\n"));
        }
    }
}

/// Processes whose parent is this one.
fn children(pid: u32) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(move |child| parent(*child) == Some(pid))
}

/// Parent of a process, see proc(5); `None` if it has ended.
fn parent(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program before may contain any character.
    text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}
