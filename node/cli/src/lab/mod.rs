//! `dwell lab`: namespaces that stand for machines.

mod show;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use dwell_io::process::is_stdin_hung_up;
use dwell_lab::{
    Lab, LabDir, LabError, LinkWishes, Mechanism, QuotaWish, RouteTable, Routing, Topology,
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
    /// Make a lab: nodes, links, addresses and routes
    Up(UpArgs),
    /// Run a command in a node, in place of this one
    Exec(ExecArgs),
    /// Say which labs there are
    List(ListArgs),
    /// Say how every node reaches every other now, and who put the routes there
    Routes(RoutesArgs),
    /// End what runs in a lab and remove all of it
    Down(DownArgs),
    /// Keep the namespaces of a rootless lab (started by `up`)
    #[command(hide = true)]
    Hold {
        /// Directory of the lab
        dir: PathBuf,
    },
    /// Keep babeld in every node (started by `up`)
    #[command(hide = true)]
    Babel {
        /// Directory of the lab
        dir: PathBuf,
    },
    /// Print one lab with what its links did (started by `list`)
    #[command(hide = true)]
    Counters {
        /// The lab
        name: String,
    },
    /// Carry the frames of a TAP link (started by `up`)
    #[command(hide = true)]
    Link {
        /// Directory of the lab
        dir: PathBuf,
        /// Number of the link, from 0
        place: usize,
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
A link may also have jitter, duplicate, reorder, seed and mechanism, and a [quota] table holds nodes
to shares of a processor, like robot = \"20%\". Flags go before the file.

With --routing babel the lab is ready when every node reaches every other by routes of babeld's,
which takes about 5 s for three nodes; `lab routes` tells later whether they are still there.

A quota holds all that `lab exec` runs in the node, and is an average over 100 ms: a quota of 20%
means stalls of 44 to 80 ms, not a slower processor. Real-time scheduling is refused inside where the
kernel groups it too, and elsewhere escapes the quota.")]
struct UpArgs {
    /// line:N (n1 - n2 - ... - nN), star:N (n1 is the hub), forced:N (one bridge, filtered so that
    /// only neighbours in the line hear each other), or a TOML file
    topology: String,
    /// Name of the lab: letters, digits and hyphens [default: a short random one]
    #[arg(long, allow_hyphen_values = true)]
    name: Option<String>,
    /// Rate of every link, such as 10Mbit/s
    #[arg(long, value_parser = dwell_lab::rate, allow_hyphen_values = true)]
    rate: Option<BitRate>,
    /// Delay of every link, one way, such as 5ms
    #[arg(long, allow_hyphen_values = true)]
    delay: Option<Nanos>,
    /// Variation of the delay, either way, such as 1ms
    #[arg(long, allow_hyphen_values = true)]
    jitter: Option<Nanos>,
    /// Share of packets lost, such as 1%
    #[arg(long, allow_hyphen_values = true)]
    loss: Option<Ratio>,
    /// Share of packets doubled, such as 1%
    #[arg(long, allow_hyphen_values = true)]
    duplicate: Option<Ratio>,
    /// Share of packets that skip the delay, such as 1%
    #[arg(long, allow_hyphen_values = true)]
    reorder: Option<Ratio>,
    /// Seed of what chance decides; the same seed, the same luck [default: random]
    #[arg(long, value_parser = seed, allow_hyphen_values = true)]
    seed: Option<u64>,
    /// How links are emulated: netem, tbf or tap [default: the first of these that can do it]
    #[arg(long, allow_hyphen_values = true)]
    mechanism: Option<Mechanism>,
    /// Where routes come from: static (from dwell, once) or babel (from babeld, in every node)
    #[arg(long, default_value_t, allow_hyphen_values = true)]
    routing: Routing,
    /// Share of one processor for all that runs in a node, such as n2=20%; may be given again
    #[arg(long, value_name = "NODE=SHARE", allow_hyphen_values = true)]
    quota: Vec<QuotaWish>,
    /// Take down a lab of the same name first, and end what runs in it
    #[arg(long, requires = "name")]
    replace: bool,
    #[command(flatten)]
    attached: Attached,
    /// Print the lab as one JSON object
    #[arg(long)]
    json: bool,
}

/// For a controller, which keeps the other end of standard input open as long as it lives.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Attached {
    /// Do nothing, or undo what was begun, once standard input is hung up
    #[arg(long, hide = true)]
    attached: bool,
}

impl Attached {
    /// Whether the controller is gone.
    fn is_abandoned(self) -> bool {
        self.attached && is_stdin_hung_up()
    }
}

#[derive(Debug, clap::Args)]
struct ExecArgs {
    /// The lab [default: the only one there is]
    #[arg(long)]
    lab: Option<String>,
    #[command(flatten)]
    attached: Attached,
    /// The node
    node: String,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Print all of every lab as one JSON object, counters included
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct RoutesArgs {
    /// The lab [default: the only one there is]
    name: Option<String>,
    /// Print them as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct DownArgs {
    /// The lab [default: the only one there is]
    #[arg(conflicts_with = "all")]
    name: Option<String>,
    /// Every lab there is
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
            dwell_lab::keep_babel(&lab_dir(&dir)?).map_err(failure)?;
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
        LabCommand::Link { dir, place } => {
            dwell_lab::run_link(&lab_dir(&dir)?, place).map_err(failure)?;
            Ok(Exit::Measured)
        }
    }
}

fn up(args: UpArgs) -> Result<Exit, Failure> {
    let wishes = LinkWishes {
        rate: args.rate,
        delay: args.delay,
        jitter: args.jitter,
        loss: args.loss,
        duplicate: args.duplicate,
        reorder: args.reorder,
        seed: args.seed,
        mechanism: args.mechanism,
    };
    let topology = Topology::read(&args.topology, &wishes)
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
                Err(error) if error.is_in_the_way() => take_away(name, args.attached)?,
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

/// Times that `--replace` takes a lab down: another process may be making one under the same name.
const MAX_REPLACEMENTS: usize = 5;

/// Takes down the lab of this name, or what is left of it. A process of its own does so, because
/// removing a rootless lab means going inside for good. A lab that is gone by then is fine.
fn take_away(name: &str, attached: Attached) -> Result<(), Failure> {
    let own = std::env::current_exe()?;
    let mut down = Command::new(own);
    down.args(["lab", "down", name]).args(attached.attached.then_some("--attached"));
    let output = down.stdin(Stdio::inherit()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(code) if code == Exit::Measured as i32 || code == Exit::Usage as i32 => Ok(()),
        _ => Err(anyhow::anyhow!("cannot replace lab {name}: {}", said.trim()).into()),
    }
}

fn exec(args: &ExecArgs) -> Result<Exit, Failure> {
    let lab = dwell_lab::named_or_only(args.lab.as_deref()).map_err(failure)?;
    let mut note = |text| crate::say(&format!("dwell: {text}"));
    let [program, arguments @ ..] = &args.command[..] else {
        return Err(Failure::usage("no command was given; write it like lab exec n1 -- ping n2"));
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

/// Printed also where a route is missing: what there is, is the result, and only the exit code tells.
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

/// The lab and what its links did, as far as that can be told: not of one that is not whole, and
/// not of root's unless one is root. One process each, because looking into a rootless lab means
/// going inside for good.
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
    crate::say(&format!("lab {name} is gone"));
    Ok(Exit::Measured)
}

/// One process per lab, because removing a rootless one means going inside for good.
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
    LabDir::at(path).ok_or_else(|| Failure::usage("this is the directory of a lab: DIR/NAME"))
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
