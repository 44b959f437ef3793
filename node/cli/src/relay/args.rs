//! The command line of `dwell relay`, and the job that it asks for.

use std::path::PathBuf;
use std::str::FromStr;

use dwell_plan::{Cipher, Clear, Hold, HoldAt, KeySource, RelayEngine, RelayJob, RelayMode};
use dwell_units::Nanos;

use crate::ping::StampChoice;
use crate::{IdChoice, PlaceArgs};

/// Arguments of `relay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 stopped by SIGINT or SIGTERM, 1 a socket cannot be opened or failed, 2 usage, \
4 not supported or no privilege here.")]
pub struct Args {
    /// Where clients send to: udp://ADDRESS:PORT or tcp://ADDRESS:PORT
    #[arg(long, value_name = "URL")]
    pub listen: String,

    /// Where it goes: the same protocol
    #[arg(long, value_name = "URL")]
    pub to: String,

    /// What happens to payloads. translate: nothing, only addresses and ports change; encrypt:
    /// enciphered on the way there, deciphered on the way back; decrypt: its mirror
    #[arg(long, value_enum, default_value_t = ModeChoice::Translate)]
    pub mode: ModeChoice,

    /// How payloads are encrypted. aes-128-ctr: secrecy only, changed and replayed packets pass;
    /// aes-128-gcm: such packets are refused
    #[arg(long, value_enum, default_value_t = CipherChoice::Aes128Ctr)]
    pub cipher: CipherChoice,

    /// Bytes at the start of every payload that are not enciphered; auto: iperf2's header
    #[arg(long, value_name = "BYTES|auto", default_value = "12", value_parser = clear)]
    pub clear: Clear,

    /// Key for AES-128: 32 hexadecimal digits in this file, which others must not be able to read.
    /// The environment variable DWELL_KEY does the same
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// What moves the packets. socket: one receive and one send call for each; batch: many by each
    /// call; xdp: in the driver (translate only)
    #[arg(long, value_enum, default_value_t = EngineChoice::Socket)]
    pub engine: EngineChoice,

    /// Hand packets of one length to the kernel as one that it cuts as late as it can: more of them a
    /// second, and none has kernel stamps (batch; on where --stamps user asks for none)
    #[arg(long, overrides_with = "no_merge")]
    pub merge: bool,

    /// Hand every packet to the kernel as one of its own
    #[arg(long, overrides_with = "merge")]
    pub no_merge: bool,

    /// Which stamps to use
    #[arg(long, value_enum, default_value_t = StampChoice::Auto)]
    pub stamps: StampChoice,

    /// Where packets carry their id; none: they are numbered as they come
    #[arg(long, value_enum, default_value_t = IdChoice::Auto)]
    pub id: IdChoice,

    /// Most clients at a time (512 over TCP); beyond, the one that was idle for longest goes
    #[arg(long, value_name = "N", default_value_t = 4_096)]
    pub flows: u32,

    /// Forget a client that was idle for this long, and close its connection; if not given, 60s (TCP
    /// 124min)
    #[arg(long, value_name = "TIME")]
    pub idle: Option<Nanos>,

    /// Hold every packet on purpose, in the program or unread in the socket, like program:200us
    #[arg(long, value_name = "program|socket:TIME", value_parser = hold)]
    pub hold: Option<Hold>,

    /// Fill the empty telemetry slots of STAMP packets that pass
    #[arg(long)]
    pub telemetry: bool,

    /// This node in telemetry
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub node_id: u32,

    /// Write every stamp of every packet to this file, as a sample segment
    #[arg(long, value_name = "FILE")]
    pub samples: Option<PathBuf>,

    /// Where and how the relaying thread runs.
    #[command(flatten)]
    pub place: PlaceArgs,

    /// Print the summary as one JSON object at the end
    #[arg(long)]
    pub json: bool,

    /// Print nothing but errors and the summary
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

/// What happens to payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ModeChoice {
    /// Nothing
    Translate,
    /// Enciphered on the way there
    Encrypt,
    /// Deciphered on the way there
    Decrypt,
}

/// How payloads are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CipherChoice {
    /// AES-128 in counter mode
    #[value(name = "aes-128-ctr")]
    Aes128Ctr,
    /// AES-128 in Galois/counter mode
    #[value(name = "aes-128-gcm")]
    Aes128Gcm,
}

/// What moves the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum EngineChoice {
    /// One receive and one send call for each
    Socket,
    /// Many by each call
    Batch,
    /// In the driver
    Xdp,
}

impl Args {
    /// What these arguments ask for.
    pub(super) fn job(&self) -> RelayJob {
        let mut job = RelayJob::translate(&self.listen, &self.to);
        job.mode = match self.mode {
            ModeChoice::Translate => RelayMode::Translate,
            ModeChoice::Encrypt => RelayMode::Encrypt,
            ModeChoice::Decrypt => RelayMode::Decrypt,
        };
        job.cipher = match self.cipher {
            CipherChoice::Aes128Ctr => Cipher::Aes128Ctr,
            CipherChoice::Aes128Gcm => Cipher::Aes128Gcm,
        };
        job.clear = self.clear;
        job.key = self.key_file.clone().map_or(KeySource::Environment, KeySource::File);
        job.engine = match self.engine {
            EngineChoice::Socket => RelayEngine::Socket,
            EngineChoice::Batch => RelayEngine::Batch,
            EngineChoice::Xdp => RelayEngine::Xdp,
        };
        job.merge = match (self.merge, self.no_merge) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        };
        job.stamps = self.stamps.into();
        job.id = self.id.into();
        job.flows = self.flows;
        job.idle = self.idle;
        job.hold = self.hold;
        job.telemetry = self.telemetry;
        job.node_id = self.node_id;
        job.place = self.place.into();
        job
    }
}

/// Reads `--clear`.
fn clear(text: &str) -> Result<Clear, String> {
    const MOST: u16 = 65_507;
    if text == "auto" {
        return Ok(Clear::Auto);
    }
    // A bare number of bytes, as S0 has it, or one with its unit.
    let bytes = text.strip_suffix('B').unwrap_or(text).parse().ok();
    bytes.filter(|bytes| *bytes <= MOST).map(Clear::Bytes).ok_or_else(|| {
        format!("a number of bytes from 0 to {MOST}, like 12, 16, 76 or 108; or auto")
    })
}

/// Reads `--hold`.
fn hold(text: &str) -> Result<Hold, String> {
    let wrong = || "where and for how long, like program:200us or socket:2ms".to_owned();
    let (at, time) = text.split_once(':').ok_or_else(wrong)?;
    let at = match at {
        "program" => HoldAt::Program,
        "socket" => HoldAt::Socket,
        _ => return Err(wrong()),
    };
    let time = Nanos::from_str(time).map_err(|error| error.to_string())?;
    Ok(Hold { at, time })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_says_what_would_be_right() {
        assert_eq!(clear("auto"), Ok(Clear::Auto));
        assert_eq!((clear("108"), clear("12B")), (Ok(Clear::Bytes(108)), Ok(Clear::Bytes(12))));
        assert!(clear("70000").unwrap_err().contains("from 0 to"));
        let held = hold("socket:2ms").unwrap();
        assert_eq!((held.at, held.time), (HoldAt::Socket, Nanos::from_millis(2)));
        assert!(hold("200us").unwrap_err().contains("program:200us"));
        assert!(hold("program:200").is_err(), "a unit is required");
    }
}
