//! The command line of `dwell relay` and the job it describes.

use std::path::PathBuf;

use dwell_protocol::{KeySource, RelayJob};

/// Arguments of `relay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 stopped by SIGINT or SIGTERM, 1 a socket could not be opened or failed, 2 usage, \
4 not supported or not permitted here.")]
pub struct Args {
    /// The job, without its key.
    #[command(flatten)]
    job: RelayJob,

    /// File with the AES-128 key: 32 hexadecimal digits, unreadable for other users. The
    /// environment variable DWELL_KEY is an alternative
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// Send packets of equal length as one buffer that the kernel segments late (UDP GSO). Raises
    /// the packet rate; removes kernel timestamps. Needs --engine batch; the default with --stamps
    /// user
    #[arg(long, overrides_with = "no_merge")]
    pub merge: bool,

    /// Send every packet separately
    #[arg(long, overrides_with = "merge")]
    pub no_merge: bool,

    /// Write all timestamps of every packet to this file, as a sample segment
    #[arg(long, value_name = "FILE")]
    pub samples: Option<PathBuf>,

    /// Print the summary as one JSON object at the end
    #[arg(long)]
    pub json: bool,

    /// Print only errors and the summary
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

impl Args {
    /// Returns the job that these arguments describe.
    pub(super) fn job(&self) -> RelayJob {
        RelayJob {
            key: self.key_file.clone().map_or(KeySource::Environment, KeySource::File),
            merge: match (self.merge, self.no_merge) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            },
            ..self.job.clone()
        }
    }
}
