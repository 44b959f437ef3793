//! The JSON of `irtt client -o` (irtt 0.9, `json_format` 1), in nanoseconds throughout. Round trips
//! are read one at a time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::io::BufRead;
use std::net::SocketAddr;

use dwell_record::{Column, Figures, Packets, Scalar};
use dwell_sample::State;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::sink::{FlowNumber, Sink};
use crate::{Format, ImportError, Imported};

pub(crate) fn read(input: &mut dyn BufRead, mut sink: Sink) -> Result<Imported, ImportError> {
    let flow = sink.only_flow();
    let target = RefCell::new(RowSink { sink, flow, one_host: false, trips: 0, failed: None });
    let mut json = serde_json::Deserializer::from_reader(input);
    let parsed = Document(&target).deserialize(&mut json).and_then(|()| json.end());
    let RowSink { sink, failed, trips, .. } = target.into_inner();
    if let Some(error) = failed {
        return Err(error);
    }
    match parsed {
        // Totals without round trips are not a measurement.
        Ok(()) if trips == 0 => {
            let left_out = vec!["irtt wrote no round trips".to_owned()];
            Err(ImportError::NoSamples { format: Format::Irtt, left_out })
        }
        Ok(()) => sink.finish(),
        Err(error) if error.is_io() => Err(ImportError::Read(error.into())),
        Err(error) => {
            Err(ImportError::Malformed { format: Format::Irtt, reason: error.to_string() })
        }
    }
}

/// Receives the round trips while the parser runs.
struct RowSink<'a> {
    sink: Sink<'a>,
    flow: FlowNumber,
    /// Both ends have the same address and therefore the same clock.
    one_host: bool,
    /// Number of round trips so far.
    trips: u64,
    /// Why a row was refused. The parser's own error only says that it must stop.
    failed: Option<ImportError>,
}

impl RowSink<'_> {
    fn configure(&mut self, config: &Config) {
        let (sink, params) = (&mut self.sink, &config.params);
        sink.imported.target = format!("irtt://{}", config.remote_address);
        for (name, value) in [
            ("interval_ns", params.interval),
            ("duration_ns", params.duration),
            ("length_bytes", params.length),
            ("dscp", params.dscp),
        ] {
            if let Some(value) = value {
                sink.parameter(name, value);
            }
        }
        for (name, value) in [
            ("stamp_at", &params.stamp_at),
            ("clock", &params.clock),
            ("received_stats", &params.received_stats),
            ("timer", &config.timer),
            ("ip_version", &config.ip_version),
        ] {
            if let Some(value) = value {
                sink.parameter(name, value.as_str());
            }
        }
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

/// The whole file.
struct Document<'t, 'a>(&'t RefCell<RowSink<'a>>);

impl<'de> DeserializeSeed<'de> for Document<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("the object that irtt writes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "version" => {
                    let version = map.next_value::<BTreeMap<String, serde_json::Value>>()?;
                    if let Some(version) = version.get("irtt") {
                        self.0.borrow_mut().sink.parameter("irtt_version", version.clone());
                    }
                }
                "config" => self.0.borrow_mut().configure(&map.next_value::<Config>()?),
                "stats" => self.0.borrow_mut().record_statistics(&map.next_value::<Stats>()?),
                "round_trips" => map.next_value_seed(RoundTrips(self.0))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// The list of round trips.
struct RoundTrips<'t, 'a>(&'t RefCell<RowSink<'a>>);

impl<'de> DeserializeSeed<'de> for RoundTrips<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for RoundTrips<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("a list of round trips")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut trips: A) -> Result<(), A::Error> {
        while let Some(trip) = trips.next_element::<RoundTrip>()? {
            let mut target = self.0.borrow_mut();
            if let Err(error) = target.round_trip(&trip) {
                target.failed = Some(error);
                return Err(serde::de::Error::custom("a row was refused"));
            }
        }
        Ok(())
    }
}
