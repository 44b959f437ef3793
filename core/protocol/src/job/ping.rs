//! Jobs that send probes.

use std::path::PathBuf;

use dwell_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{ParameterError, ProbeStamps, ThreadPlacement};

/// Default time-out, as in Roedlach/Vock (S4.1).
const DEFAULT_TIMEOUT: Nanos = Nanos::from_secs(1);

/// Maximum number of clients at the same time.
const MAX_CLIENTS: u32 = 64;

/// Maximum DSCP: a field of 6 bits (RFC 2474, section 3).
const MAX_DSCP: u8 = 63;

/// Options of probes that plans, jobs and the command line share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct PingParameters {
    /// Number of probes to send, by each client.
    #[cfg_attr(feature = "clap", arg(short = 'c', long, value_name = "N"))]
    pub count: Option<u64>,
    /// Number of clients that send probes at the same time, each from a socket of its own; 1 to 64.
    /// Ids of the second client start at 2^32, of the third at 2 * 2^32 [default: 1].
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub clients: Option<u32>,
    /// Time between probes.
    #[cfg_attr(
        feature = "clap",
        arg(short = 'i', long, value_name = "TIME", value_parser = seconds)
    )]
    pub interval: Option<Nanos>,
    /// Payload size in bytes.
    #[cfg_attr(
        feature = "clap",
        arg(short = 's', long, value_name = "BYTES", value_parser = bytes)
    )]
    pub size: Option<Bytes>,
    /// Send no probe later than this time after the first.
    #[cfg_attr(
        feature = "clap",
        arg(short = 'w', long = "deadline", value_name = "TIME", value_parser = seconds)
    )]
    pub duration: Option<Nanos>,
    /// Replies that arrive after this time are late [default: 1s].
    #[cfg_attr(
        feature = "clap",
        arg(short = 'W', long, value_name = "TIME", value_parser = seconds)
    )]
    pub timeout: Option<Nanos>,
    /// Send each probe after the reply to the previous one, or its time-out.
    #[cfg_attr(feature = "clap", arg(long))]
    pub closed_loop: bool,
    /// Closed loop: pause after each reply.
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub pause: Option<Nanos>,
    /// Number of warm-up probes, which are not counted.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000))
    )]
    pub warm_up: Option<u32>,
    /// Timestamps to use.
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = ProbeStamps::Auto))]
    pub stamps: ProbeStamps,
    /// Also request the kernel timestamp taken before the queueing discipline (tx_sched).
    #[cfg_attr(feature = "clap", arg(long))]
    pub sched_stamps: bool,
    /// ICMP: kind of socket.
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = IcmpSocket::Auto))]
    pub icmp_socket: IcmpSocket,
    /// Payload contents.
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = Pattern::Random))]
    pub pattern: Pattern,
    /// TTL or hop limit of probes. A udp:// reply carries the arriving TTL - 1, so udp:// needs at
    /// least twice the number of routers + 2.
    #[cfg_attr(feature = "clap", arg(short = 't', long, value_name = "TTL"))]
    pub ttl: Option<u8>,
    /// DSCP of probes, 0 to 63.
    #[cfg_attr(feature = "clap", arg(long, value_name = "DSCP"))]
    pub dscp: Option<u8>,
    /// TCP: delay a probe while an earlier one is not acknowledged (Nagle's algorithm). Without it,
    /// probes leave at once (TCP_NODELAY).
    #[cfg_attr(feature = "clap", arg(long))]
    pub nagle: bool,
    /// TCP: acknowledge replies at once (TCP_QUICKACK). Without it, the kernel delays
    /// acknowledgements without data, by 40 ms or more.
    #[cfg_attr(feature = "clap", arg(long))]
    pub quick_ack: bool,
    /// Name the causes of spikes, which are round trips above the median + 10 MAD: the thread that
    /// had the processor, interrupts, softirqs, idle exits. Needs root; otherwise only run-queue
    /// wait and steal are known.
    #[cfg_attr(feature = "clap", arg(long))]
    pub explain: bool,
    /// Like --explain, for round trips above this time.
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub explain_above: Option<Nanos>,
    /// Keep the processors of this machine out of idle states during the measurement, by holding
    /// /dev/cpu_dma_latency at 0 us. Needs root; otherwise a warning in the result.
    #[cfg_attr(feature = "clap", arg(long))]
    pub no_idle: bool,
}

impl PingParameters {
    /// Time-out after which a reply is late.
    pub fn timeout(&self) -> Nanos {
        self.timeout.unwrap_or(DEFAULT_TIMEOUT)
    }

    /// Number of clients.
    pub fn clients(&self) -> u32 {
        self.clients.unwrap_or(1)
    }

    /// Whether the causes of spikes are requested.
    pub fn is_explained(&self) -> bool {
        self.explain || self.explain_above.is_some()
    }

    /// Checks every range that depends on neither the protocol nor the socket.
    ///
    /// # Errors
    /// The first value outside its range.
    pub fn check(&self) -> Result<(), ParameterError> {
        let Self { count, clients, timeout, pause, ttl, dscp, explain_above, .. } = *self;
        let is_above_zero = |time: Nanos| time > Nanos::ZERO;
        ParameterError::unless("count", count, |count| count > 0, "1 or more")?;
        let is_fitting = |clients| (1..=MAX_CLIENTS).contains(&clients);
        ParameterError::unless("clients", clients, is_fitting, "1 to 64")?;
        ParameterError::unless("timeout", timeout, is_above_zero, "above 0, like 1s")?;
        ParameterError::unless("pause", pause, |pause| pause >= Nanos::ZERO, "0 or more")?;
        ParameterError::unless("explain_above", explain_above, is_above_zero, "above 0, like 1ms")?;
        ParameterError::unless("ttl", ttl, |ttl| ttl > 0, "1 to 255")?;
        ParameterError::unless("dscp", dscp, |dscp| dscp <= MAX_DSCP, "0 to 63")
    }

    /// Parameters of a result that are recorded as requested, by their names there.
    pub fn recorded(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("count", json!(self.count)),
            ("clients", json!(self.clients())),
            ("deadline_ns", json!(self.duration.map(|time| time.0))),
            ("timeout_ns", json!(self.timeout().0)),
            ("pattern", json!(self.pattern)),
            ("stamps", json!(self.stamps)),
            ("ttl", json!(self.ttl)),
            ("dscp", json!(self.dscp)),
            ("nagle", json!(self.nagle)),
            ("quick_ack", json!(self.quick_ack)),
            ("explain", json!(self.is_explained())),
            ("explain_above_ns", json!(self.explain_above.map(|time| time.0))),
            ("no_idle", json!(self.no_idle)),
        ]
    }
}

/// Parses a time as ping does: bare seconds, or with a unit.
#[cfg(feature = "clap")]
fn seconds(text: &str) -> Result<Nanos, String> {
    let time = match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() => Nanos::from_secs_f64(seconds),
        _ => text.parse::<Nanos>().map_err(|error| error.to_string())?,
    };
    if time.0 < 0 { Err(format!("'{text}' is negative; use 0 or more")) } else { Ok(time) }
}

/// Parses a size as ping does: bare bytes, or with a unit.
#[cfg(feature = "clap")]
fn bytes(text: &str) -> Result<Bytes, String> {
    let bare = text.parse().map(Bytes);
    bare.or_else(|_| text.parse::<Bytes>()).map_err(|error| error.to_string())
}

/// Probes to send.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct PingJob {
    /// Target, as a URL or a host.
    pub target: String,
    /// Options of the probes.
    #[cfg_attr(feature = "clap", command(flatten))]
    #[serde(default)]
    pub parameters: PingParameters,
    /// CPU and scheduling of the timing loop.
    #[cfg_attr(feature = "clap", command(flatten))]
    #[serde(default)]
    pub place: ThreadPlacement,
    /// STAMP authenticated mode: file with the key in hexadecimal, readable only by its owner.
    /// Alternatively set the environment variable DWELL_KEY.
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE"))]
    pub key_file: Option<PathBuf>,
    /// Measure the delay inside each relay on the path, in both directions. STAMP probes carry this
    /// number of empty slots, and a relay started with --telemetry fills one per direction. Clocks
    /// need not be synchronised.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "SLOTS",
            num_args = 0..=1,
            default_missing_value = "4",
            value_parser = clap::value_parser!(u8).range(1..=8)
        )
    )]
    pub path: Option<u8>,
    /// --stamps driver: interface on which replies arrive; repeatable [default: the one that probes
    /// leave through].
    #[cfg_attr(feature = "clap", arg(long = "interface", value_name = "INTERFACE"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// Use IPv4 only.
    #[cfg_attr(feature = "clap", arg(short = '4', conflicts_with = "ipv6"))]
    #[serde(default)]
    pub ipv4: bool,
    /// Use IPv6 only.
    #[cfg_attr(feature = "clap", arg(short = '6'))]
    #[serde(default)]
    pub ipv6: bool,
    /// Local address or interface to send from.
    #[cfg_attr(
        feature = "clap",
        arg(short = 'I', long = "from", value_name = "ADDRESS|INTERFACE")
    )]
    pub from: Option<String>,
}

impl PingJob {
    /// One probe per second to `target`, until stopped.
    pub fn to(target: impl Into<String>) -> Self {
        Self { target: target.into(), ..Self::default() }
    }
}

/// Kind of ICMP socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum IcmpSocket {
    /// A ping socket if permitted, otherwise a raw socket.
    #[default]
    Auto,
    /// A ping socket (net.ipv4.ping_group_range).
    Ping,
    /// A raw socket (CAP_NET_RAW).
    Raw,
}

/// Payload contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Random bytes, the same in every probe.
    #[default]
    Random,
    /// Zeros.
    Zero,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_outside_its_range_is_named() {
        let fits = PingParameters { dscp: Some(63), ttl: Some(1), ..PingParameters::default() };
        fits.check().unwrap();
        for (wrong, name, value) in [
            (PingParameters { dscp: Some(64), ..fits.clone() }, "dscp", "64"),
            (PingParameters { ttl: Some(0), ..fits.clone() }, "ttl", "0"),
            (PingParameters { count: Some(0), ..fits.clone() }, "count", "0"),
            (PingParameters { clients: Some(65), ..fits.clone() }, "clients", "65"),
            (PingParameters { pause: Some(Nanos(-1)), ..fits.clone() }, "pause", "-1ns"),
            (PingParameters { timeout: Some(Nanos(0)), ..fits.clone() }, "timeout", "0s"),
        ] {
            let error = wrong.check().unwrap_err();
            assert_eq!((error.field, error.value.as_str()), (name, value));
        }
    }
}
