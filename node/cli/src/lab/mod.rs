//! `dwell lab`: network namespaces that act as machines.

mod show;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use dwell_io::process::is_stdin_hung_up;
use dwell_lab::{
    Lab, LabDir, LabError, LinkOptions, Mechanism, QuotaOption, RouteTable, Routing, Topology,
};
use dwell_units::{BitRate, Nanos, Ratio};

use crate::progress::Progress;
use crate::{Exit, Failure};

/// Arguments of `lab`.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, clap::Subcommand)]
enum LabCommand {
    /// Create a lab: nodes, links, addresses and routes
    Up(UpArgs),
    /// Run a command in a node
    Exec(ExecArgs),
    /// List the labs
    List(ListArgs),
    /// Print the routes between all nodes and where they come from
    Routes(RoutesArgs),
    /// End all processes in a lab and remove it
    Down(DownArgs),
    /// Keep the namespaces of a rootless lab (started by `up`)
    #[command(hide = true)]
    Hold {
        /// Directory of the lab
        dir: PathBuf,
    },
    /// Run babeld in every node (started by `up`)
    #[command(hide = true)]
    Babel {
        /// Directory of the lab
        dir: PathBuf,
    },
    /// Print one lab with its link counters (started by `list`)
    #[command(hide = true)]
    Counters {
        /// Name of the lab
        name: String,
    },
    /// Run the device of a node (started by `up`)
    #[command(hide = true)]
    Device {
        /// Directory of the lab
        dir: PathBuf,
        /// Number of the node, from 0
        number: usize,
    },
    /// Forward the frames of a TAP link (started by `up`)
    #[command(hide = true)]
    Link {
        /// Directory of the lab
        dir: PathBuf,
        /// Number of the link, from 0
        number: usize,
    },
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A TOML file names nodes and links:
  version = 1
  nodes = [\"robot\", \"relay\", \"base\"]
  links = [
    { a = \"robot\", b = \"relay\", rate = \"10Mbit/s\", delay = \"5ms\", loss = \"1%\" },
    { a = \"relay\", b = \"base\" },
  ]
A link may also have jitter, duplicate, reorder, seed and mechanism. A [quota] table limits nodes to
shares of a processor, like robot = \"20%\". Put options before the file. A table [device.base] with
kind = \"cortex-m3\" makes the node base a microcontroller, emulated by QEMU (make firmware).

With --routing babel, the lab is ready when babeld has routes between all nodes, which takes about
5 s for three nodes. `lab routes` shows later whether they still exist.

wifi:N needs the kernel module mac80211_hwsim and loads it if it can. The radios are in ad hoc mode
on channel 9 (2452 MHz), as wlan0 in every node. They have no options of links.

A quota applies to everything that `lab exec` runs in the node, and is an average over 100 ms: 20%
causes stalls of 44 to 80 ms, not a slower processor. Real-time scheduling is refused in the node if
the kernel has real-time group scheduling, and otherwise is not limited by the quota.")]
struct UpArgs {
    /// line:N (n1 - n2 - ... - nN), star:N (n1 is the hub), forced:N (a bridge with filters, so
    /// that only neighbours in the line hear each other), wifi:N (the same with 2 to 8 simulated
    /// 802.11 radios), or a TOML file
    topology: String,
    /// Name of the lab: letters, digits and hyphens [default: random]
    #[arg(long, allow_hyphen_values = true)]
    name: Option<String>,
    /// Rate of every link, like 10Mbit/s
    #[arg(long, value_parser = dwell_lab::rate, allow_hyphen_values = true)]
    rate: Option<BitRate>,
    /// One-way delay of every link, like 5ms
    #[arg(long, allow_hyphen_values = true)]
    delay: Option<Nanos>,
    /// Delay variation (plus or minus), like 1ms
    #[arg(long, allow_hyphen_values = true)]
    jitter: Option<Nanos>,
    /// Share of packets lost, like 1%
    #[arg(long, allow_hyphen_values = true)]
    loss: Option<Ratio>,
    /// Share of packets duplicated, like 1%
    #[arg(long, allow_hyphen_values = true)]
    duplicate: Option<Ratio>,
    /// Share of packets that skip the delay, like 1%
    #[arg(long, allow_hyphen_values = true)]
    reorder: Option<Ratio>,
    /// Seed of random losses, duplicates, reordering and jitter; the same seed repeats them
    /// [default: random]
    #[arg(long, value_parser = seed, allow_hyphen_values = true)]
    seed: Option<u64>,
    /// Link emulation: netem, tbf or tap [default: the first that supports the link]
    #[arg(long, allow_hyphen_values = true)]
    mechanism: Option<Mechanism>,
    /// Source of routes: static (set once by dwell) or babel (from babeld in every node)
    #[arg(long, default_value_t, allow_hyphen_values = true)]
    routing: Routing,
    /// Share of one processor for everything in a node, like n2=20%. Repeatable
    #[arg(long, value_name = "NODE=SHARE", allow_hyphen_values = true)]
    quota: Vec<QuotaOption>,
    /// First remove a lab of the same name and end its processes
    #[arg(long, requires = "name")]
    replace: bool,
    #[command(flatten)]
    attached: Attached,
    /// Print the lab as one JSON object
    #[arg(long)]
    json: bool,
}

/// For a controller, which keeps the other end of standard input open.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Attached {
    /// Do nothing, or roll back, once standard input is closed by the peer
    #[arg(long, hide = true)]
    attached: bool,
}

impl Attached {
    fn is_abandoned(self) -> bool {
        self.attached && is_stdin_hung_up()
    }
}

#[derive(Debug, clap::Args)]
struct ExecArgs {
    /// Name of the lab [default: the only lab]
    #[arg(long)]
    lab: Option<String>,
    #[command(flatten)]
    attached: Attached,
    /// Name of the node
    node: String,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Print all labs with their counters as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct RoutesArgs {
    /// Name of the lab [default: the only lab]
    name: Option<String>,
    /// Print the routes as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct DownArgs {
    /// Name of the lab [default: the only lab]
    #[arg(conflicts_with = "all")]
    name: Option<String>,
    /// Remove all labs
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    attached: Attached,
}

/// Runs the command.
pub fn run(args: Args) -> Result<Exit, Failure> {
    match args.command {
        LabCommand::Up(args) => up(args),
        LabCommand::Exec(args) => exec(&args),
        LabCommand::List(args) => list(&args),
        LabCommand::Down(DownArgs { all: true, .. }) => down_all(),
        LabCommand::Down(DownArgs { name, attached, .. }) => down(name.as_deref(), attached),
        LabCommand::Routes(args) => routes(&args),
        LabCommand::Babel { dir } => {
            dwell_lab::supervise_babel(&lab_dir(&dir)?).map_err(failure)?;
            Ok(Exit::Measured)
        }
        LabCommand::Hold { dir } => {
            dwell_lab::hold(&lab_dir(&dir)?).map_err(failure)?;
            Ok(Exit::Measured)
        }
        LabCommand::Counters { name } => {
            show::json(&dwell_lab::counters(&name).map_err(failure)?)?;
            Ok(Exit::Measured)
        }
        LabCommand::Device { dir, number } => {
            dwell_lab::run_device(&lab_dir(&dir)?, number).map_err(failure)?;
            Ok(Exit::Measured)
        }
        LabCommand::Link { dir, number } => {
            dwell_lab::run_link(&lab_dir(&dir)?, number).map_err(failure)?;
            Ok(Exit::Measured)
        }
    }
}

fn up(args: UpArgs) -> Result<Exit, Failure> {
    let options = LinkOptions {
        rate: args.rate,
        delay: args.delay,
        jitter: args.jitter,
        loss: args.loss,
        duplicate: args.duplicate,
        reorder: args.reorder,
        seed: args.seed,
        mechanism: args.mechanism,
    };
    let topology = Topology::read(&args.topology, &options)
        .and_then(|topology| topology.with_routing(args.routing).with_quotas(&args.quota))
        .map_err(|e| failure(e.into()))?;
    let progress = Progress::new("lab up");
    let show = |done, of| progress.show(done, of, "");
    let abandoned = || args.attached.is_abandoned();
    let make = || dwell_lab::up(&topology, args.name.as_deref(), &show, &abandoned);
    let mut made = make();
    if let (true, Some(name)) = (args.replace, &args.name) {
        for _ in 0..MAX_REPLACEMENTS {
            match made {
                Err(error) if error.blocks_creation() => remove_lab(name, args.attached)?,
                _ => break,
            }
            made = make();
        }
    }
    drop(progress);
    let lab = made.map_err(failure)?;
    if args.json {
        show::json(&lab)?
    } else {
        show::lab(&lab)?
    }
    Ok(Exit::Measured)
}

/// Maximum number of times that `--replace` removes a lab: another process may create one with the
/// same name.
const MAX_REPLACEMENTS: usize = 5;

/// Removes the lab of this name, or its remains. A child process does so, because removing a
/// rootless lab means entering its namespaces for good. A lab that no longer exists is fine.
fn remove_lab(name: &str, attached: Attached) -> Result<(), Failure> {
    let own = std::env::current_exe()?;
    let mut down = Command::new(own);
    down.args(["lab", "down", name]).args(attached.attached.then_some("--attached"));
    let output = down.stdin(Stdio::inherit()).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(code) if code == Exit::Measured as i32 || code == Exit::Usage as i32 => Ok(()),
        _ => Err(anyhow::anyhow!("cannot replace lab {name}: {}", stderr.trim()).into()),
    }
}

fn exec(args: &ExecArgs) -> Result<Exit, Failure> {
    let lab = dwell_lab::named_or_only(args.lab.as_deref()).map_err(failure)?;
    let mut note = |text| crate::say(&format!("dwell: {text}"));
    let [program, arguments @ ..] = &args.command[..] else {
        return Err(Failure::usage("no command given; write it like lab exec n1 -- ping n2"));
    };
    let abandoned = || args.attached.is_abandoned();
    match dwell_lab::exec(&lab, &args.node, program, arguments, &mut note, &abandoned) {
        Ok(never) => match never {},
        Err(error) => Err(failure(error)),
    }
}

fn list(args: &ListArgs) -> Result<Exit, Failure> {
    let labs = dwell_lab::list().map_err(failure)?;
    if args.json {
        let described = labs.into_iter().flatten().map(with_counters);
        show::labs_json(described.collect::<Result<_, _>>()?)?;
    } else {
        show::labs(&labs)?;
    }
    Ok(Exit::Measured)
}

/// Prints the routes. A missing route changes only the exit code.
fn routes(args: &RoutesArgs) -> Result<Exit, Failure> {
    let name = dwell_lab::named_or_only(args.name.as_deref()).map_err(failure)?;
    let table: RouteTable = dwell_lab::routes(&name).map_err(failure)?;
    if args.json {
        show::json(&table)?;
    } else {
        show::routes(&table)?;
    }
    match &table.reason {
        None => Ok(Exit::Measured),
        Some(reason) => {
            crate::say(&format!("dwell: {reason}"));
            Ok(Exit::Failed)
        }
    }
}

/// The lab with its link counters, if readable: not for an incomplete lab, and for root's lab only
/// as root. Runs a child process per lab, because reading a rootless lab means entering its
/// namespaces for good.
fn with_counters(lab: Lab) -> Result<Lab, Failure> {
    let own = std::env::current_exe()?;
    let output = Command::new(own)
        .args(["lab", "counters", &lab.name])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    Ok(serde_json::from_slice(&output.stdout).unwrap_or(lab))
}

fn down(name: Option<&str>, attached: Attached) -> Result<Exit, Failure> {
    let name = dwell_lab::named_or_only(name).map_err(failure)?;
    let abandoned = || attached.is_abandoned();
    for process in dwell_lab::down(&name, &abandoned).map_err(failure)? {
        let place = process.node.map(|node| format!(" in {node}")).unwrap_or_default();
        crate::say(&format!("ended {} ({}), which still ran{place}", process.command, process.pid));
    }
    crate::say(&format!("removed lab {name}"));
    Ok(Exit::Measured)
}

/// Removes all labs with a child process each, because removing a rootless lab means entering its
/// namespaces for good.
fn down_all() -> Result<Exit, Failure> {
    let own = std::env::current_exe()?;
    let mut exit = Exit::Measured;
    for name in dwell_lab::names().map_err(failure)? {
        if !Command::new(&own).args(["lab", "down", &name]).status()?.success() {
            exit = Exit::Failed;
        }
    }
    Ok(exit)
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a seed is a whole number from 0 to {}", u64::MAX))
}

fn lab_dir(path: &std::path::Path) -> Result<LabDir, Failure> {
    LabDir::at(path)
        .ok_or_else(|| Failure::usage("not the directory of a lab; it has the form DIR/NAME"))
}

fn failure(error: LabError) -> Failure {
    let exit = match &error {
        LabError::Unsupported(_) => Exit::Unsupported,
        LabError::Interrupted | LabError::Abandoned => Exit::Interrupted,
        error if error.is_usage() => Exit::Usage,
        _ => Exit::Failed,
    };
    Failure { exit, error: error.into() }
}
