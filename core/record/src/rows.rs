//! Rows written during a measurement. A row is an event: the `late` reply of a probe gets its own
//! row and supersedes the `lost` row with the same id; a `duplicate` adds to the earlier row. Rows
//! appear in the order in which states were decided, which differs from the order of ids while
//! probes are in flight.

use std::io::Write;

use dwell_sample::{Sample, State, TimestampSource};
use dwell_stats::Delays;
use dwell_units::Pairing;

use crate::column::Column;
use crate::roundtrip_csv;
use crate::row::Row;

/// Row format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// Round-trip CSV of Roedlach/Vock, in seconds. One row per probe, not per event: a lost probe
    /// stays `NaN` even if its reply arrives late.
    RoundTripCsv,
    /// Comma-separated nanoseconds; missing values are empty.
    Csv,
    /// One JSON object per line; missing values are null. Described by
    /// `docs/schema/dwell.sample-1.schema.json`.
    JsonLines,
}

const INFALLIBLE: &str = "writing to a Vec cannot fail";

impl RowFormat {
    /// Appends the file header.
    pub fn append_header(self, out: &mut Vec<u8>) {
        match self {
            Self::RoundTripCsv => out.extend_from_slice(roundtrip_csv::HEADER),
            Self::Csv => {
                let names = Column::ALL[..Column::MEASURED].iter().map(|column| column.name());
                let names = names.collect::<Vec<_>>().join(",");
                writeln!(out, "id,state,reordered,void,{names}").expect(INFALLIBLE);
            }
            Self::JsonLines => {}
        }
    }

    /// Appends the row of `sample`, if it has one, as a complete line. Allocates only in `out`,
    /// which the caller writes and reuses.
    ///
    /// `bridge` converts the schedule's clock to the clock of the timestamps and is `None` for a
    /// void sample. `near` is the local timestamp source for one-way delays (see [`Delays::of`]).
    pub fn append(
        self,
        out: &mut Vec<u8>,
        sample: &Sample,
        bridge: Option<&Pairing>,
        near: TimestampSource,
    ) {
        match self {
            Self::RoundTripCsv => match sample.state {
                State::Received => {
                    roundtrip_csv::append(out, sample.id, Delays::of(sample, bridge, near).rtt);
                }
                State::Lost | State::SendFailed | State::Sent => {
                    roundtrip_csv::append(out, sample.id, None)
                }
                State::Late | State::Duplicate => {}
            },
            Self::Csv => append_csv(out, &Row::of(sample, bridge, near)),
            Self::JsonLines => append_json(out, &Row::of(sample, bridge, near)),
        }
    }
}

fn append_csv(out: &mut Vec<u8>, row: &Row) {
    let Row { id, state, reordered, void, numbers } = row;
    write!(out, "{id},{state},{reordered},{void}").expect(INFALLIBLE);
    for number in numbers {
        match number {
            Some(number) => write!(out, ",{number}").expect(INFALLIBLE),
            None => out.push(b','),
        }
    }
    out.push(b'\n');
}

fn append_json(out: &mut Vec<u8>, row: &Row) {
    let Row { id, state, reordered, void, numbers } = row;
    write!(out, r#"{{"id":{id},"state":"{state}","reordered":{reordered},"void":{void}"#)
        .expect(INFALLIBLE);
    for (column, number) in Column::ALL.into_iter().zip(numbers) {
        let name = column.name();
        match number {
            Some(number) => write!(out, r#","{name}":{number}"#).expect(INFALLIBLE),
            None => write!(out, r#","{name}":null"#).expect(INFALLIBLE),
        }
    }
    out.extend_from_slice(b"}\n");
}

#[cfg(test)]
mod tests {
    use dwell_sample::{Remote, RxStamps, TxStamps};
    use dwell_units::{Instant, Nanos, Realtime};
    use proptest::prelude::*;

    use super::*;

    const BRIDGE: Pairing = Pairing {
        real: Instant::from_nanos(1_000),
        mono: Instant::from_nanos(0),
        width: Nanos(28),
    };

    fn at(nanos: i64) -> Instant<Realtime> {
        Instant::from_nanos(nanos)
    }

    fn received() -> Sample {
        Sample {
            id: 7,
            state: State::Received,
            reordered: true,
            intended: Instant::from_nanos(500),
            tx: TxStamps {
                app: at(1_510),
                sched: None,
                tcx: None,
                kernel: Some(at(1_520)),
                hw: None,
            },
            rx: Some(RxStamps {
                hw: None,
                driver: Some(at(1_880)),
                kernel: Some(at(1_900)),
                app: at(1_950),
            }),
            remote: Some(Remote {
                rx: at(1_600),
                tx: at(1_700),
                seq: 7,
                ttl: None,
                same_clock: true,
            }),
        }
    }

    fn text(format: RowFormat, samples: &[Sample], bridge: Option<&Pairing>) -> String {
        let mut out = Vec::new();
        format.append_header(&mut out);
        samples.iter().for_each(|s| format.append(&mut out, s, bridge, TimestampSource::KernelSw));
        String::from_utf8(out).unwrap()
    }

    fn without_reply(state: State) -> Sample {
        Sample { state, reordered: false, rx: None, remote: None, ..received() }
    }

    #[test]
    fn csv_has_units_and_empty_unknown_values() {
        let lines = text(RowFormat::Csv, &[received(), without_reply(State::Lost)], Some(&BRIDGE));
        let expected = "\
            id,state,reordered,void,rtt_ns,rtt_intended_ns,rtt_kernel_ns,rtt_driver_ns,\
            rtt_hw_ns,schedule_error_ns,residence_ns,one_way_forward_ns,one_way_backward_ns,\
            intended_ns,tx_app_ns,tx_sched_ns,tx_tcx_ns,tx_kernel_ns,tx_hw_ns,t2_ns,t3_ns,rx_hw_ns,\
            rx_driver_ns,rx_kernel_ns,rx_app_ns\n\
            7,received,true,false,440,450,380,360,,10,100,80,200,1500,1510,,,1520,,1600,1700,,1880,\
            1900,1950\n\
            7,lost,false,false,,,,,,10,,,,1500,1510,,,1520,,,,,,,\n";
        assert_eq!(lines, expected);
    }

    #[test]
    fn void_row_has_timestamps_and_no_delays() {
        let lines = text(RowFormat::Csv, &[received()], None);
        let row = lines.lines().nth(1).unwrap();
        assert_eq!(row, "7,received,true,true,,,,,,,,,,,1510,,,1520,,1600,1700,,1880,1900,1950");
        let round_trips = text(RowFormat::RoundTripCsv, &[received()], None);
        assert_eq!(round_trips.lines().nth(1), Some("         7,        NaN"));
    }

    #[test]
    fn unsent_probe_has_no_send_time() {
        let lines = text(RowFormat::Csv, &[without_reply(State::SendFailed)], Some(&BRIDGE));
        let row = lines.lines().nth(1).unwrap();
        assert!(row.starts_with("7,send-failed,false,false,,,,,,,,,,1500,,,"), "{row}");
    }

    #[test]
    fn roundtrip_csv_has_one_row_per_probe() {
        let late = Sample { state: State::Late, ..received() };
        let duplicate = Sample { state: State::Duplicate, id: 8, ..received() };
        let second = Sample { id: 8, ..received() };
        let samples = [without_reply(State::Lost), second, late, duplicate];
        let expected = "id,roundtrip_time [s]\n         7,        NaN\n         8,0.000000440\n";
        assert_eq!(text(RowFormat::RoundTripCsv, &samples, Some(&BRIDGE)), expected);
    }

    proptest! {
        #[test]
        fn csv_and_json_lines_have_equal_values(
            tx in any::<i64>(), rx in any::<i64>(), t2 in any::<i64>(), t3 in any::<i64>(),
            kernel in proptest::option::of(any::<i64>()), id in any::<u64>(), void in any::<bool>(),
        ) {
            let mut sample = received();
            sample.id = id;
            sample.tx.app = at(tx);
            sample.rx = Some(RxStamps { hw: None, driver: None, kernel: kernel.map(at), app: at(rx) });
            sample.remote = sample.remote.map(|r| Remote { rx: at(t2), tx: at(t3), ..r });
            let bridge = (!void).then_some(&BRIDGE);
            let csv = text(RowFormat::Csv, &[sample], bridge);
            let json = text(RowFormat::JsonLines, &[sample], bridge);
            let json: serde_json::Value = serde_json::from_str(&json).unwrap();
            let (names, row) = csv.trim_end().split_once('\n').unwrap();
            prop_assert_eq!(names.split(',').count(), row.split(',').count());
            for (name, cell) in names.split(',').zip(row.split(',')) {
                let other = match &json[name] {
                    serde_json::Value::Null => String::new(),
                    serde_json::Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                prop_assert_eq!(cell, other, "{}", name);
            }
        }
    }
}
