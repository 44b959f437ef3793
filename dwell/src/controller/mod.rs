//! The controller's commands: run plans; store, show, compare and export their results.

mod audit;
mod compare;
mod data;
mod delete;
mod device;
mod export;
mod fit;
mod fleet;
mod hub;
mod import;
mod note;
mod predict;
mod query;
mod replay;
mod report;
mod run;
mod runs;
mod serve;
mod show;
mod witness;

use std::io::{self, Write};
use std::path::Path;

use dwell_node_cli::examples::Examples;
use dwell_node_cli::{Exit, Failure, terminal};
use dwell_store::StoreError;

/// The examples of the controller's commands.
pub(crate) const EXAMPLES: &[Examples] = &[
    ("run", ["run plans/quick.toml", "run plans/quick.toml --set ping.rate=1kpps --dry-run"]),
    ("runs", ["runs", "runs --json"]),
    ("show", ["show", "show last --json"]),
    ("report", ["report", "report last -o report.html"]),
    ("compare", ["compare 20260101-1 last", "compare 20260101-1 last --fail-if 'p99 > 10ms'"]),
    (
        "export",
        ["export last --format csv -o samples.csv", "export last --format parquet -o samples"],
    ),
    ("import", ["import ping.txt", "import capture.pcap --witness last"]),
    ("audit", ["audit table.csv", "audit log.csv --columns 'latency=RTT:us' --json"]),
    (
        "fit",
        ["fit last -o relay.json", "fit 20260101-1 --where topology.quota.n2=10% -o weak.json"],
    ),
    (
        "predict",
        [
            "predict topology.toml --deadline 5ms",
            "predict topology.toml --deadline 20ms --probability 0.99 --json",
        ],
    ),
    ("note", ["note last 'new antenna'", "note 20260101-1 'rain'"]),
    ("delete", ["delete 20260101-1", "delete last --yes"]),
    ("replay", ["replay --list", "replay round-trip --short"]),
    ("device", ["device add pi4 pi@192.0.2.7", "device check"]),
    (
        "device add",
        [
            "device add pi4 pi@192.0.2.7 --check",
            "device add gw root@[2001:db8::7]:2222 --model 'ECS LIVA' --tag shelf --price '130 USD'",
        ],
    ),
    ("device list", ["device list", "device list --verdicts"]),
    ("device check", ["device check", "device check --tag shelf --json"]),
    ("device show", ["device show pi4", "device show pi4 --json"]),
    (
        "device edit",
        [
            "device edit pi4 --note 'new antenna' --sudo",
            "device edit pi4 --name pi4-roof --clear price",
        ],
    ),
    (
        "serve",
        [
            "serve --listen 127.0.0.1:8081",
            "serve --listen 0.0.0.0:8443 --host lab.example --tls-cert cert.pem --tls-key key.pem",
        ],
    ),
    ("serve token", ["serve token", "serve token --data /var/lib/dwell"]),
    (
        "hub",
        ["hub --embedded", "hub --nats tls://hub.example.org:4222 --nats-ca ca.pem --keep 5m=180"],
    ),
    ("hub schedule", ["hub schedule check mesh.toml", "hub schedule apply mesh.toml"]),
    ("hub schedule check", ["hub schedule check mesh.toml", "hub schedule check mesh.toml --json"]),
    ("hub schedule apply", ["hub schedule apply mesh.toml", "hub schedule apply - < mesh.toml"]),
    ("hub schedule history", ["hub schedule history", "hub schedule history 3"]),
    ("hub samples", ["hub samples request berlin:paris --last 1h", "hub samples list"]),
    (
        "hub samples request",
        [
            "hub samples request berlin:paris --last 1h",
            "hub samples request berlin:paris --from 2026-11-26T08:00Z --to 2026-11-26T09:00Z",
        ],
    ),
    ("hub samples list", ["hub samples list", "hub samples list --format json"]),
    ("hub nodes", ["hub nodes", "hub nodes --json"]),
    ("hub alerts", ["hub alerts check alerts.toml", "hub alerts status"]),
    ("hub alerts check", ["hub alerts check alerts.toml", "hub alerts check - < alerts.toml"]),
    ("hub alerts apply", ["hub alerts apply alerts.toml", "hub alerts apply - < alerts.toml"]),
    ("hub alerts history", ["hub alerts history", "hub alerts history --format json"]),
    ("hub alerts status", ["hub alerts status", "hub alerts status --format json"]),
    ("hub alerts test", ["hub alerts test ops", "hub alerts test ops --data /var/lib/dwell"]),
    (
        "hub maintenance",
        ["hub maintenance berlin --for 2h --reason 'new switch'", "hub maintenance berlin --end"],
    ),
    (
        "hub enroll",
        [
            "hub enroll berlin UCZECXXJZLVQXNPQ4BUJ2JJ4RRSWMFLSYXNOZ3SMDZRGYXNQZNE7KMCL",
            "hub enroll lyon UCZECXXJZLVQXNPQ4BUJ2JJ4RRSWMFLSYXNOZ3SMDZRGYXNQZNE7KMCL --data hub",
        ],
    ),
    (
        "hub rotate",
        [
            "hub rotate berlin UAKV2UPUPLRE2TKHOJB5ES42TL4CF5JDQYVHZDEIZK3TNO3EA6U7KSNW",
            "hub rotate berlin --finish",
        ],
    ),
    ("hub revoke", ["hub revoke berlin", "hub revoke leaf:roof"]),
    ("hub keys", ["hub keys", "hub keys --bus-config /etc/nats/keys.conf"]),
    (
        "hub nats-config",
        [
            "hub nats-config --tls-cert cert.pem --tls-key key.pem --listen-leaf 0.0.0.0:7422",
            "hub nats-config --leaf roof --remote tls://hub:7422 --tls-cert c.pem --tls-key k.pem",
        ],
    ),
    (
        "query",
        [
            "query berlin:paris --last 24h",
            "query berlin:paris --metric rtt --from 2026-11-01 --to 2026-12-01 --step 24h --format csv",
        ],
    ),
    ("device remove", ["device remove pi4", "device remove pi4 --yes --keep-files"]),
];

/// A command of the controller.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ControllerCommand {
    /// Run a plan: all trials of its matrix, each stored as soon as it ends
    Run(run::Args),
    /// List the runs in the data directory
    Runs(runs::Args),
    /// Show the results of a run
    Show(show::Args),
    /// Write a self-contained HTML report of a run
    Report(report::Args),
    /// Compare runs: differences of percentiles, with confidence intervals
    Compare(compare::Args),
    /// Export the samples of a run
    Export(export::Args),
    /// Import measurements of dwell or another program
    Import(import::Args),
    /// Check a published table, a description of tables or a run: numbers that contradict their
    /// rows, ticks, time-outs, closed loops, drift
    Audit(audit::Args),
    /// Fit a model of a relaying node to a run
    Fit(fit::Args),
    /// Predict end-to-end delays from models, and choose relays that meet a deadline
    Predict(predict::Args),
    /// Add a note to a run
    Note(note::Args),
    /// Delete a run and its samples
    Delete(delete::Args),
    /// Repeat the experiment of a founding document and judge its claims
    Replay(replay::Args),
    /// Manage devices: machines that are reached by SSH
    Device(device::Args),
    /// Serve pages and an HTTP API about runs, devices and experiments
    Serve(serve::Args),
    /// Collect the results of a fleet's agents, and apply schedules
    Hub(hub::Args),
    /// Show the delays of a pair of nodes over time
    Query(query::Args),
}

impl ControllerCommand {
    /// Runs the command.
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let (outcome, data) = match &self {
            Self::Run(args) => (run::run(args), &args.data),
            Self::Runs(args) => (runs::run(args), &args.data),
            Self::Show(args) => (show::run(args), &args.data),
            Self::Report(args) => (report::run(args), &args.data),
            Self::Compare(args) => (compare::run(args), &args.data),
            Self::Export(args) => (export::run(args), &args.data),
            Self::Import(args) => (import::run(args), &args.data),
            Self::Audit(args) => (audit::run(args), &args.data),
            Self::Fit(args) => (fit::run(args), &args.data),
            Self::Predict(args) => return predict::run(args),
            Self::Note(args) => (note::run(args), &args.data),
            Self::Delete(args) => (delete::run(args), &args.data),
            Self::Replay(args) => (replay::run(args), &args.data),
            Self::Device(args) => (device::run(args), args.data()),
            Self::Serve(args) => (serve::run(args), args.data()),
            Self::Hub(args) => (hub::run(args), args.data()),
            Self::Query(args) => (query::run(args), &args.data),
        };
        outcome.map_err(|failure| named(failure, &data.catalogue()))
    }
}

/// Adds the name of the catalogue to errors about damaged pages, which SQLite reports without a
/// name.
fn named(failure: Failure, catalogue: &Path) -> Failure {
    let mut causes = failure.error.chain().filter_map(|cause| cause.downcast_ref::<StoreError>());
    if !causes.any(StoreError::is_damaged_catalogue) {
        return failure;
    }
    let what =
        format!("{} is damaged; the samples beside it are not affected", catalogue.display());
    Failure { error: failure.error.context(what), ..failure }
}

/// Prints the result of a command. A reader that has closed the pipe, like `head`, is not an error.
fn print(text: &str) -> io::Result<()> {
    let mut out = terminal::stdout();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}
