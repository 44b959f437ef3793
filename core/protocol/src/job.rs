//! Jobs of a node: its part of a trial. The node's commands convert their arguments to the same
//! jobs.

mod bulk;
pub mod engine_name;
mod flow_filter;
mod itg;
mod named_size;
mod node_sim;
mod pace;
mod parameter;
mod ping;
mod reflect;
mod relay;
mod trace;
mod traffic;

use dwell_units::{Nanos, Ratio};
use serde::{Deserialize, Serialize};

pub use bulk::BulkJob;
pub use flow_filter::{FlowFilter, FlowFilterError, FlowProtocol};
pub use itg::{Generator, ItgJob, ItgSinkJob};
pub use named_size::{NamedSize, NamedSizeError};
pub use node_sim::{NodePreset, NodeSimJob, NodeSimParameters};
pub use pace::{PaceJob, PaceKind, PaceParameters, PaceSinkJob, SinkTimestamps};
pub use parameter::ParameterError;
pub use ping::{IcmpSocket, Pattern, PingJob, PingParameters};
pub use reflect::{DriverMode, Limit, LimitError, ReflectEngine, ReflectJob};
pub use relay::{
    Cipher, ClearPrefix, ClearPrefixError, Hold, HoldAt, HoldError, IdFormat, KeySource,
    RelayEngine, RelayJob, RelayMode, RelayParameters,
};
pub use trace::{TraceHook, TraceJob};
pub use traffic::{FlowParameters, SinkJob, TrafficHeader, TrafficJob};

/// A job of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "job", rename_all = "kebab-case")]
pub enum Job {
    /// Send probes and measure their round-trip delay.
    Ping(Box<PingJob>),
    /// Answer probes.
    Reflect(ReflectJob),
    /// Simulate a microcontroller that answers probes.
    NodeSim(Box<NodeSimJob>),
    /// Burn CPU time.
    Cpu(CpuJob),
    /// Send traffic.
    Traffic(TrafficJob),
    /// Send bulk data over TCP connections.
    Bulk(BulkJob),
    /// Receive and count traffic.
    Sink(SinkJob),
    /// Forward packets between two ends.
    Relay(Box<RelayJob>),
    /// Timestamp passing packets.
    Trace(TraceJob),
    /// Send packet pairs or trains on schedule.
    Pace(Box<PaceJob>),
    /// Receive and timestamp paced packets.
    PaceSink(PaceSinkJob),
    /// Send traffic with ITGSend.
    Itg(ItgJob),
    /// Receive traffic with ITGRecv.
    ItgSink(ItgSinkJob),
}

impl Job {
    /// The names of all jobs.
    pub const NAMES: [&str; 13] = [
        "ping",
        "reflect",
        "node-sim",
        "load cpu",
        "load traffic",
        "load traffic tcp",
        "load sink",
        "relay",
        "trace",
        "pace",
        "pace sink",
        "load itg",
        "load itg sink",
    ];

    /// Returns whether the job ends without being stopped. Traffic ends if it has a count or a
    /// duration.
    pub fn is_finite(&self) -> bool {
        match self {
            Self::Ping(_) | Self::Pace(_) => true,
            Self::Traffic(traffic) => {
                traffic.parameters.count.is_some() || traffic.parameters.duration.is_some()
            }
            Self::Bulk(bulk) => bulk.bytes.is_some() || bulk.duration.is_some(),
            _ => false,
        }
    }

    /// Name in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ping(_) => "ping",
            Self::Reflect(_) => "reflect",
            Self::NodeSim(_) => "node-sim",
            Self::Cpu(_) => "load cpu",
            Self::Traffic(_) => "load traffic",
            Self::Bulk(_) => "load traffic tcp",
            Self::Sink(_) => "load sink",
            Self::Relay(_) => "relay",
            Self::Trace(_) => "trace",
            Self::Pace(_) => "pace",
            Self::PaceSink(_) => "pace sink",
            Self::Itg(_) => "load itg",
            Self::ItgSink(_) => "load itg sink",
        }
    }
}

/// CPU time to burn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct CpuJob {
    /// Share of each CPU to use, above 0% and up to 100%.
    #[cfg_attr(feature = "clap", arg(long, value_name = "PERCENT", default_value = "100%"))]
    pub level: Ratio,
    /// CPU to load; repeatable [default: all allowed CPUs].
    #[cfg_attr(feature = "clap", arg(long = "cpu", value_name = "N"))]
    #[serde(default)]
    pub cpus: Vec<usize>,
    /// Stop after this time [default: until stopped].
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub duration: Option<Nanos>,
}

/// CPU and scheduling of a timing thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct ThreadPlacement {
    /// CPU to run on.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub cpu: Option<usize>,
    /// Scheduling class. auto: real-time (SCHED_FIFO) if permitted, for open-loop pings and sampled
    /// traffic that sleep most of the time; other for the rest.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_enum, value_name = "CLASS", default_value_t = Scheduling::Auto)
    )]
    pub scheduling: Scheduling,
    /// Poll without sleeping: lowest delay, but occupies a CPU.
    #[cfg_attr(feature = "clap", arg(long))]
    pub busy_poll: bool,
}

/// Scheduling class of a timing thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Scheduling {
    /// Chosen by the kind of work.
    #[default]
    Auto,
    /// Time-sharing (SCHED_OTHER).
    Other,
    /// Real-time priority (SCHED_FIFO). Exits with code 4 if not permitted.
    Fifo,
}

/// Timestamps of probes to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum ProbeStamps {
    /// Kernel timestamps if available, in addition to the program's.
    #[default]
    Auto,
    /// Only clock reads of the program.
    User,
    /// Kernel timestamps. Exits with code 4 if unavailable.
    Kernel,
    /// Kernel timestamps, and those of an XDP program in the driver that receives the replies. Exits
    /// with code 4 if the program cannot be loaded.
    Driver,
}

impl From<Stamps> for ProbeStamps {
    fn from(stamps: Stamps) -> Self {
        match stamps {
            Stamps::Auto => Self::Auto,
            Stamps::User => Self::User,
            Stamps::Kernel => Self::Kernel,
        }
    }
}

/// Timestamps to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Stamps {
    /// Kernel timestamps if available, in addition to the program's.
    #[default]
    Auto,
    /// Only clock reads of the program.
    User,
    /// Kernel timestamps. Exits with code 4 if unavailable.
    Kernel,
}

#[cfg(test)]
mod tests {
    use dwell_sample::PaceEngine;
    use dwell_units::Bytes;

    use super::*;

    #[test]
    fn job_survives_json_round_trip() {
        let mut ping = PingJob::to("stamp://n2");
        ping.parameters.interval = Some(Nanos::from_micros(250));
        ping.place.cpu = Some(1);
        let reflect = |limit| ReflectJob { limit, ..ReflectJob::default() };
        let cpu = CpuJob { level: "50%".parse().unwrap(), cpus: vec![], duration: None };
        for job in [
            Job::Ping(Box::new(ping)),
            Job::Reflect(reflect(Some(Limit::Off))),
            Job::Reflect(reflect(Some(Limit::Rate("100pps".parse().unwrap())))),
            Job::Cpu(cpu),
            Job::Sink(SinkJob::default()),
            Job::Bulk(BulkJob {
                url: "tcp://n2:5009".into(),
                flows: 2,
                rate: None,
                write_size: None,
                bytes: Some(Bytes(1_000_000)),
                duration: None,
                ipv4: true,
                ipv6: false,
                place: ThreadPlacement::default(),
            }),
            Job::Itg(ItgJob {
                to: "n2".into(),
                flows: 25,
                rate: "25Mbit/s".parse().unwrap(),
                distribution: "pareto(1.5)".into(),
                size: Bytes(512),
                seed: 1,
                ipv6: false,
            }),
            Job::ItgSink(ItgSinkJob {}),
            Job::Relay(Box::new(RelayJob {
                parameters: RelayParameters {
                    clear: Some(ClearPrefix::Auto),
                    cipher: Cipher::Aes128Gcm,
                    ..RelayParameters::default()
                },
                key: KeySource::File("key".into()),
                ..RelayJob::translate("udp://0.0.0.0:5001", "udp://n3:5001")
            })),
        ] {
            let text = serde_json::to_string(&job).unwrap();
            assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job, "{text}");
        }
    }

    #[test]
    fn train_job_survives_json_round_trip() {
        let parameters = PaceParameters {
            rate: Some("10Mbit/s".parse().unwrap()),
            size: Some("frame:1514B".parse().unwrap()),
            engine: PaceEngine::SleepSpin,
            ..PaceParameters::default()
        };
        let job = Job::Pace(Box::new(PaceJob {
            target: "udp://n2:5001".into(),
            parameters,
            switch_offloads: true,
            sink: SinkTimestamps::Needed,
            ..PaceJob::default()
        }));
        let text = serde_json::to_string(&job).unwrap();
        assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job, "{text}");
    }

    #[test]
    fn every_job_has_one_of_the_names() {
        let jobs = [
            Job::Ping(Box::new(PingJob::to("stamp://n2"))),
            Job::Reflect(ReflectJob::default()),
            Job::Sink(SinkJob::default()),
            Job::Relay(Box::new(RelayJob::translate("udp://0.0.0.0:5001", "udp://n3:5001"))),
        ];
        assert!(jobs.iter().all(|job| Job::NAMES.contains(&job.name())));
    }

    #[test]
    fn unknown_field_is_refused() {
        let text = r#"{"job":"ping","target":"stamp://n2","sise":10}"#;
        assert!(serde_json::from_str::<Job>(text).is_err());
    }
}
