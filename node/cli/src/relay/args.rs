//! The command line of `dwell relay` and the job it describes.

use std::path::PathBuf;
use std::str::FromStr;

use dwell_protocol::{
    Cipher, ClearPrefix, Hold, HoldAt, IdFormat, KeySource, RelayEngine, RelayJob, RelayMode,
    Stamps, ThreadPlacement,
};
use dwell_units::Nanos;

/// Arguments of `relay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 stopped by SIGINT or SIGTERM, 1 a socket could not be opened or failed, 2 usage, \
4 not supported here or not permitted.")]
pub struct Args {
    /// Address that clients send to: udp://ADDRESS:PORT or tcp://ADDRESS:PORT
    #[arg(long, value_name = "URL")]
    pub listen: String,

    /// Address to relay to, with the same protocol as --listen
    #[arg(long, value_name = "URL")]
    pub to: String,

    /// Processing of payloads. translate: none, only addresses and ports change; encrypt: encrypt
    /// towards --to and decrypt replies; decrypt: the reverse of encrypt
    #[arg(long, value_enum, default_value_t = RelayMode::Translate)]
    pub mode: RelayMode,

    /// Encryption. aes-128-ctr: secrecy only, modified and replayed packets are accepted;
    /// aes-128-gcm: such packets are dropped
    #[arg(long, value_enum, default_value_t = Cipher::Aes128Ctr)]
    pub cipher: Cipher,

    /// Bytes at the start of each payload to leave unencrypted; auto: the iperf2 header
    #[arg(long, value_name = "BYTES|auto", default_value = "12", value_parser = clear)]
    pub clear: ClearPrefix,

    /// File with the AES-128 key: 32 hexadecimal digits, unreadable for other users. The
    /// environment variable DWELL_KEY is an alternative
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// How packets are moved. socket: one receive and one send call per packet; batch: many packets
    /// per call; xdp: in the network driver (translate only)
    #[arg(long, value_enum, default_value_t = RelayEngine::Socket)]
    pub engine: RelayEngine,

    /// Send packets of equal length as one buffer that the kernel segments late (UDP GSO). Raises
    /// the packet rate; removes kernel timestamps. Needs --engine batch; the default with --stamps
    /// user
    #[arg(long, overrides_with = "no_merge")]
    pub merge: bool,

    /// Send every packet separately
    #[arg(long, overrides_with = "merge")]
    pub no_merge: bool,

    /// Timestamps to use
    #[arg(long, value_enum, default_value_t = Stamps::Auto)]
    pub stamps: Stamps,

    /// Format of the packet id in payloads; none: number packets in order of arrival
    #[arg(long, value_enum, default_value_t = IdFormat::Auto)]
    pub id: IdFormat,

    /// Maximum number of clients (at most 512 over TCP). A new client replaces the one idle for
    /// longest
    #[arg(long, value_name = "N", default_value_t = 4_096)]
    pub flows: u32,

    /// Forget a client, or close its connection, after this idle time; default 60s (TCP 124min)
    #[arg(long, value_name = "TIME")]
    pub idle: Option<Nanos>,

    /// Delay every packet by this time, in the program or unread in the socket, like program:200us
    #[arg(long, value_name = "program|socket:TIME", value_parser = hold)]
    pub hold: Option<Hold>,

    /// Fill empty telemetry slots in relayed STAMP packets
    #[arg(long)]
    pub telemetry: bool,

    /// Number of this node in telemetry
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub node_id: u32,

    /// Write all timestamps of every packet to this file, as a sample segment
    #[arg(long, value_name = "FILE")]
    pub samples: Option<PathBuf>,

    /// CPU and scheduling of the relaying thread.
    #[command(flatten)]
    pub place: ThreadPlacement,

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
        let mut job = RelayJob::translate(&self.listen, &self.to);
        job.mode = self.mode;
        job.cipher = self.cipher;
        job.clear = self.clear;
        job.key = self.key_file.clone().map_or(KeySource::Environment, KeySource::File);
        job.engine = self.engine;
        job.merge = match (self.merge, self.no_merge) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        };
        job.stamps = self.stamps;
        job.id = self.id;
        job.flows = self.flows;
        job.idle = self.idle;
        job.hold = self.hold;
        job.telemetry = self.telemetry;
        job.node_id = self.node_id;
        job.place = self.place;
        job
    }
}

/// Parses `--clear`.
fn clear(text: &str) -> Result<ClearPrefix, String> {
    const MAX_CLEAR_LEN: u16 = 65_507;
    if text == "auto" {
        return Ok(ClearPrefix::Auto);
    }
    // A bare number of bytes, as in Miya 2020, or one with its unit.
    let bytes = text.strip_suffix('B').unwrap_or(text).parse().ok();
    bytes.filter(|bytes| *bytes <= MAX_CLEAR_LEN).map(ClearPrefix::Bytes).ok_or_else(|| {
        format!("a number of bytes from 0 to {MAX_CLEAR_LEN}, like 12, 16, 76 or 108; or auto")
    })
}

/// Parses `--hold`.
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
    fn wrong_relay_value_error_names_the_correction() {
        assert_eq!(clear("auto"), Ok(ClearPrefix::Auto));
        assert_eq!(
            (clear("108"), clear("12B")),
            (Ok(ClearPrefix::Bytes(108)), Ok(ClearPrefix::Bytes(12)))
        );
        assert!(clear("70000").unwrap_err().contains("from 0 to"));
        let held = hold("socket:2ms").unwrap();
        assert_eq!((held.at, held.time), (HoldAt::Socket, Nanos::from_millis(2)));
        assert!(hold("200us").unwrap_err().contains("program:200us"));
        assert!(hold("program:200").is_err(), "a unit is required");
    }
}
