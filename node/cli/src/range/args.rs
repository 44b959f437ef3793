//! The command line of `dwell range`.

use std::path::PathBuf;

use dwell_protocol::{ProbeStamps, ThreadPlacement};
use dwell_stats::range::{Estimator, PropagationSpeed, SPEED_OF_LIGHT};
use dwell_units::{Bytes, Nanos};

use crate::Failure;

/// Maximum distance in metres: that of a round trip of a second and more.
const MAX_METRES: f64 = 1e9;

const AFTER_HELP: &str = "\
Microsecond timestamps are too coarse: 1 us of round-trip time is 150 m. Without a calibration the result is an \
upper bound of the distance, and the round trip in metres with the delay of both devices in it.\n\
--from rtts reads a round trip per line, like 1113us; --from ftm reads the output of 'iw dev X measurement \
ftm_request', the report of ESP-IDF, or CSV with columns such as rtt, t1, t2, t3 and t4 in picoseconds.\n\
Exit codes: 0 measured, 1 no round trip or a runtime failure, 2 usage, also a calibration that does not fit, 4 not \
supported or not permitted here, 130 interrupted (results so far are printed).";

/// Arguments of `range`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = AFTER_HELP)]
pub struct Args {
    #[command(subcommand)]
    pub(super) command: Option<RangeCommand>,

    #[command(flatten)]
    pub(super) source: SourceArgs,

    /// Calibration to use, a file written by `range calibrate`
    #[arg(long, value_name = "FILE")]
    pub(super) calibration: Option<PathBuf>,

    /// Estimator of the main result: minimum, median or mode. All are printed
    #[arg(long, value_name = "NAME", default_value = "median", value_parser = estimator)]
    pub(super) estimator: Estimator,

    /// Print the result as one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// Commands below `range`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum RangeCommand {
    /// Measure round trips at a known distance, for later measurements
    Calibrate(CalibrateArgs),
}

/// Arguments of `range calibrate`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct CalibrateArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,

    /// Distance at which the calibration is measured, like 1m, 30cm or 2.5km
    #[arg(long, value_name = "LENGTH", value_parser = length)]
    pub(super) distance: f64,

    /// File to write; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub(super) output: PathBuf,
}

/// The source of round trips, common to both commands.
#[derive(Debug, clap::Args)]
pub(super) struct SourceArgs {
    /// URL of the target, as in `ping`; a host without a scheme is probed with STAMP
    pub(super) target: Option<String>,

    /// Read round trips from a file instead: `rtts FILE` or `ftm FILE`; `-` is standard input
    #[arg(
        long,
        num_args = 2,
        value_names = ["KIND", "FILE"],
        conflicts_with_all = ["target", "count", "interval", "size", "timeout", "stamps"]
    )]
    pub(super) from: Option<Vec<String>>,

    /// Results of 802.11 FTM: MAC address of the peer, if the file has several
    #[arg(long, value_name = "MAC", requires = "from")]
    pub(super) peer: Option<String>,

    /// Number of probes to send
    #[arg(
        short = 'c',
        long,
        value_name = "N",
        default_value_t = 1_000,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000)
    )]
    pub(super) count: u64,

    /// Time between probes, like 10ms
    #[arg(short = 'i', long, value_name = "TIME", default_value = "10ms", value_parser = interval)]
    pub(super) interval: Nanos,

    /// Payload size, like 64B [default: as in `ping`]
    #[arg(short = 's', long, value_name = "BYTES")]
    pub(super) size: Option<Bytes>,

    /// Replies that arrive after this time are not used
    #[arg(short = 'W', long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(super) timeout: Nanos,

    /// Timestamps to use
    #[arg(long, value_enum, default_value_t = ProbeStamps::Auto)]
    pub(super) stamps: ProbeStamps,

    /// Placement of the timing loop.
    #[command(flatten)]
    pub(super) place: ThreadPlacement,

    /// Medium between the devices, which sets the propagation speed
    #[arg(long, value_enum, default_value_t = Medium::Air)]
    pub(super) medium: Medium,

    /// Propagation speed instead of a medium, like 0.66c or 200000km/s
    #[arg(long, value_name = "SPEED", value_parser = speed, conflicts_with = "medium")]
    pub(super) speed: Option<PropagationSpeed>,

    /// Print only the result: no progress
    #[arg(short = 'q', long)]
    pub(super) quiet: bool,
}

/// A medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Medium {
    /// Radio, also light, in air.
    Air,
    /// Twisted pair of Cat 5e to Cat 7: 0.64 to 0.80 of the speed of light.
    Copper,
    /// Glass fibre: 0.67 to 0.68 of the speed of light.
    Fibre,
}

/// A propagation speed with the name of its medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedSpeed {
    pub(super) medium: Option<&'static str>,
    pub(super) speed: PropagationSpeed,
}

impl SourceArgs {
    /// The propagation speed.
    pub(super) fn speed(&self) -> Result<NamedSpeed, Failure> {
        Ok(match (self.speed, self.medium) {
            (Some(speed), _) => NamedSpeed { medium: None, speed },
            (None, Medium::Air) => NamedSpeed { medium: Some("air"), speed: PropagationSpeed::AIR },
            (None, Medium::Copper) => {
                NamedSpeed { medium: Some("copper"), speed: PropagationSpeed::COPPER }
            }
            (None, Medium::Fibre) => {
                NamedSpeed { medium: Some("fibre"), speed: PropagationSpeed::FIBRE }
            }
        })
    }
}

fn estimator(text: &str) -> Result<Estimator, String> {
    Estimator::named(text).ok_or_else(|| "use minimum, median or mode".to_owned())
}

/// Parses a time above 0.
fn interval(text: &str) -> Result<Nanos, String> {
    let time = text.parse::<Nanos>().map_err(|error| error.to_string())?;
    if time.0 > 0 { Ok(time) } else { Err("use a time above 0, like 10ms".to_owned()) }
}

/// Parses a length in metres.
fn length(text: &str) -> Result<f64, String> {
    let wrong = || "use a length with its unit, like 1m, 30cm or 2.5km".to_owned();
    let units = [("km", 1e3), ("cm", 1e-2), ("mm", 1e-3), ("m", 1.0)];
    let (number, size) = units
        .iter()
        .find_map(|(unit, size)| Some((text.strip_suffix(unit)?, size)))
        .ok_or_else(wrong)?;
    let metres = decimal(number).ok_or_else(wrong)? * size;
    if metres <= MAX_METRES { Ok(metres) } else { Err(format!("use at most {MAX_METRES} m")) }
}

/// Parses a propagation speed.
fn speed(text: &str) -> Result<PropagationSpeed, String> {
    let units = [("km/s", 1e3), ("m/s", 1.0), ("c", SPEED_OF_LIGHT)];
    let found = units.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?, size)));
    found
        .and_then(|(number, size)| Some(decimal(number)? * size))
        .and_then(PropagationSpeed::from_metres_per_second)
        .ok_or_else(|| {
            "use a speed above 0 and up to that of light, like 0.66c or 200000km/s".into()
        })
}

/// A number of digits with at most one point: no sign, no exponent, no `inf`.
fn decimal(text: &str) -> Option<f64> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.trim_end().parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_need_a_unit() {
        assert_eq!(length("1m"), Ok(1.0));
        assert_eq!(length("30cm"), Ok(0.3));
        assert_eq!(
            (length("2.5km"), length("0m"), length("5mm")),
            (Ok(2_500.0), Ok(0.0), Ok(0.005))
        );
        for wrong in ["1", "-1m", "m", "1e3m", "infm", "nanm", "1 mile", "", "1..0m", "9999999km"] {
            assert!(length(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn speeds_are_at_most_that_of_light() {
        assert_eq!(speed("1c").unwrap().metres_per_second(), SPEED_OF_LIGHT);
        assert_eq!(speed("200000km/s").unwrap().metres_per_second(), 2e8);
        assert_eq!(speed("200000000m/s").unwrap().metres_per_second(), 2e8);
        for wrong in ["1.1c", "0c", "-1c", "c", "300000", "nanc", ""] {
            assert!(speed(wrong).is_err(), "{wrong}");
        }
    }
}
