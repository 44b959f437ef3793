//! `dwell predict`: predicts end-to-end delays in a topology, and chooses relays.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use dwell_node_cli::{Exit, Failure, terminal};
use dwell_predict::{NodeModel, Request, TopologyFile, predict};
use dwell_units::Nanos;

/// Largest file that is read. A topology of 100,000 nodes has 14 MB.
const MAX_FILE_LEN: u64 = 256 << 20;

/// Arguments of `predict`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A topology is a TOML file with nodes, links and flows, described in docs/predict.md; models come \
from dwell fit. Of the paths that meet the deadline, each flow gets the one whose busiest node or \
link is used least, and no node or link is used above 95 % of its capacity. Exits with code 3 if a \
flow misses the deadline, is unreachable, or has no path below that limit.")]
pub(crate) struct Args {
    /// TOML file of the topology, or a .json file with the same fields
    #[arg(value_name = "TOPOLOGY.toml")]
    topology: PathBuf,

    /// End-to-end delay that packets may have, such as 5ms
    #[arg(long, value_name = "TIME")]
    deadline: Nanos,

    /// Share of the packets that must arrive in time, between 0 and 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.95)]
    probability: f64,

    /// Print the prediction as one JSON object (dwell.prediction/1)
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    if args.deadline <= Nanos::ZERO {
        return Err(Failure::usage("invalid value for --deadline: give a time above 0, like 5ms"));
    }
    if !(args.probability > 0.0 && args.probability < 1.0) {
        return Err(Failure::usage(format!(
            "invalid value {} for --probability: give a share between 0 and 1, like 0.95",
            args.probability
        )));
    }
    let path = args.topology.as_path();
    let named =
        |error: dwell_predict::PredictError| Failure::usage(format!("{}: {error}", path.display()));
    let text = read(path)?;
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let parse = if is_json { TopologyFile::parse_json } else { TopologyFile::parse };
    let file = parse(&text).map_err(named)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut models = BTreeMap::new();
    for name in file.model_files() {
        let path = folder.join(&name);
        let text = read_bounded(&path).map_err(|error| {
            Failure::usage(format!(
                "{}: cannot read model {}: {error}; write it with `dwell fit RUN -o {name}`",
                args.topology.display(),
                path.display()
            ))
        })?;
        models.insert(name.clone(), NodeModel::parse(&text, &name).map_err(named)?);
    }
    let network = file.network(&models).map_err(named)?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let request = Request { deadline_ns: args.deadline.0 as f64, probability: args.probability };
    let prediction = predict(&network, file.name().unwrap_or(&stem), &request);
    let mut out = terminal::buffered_stdout();
    if args.json {
        let object = serde_json::to_string_pretty(&prediction).map_err(anyhow::Error::new)?;
        writeln!(out, "{object}")?;
    } else {
        writeln!(out, "{}", prediction.text())?;
    }
    out.flush()?;
    Ok(if prediction.is_met() { Exit::Measured } else { Exit::Threshold })
}

fn read(path: &Path) -> Result<String, Failure> {
    read_bounded(path)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
}

/// Reads a regular file of at most [`MAX_FILE_LEN`].
fn read_bounded(path: &Path) -> io::Result<String> {
    let file = fs::metadata(path)?;
    if !file.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    if file.len() > MAX_FILE_LEN {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is longer than 256 MiB"));
    }
    fs::read_to_string(path)
}
