//! The JSON of `irtt client -o` (irtt 0.9, `json_format` 1), in nanoseconds throughout. Round trips
//! are read one at a time.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::net::SocketAddr;

use dwell_record::{Column, Figures, Packets, Scalar};
use dwell_sample::State;
use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess};

use crate::json::{self, Each, Fields};
use crate::sink::{FlowNumber, Sink};
use crate::{Format, ImportError, Imported};

pub(crate) fn read(input: &mut dyn BufRead, mut sink: Sink) -> Result<Imported, ImportError> {
    let flow = sink.only_flow();
    let mut rows = RowSink { sink, flow, one_host: false, trips: 0, failed: None };
    let parsed = json::read(Format::Irtt, input, &mut rows);
    if let Some(error) = rows.failed {
        return Err(error);
    }
    parsed?;
    // Totals without round trips are not a measurement.
    if rows.trips == 0 {
        let left_out = vec!["irtt wrote no round trips".to_owned()];
        return Err(ImportError::NoSamples { format: Format::Irtt, left_out });
    }
    rows.sink.finish()
}

/// Receives the round trips while the parser runs.
struct RowSink<'a> {
    sink: Sink<'a>,
    flow: FlowNumber,
    /// Both ends have the same address and therefore the same clock.
    one_host: bool,
    /// Number of round trips so far.
    trips: u64,
    /// Why a row was refused; the rows after it are ignored.
    failed: Option<ImportError>,
}

impl RowSink<'_> {
    fn configure(&mut self, config: Config) {
        let (sink, params) = (&mut self.sink, config.params);
        sink.imported.target = format!("irtt://{}", config.remote_address);
        sink.parameters([
            ("interval_ns", params.interval),
            ("duration_ns", params.duration),
            ("length_bytes", params.length),
            ("dscp", params.dscp),
        ]);
        sink.parameters([
            ("stamp_at", params.stamp_at),
            ("clock", params.clock),
            ("received_stats", params.received_stats),
            ("timer", config.timer),
            ("ip_version", config.ip_version),
        ]);
        let address = |text: &str| text.parse::<SocketAddr>().ok().map(|socket| socket.ip());
        let ends = address(&config.local_address).zip(address(&config.remote_address));
        self.one_host = ends.is_some_and(|(local, remote)| local == remote);
    }

    fn round_trip(&mut self, trip: &RoundTrip) -> Result<(), ImportError> {
        let Timestamps { client, server } = &trip.timestamps;
        let state = if trip.lost == "false" { State::Received } else { State::Lost };
        let between = |from: Option<i64>, to: Option<i64>| to?.checked_sub(from?);
        // Either clock can be used if both stamps have it.
        let apart = |from: Stamp, to: Stamp| {
            between(from.monotonic, to.monotonic).or_else(|| between(from.wall, to.wall))
        };
        self.trips += 1;
        let rtt = apart(client.send, client.receive);
        let residence = apart(server.receive, server.send);
        for (name, time) in [("round trip", rtt), ("residence", residence)] {
            if let Some(time) = time.filter(|time| state == State::Received && *time < 0) {
                let text = format!("seqno {}: a {name} of {time} ns", trip.seqno);
                self.sink.skip(self.trips, text.as_bytes());
                return Ok(());
            }
        }
        let forward = between(client.send.wall, server.receive.wall);
        let backward = between(server.send.wall, client.receive.wall);
        let (there, back) = match self.one_host {
            true => (Column::OneWayForward, Column::OneWayBackward),
            false => (Column::ForwardPlusOffset, Column::BackwardMinusOffset),
        };
        let mut row = self.sink.row(self.flow, trip.seqno, state)?;
        row.set(Column::TxApp, client.send.wall);
        if state == State::Received {
            row.set(Column::Rtt, rtt)
                .set(Column::Residence, residence)
                .set(there, forward)
                .set(back, backward)
                .set(Column::T2, server.receive.wall)
                .set(Column::T3, server.send.wall)
                .set(Column::RxApp, client.receive.wall);
        }
        Ok(())
    }

    fn record_statistics(&mut self, stats: &Stats) {
        let (sink, flow) = (&mut self.sink, self.flow);
        for (name, spread) in
            [("schedule_error_ns", &stats.timer_error), ("send_call_ns", &stats.send_call)]
        {
            if let Some(spread) = spread.as_ref().filter(|spread| spread.n > 0) {
                sink.flow_mut(flow).metrics.insert(name.to_owned(), spread.figures());
            }
        }
        for (name, percent) in [
            ("loss_forward_ratio", stats.upstream_loss_percent),
            ("loss_backward_ratio", stats.downstream_loss_percent),
        ] {
            if let Some(percent) = percent {
                sink.value(flow, name, Scalar::Real(percent / 100.0));
            }
        }
        // irtt calls reordered packets late, and writes rows for neither late nor duplicate ones.
        let duplicate = stats.duplicates.unwrap_or(0);
        let reordered = stats.late_packets.unwrap_or(0);
        sink.packets(flow, Packets { duplicate, reordered, ..Packets::default() });
    }
}

/// The parts of the file that are read.
#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    local_address: String,
    #[serde(default)]
    remote_address: String,
    #[serde(default)]
    params: Params,
    timer: Option<String>,
    ip_version: Option<String>,
}

#[derive(Default, Deserialize)]
struct Params {
    duration: Option<i64>,
    interval: Option<i64>,
    length: Option<i64>,
    dscp: Option<i64>,
    stamp_at: Option<String>,
    clock: Option<String>,
    received_stats: Option<String>,
}

#[derive(Deserialize)]
struct Stats {
    send_call: Option<Statistics>,
    timer_error: Option<Statistics>,
    duplicates: Option<u64>,
    late_packets: Option<u64>,
    upstream_loss_percent: Option<f64>,
    downstream_loss_percent: Option<f64>,
}

#[derive(Deserialize)]
struct Statistics {
    n: u64,
    min: i64,
    max: i64,
    mean: i64,
    stddev: Option<i64>,
}

impl Statistics {
    fn figures(&self) -> Figures {
        Figures {
            count: self.n,
            min: Some(self.min),
            mean: Some(self.mean as f64),
            stddev: self.stddev.filter(|_| self.n > 1).map(|ns| ns as f64),
            max: Some(self.max),
            ..Figures::default()
        }
    }
}

#[derive(Deserialize)]
struct RoundTrip {
    seqno: u64,
    /// `false`, `true`, `true_up` or `true_down`.
    lost: String,
    timestamps: Timestamps,
}

#[derive(Deserialize)]
struct Timestamps {
    #[serde(default)]
    client: End,
    #[serde(default)]
    server: End,
}

#[derive(Default, Deserialize)]
struct End {
    #[serde(default)]
    receive: Stamp,
    #[serde(default)]
    send: Stamp,
}

/// Fields are absent if `--tstamp` or `--clock` excluded them.
#[derive(Clone, Copy, Default, Deserialize)]
struct Stamp {
    wall: Option<i64>,
    monotonic: Option<i64>,
}

impl Fields for RowSink<'_> {
    const OBJECT: &'static str = "the object that irtt writes";

    fn field<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "version" => {
                let mut version = map.next_value::<BTreeMap<String, serde_json::Value>>()?;
                self.sink.parameters([("irtt_version", version.remove("irtt"))]);
            }
            "config" => self.configure(map.next_value()?),
            "stats" => self.record_statistics(&map.next_value()?),
            "round_trips" => map.next_value_seed(Each::new(|trip: RoundTrip| {
                if self.failed.is_none() {
                    self.failed = self.round_trip(&trip).err();
                }
            }))?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}
