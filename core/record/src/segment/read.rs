//! Reading of complete, truncated and damaged segments.

use std::io::{self, Read};

use dwell_host::HostSample;
use dwell_sample::{PacketObservation, Sample, TimestampSource};
use dwell_units::{Instant, Nanos, Pairing};
use thiserror::Error;

use super::frame::{HEAD_LEN, Head, Kind};
use super::sample::{MIN_ENCODED_LEN, Previous};
use super::varint::Bytes;
use super::{FlowEntry, Header, MAGIC, SCHEMA, Totals, VERSION, observation};
use crate::spikes::Spike;

/// An item of a segment.
#[derive(Clone, Debug, PartialEq)]
pub enum Record<'a> {
    /// The header; always first.
    Header(&'a Header),
    /// A sample, its bridge (`None`: void) and the local timestamp source.
    Sample(&'a Sample, Option<&'a Pairing>, TimestampSource),
    /// A flow that later observations refer to.
    Flow(&'a FlowEntry),
    /// A packet observation.
    PacketObservation(&'a PacketObservation),
    /// Host activity.
    Host(&'a HostSample),
    /// Causes of the delay of the sample with this id.
    Spike(&'a Spike),
}

/// State at the end of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentEnd {
    /// Samples or packet observations read.
    pub samples: u64,
    /// Contents of the last frame; `None` if the segment is truncated.
    pub totals: Option<Totals>,
    /// Damaged frames, which were skipped.
    pub damaged: u64,
    /// Bytes at the end that are not a complete frame.
    pub tail: u64,
}

/// Reason why a segment cannot be read.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum SegmentError {
    #[error("not a dwell sample segment")]
    Foreign,
    #[error("segment version {0} is not supported; this dwell reads up to version {VERSION}")]
    Newer(u16),
    #[error("the segment header is damaged")]
    Header,
    #[error("cannot read the segment")]
    Io(#[from] io::Error),
}

/// Reads a segment to its end and passes on every intact item. Memory is bounded by one frame.
///
/// # Errors
/// If nothing can be read. A truncated tail and damaged frames are not errors; the result counts
/// them.
pub fn read(
    from: &mut dyn Read,
    each: &mut dyn FnMut(Record<'_>),
) -> Result<SegmentEnd, SegmentError> {
    let mut start = [0; 12];
    if fill(from, &mut start)? < start.len() || start[..8] != MAGIC {
        return Err(SegmentError::Foreign);
    }
    let version = u16::from_le_bytes([start[8], start[9]]);
    if version > VERSION {
        return Err(SegmentError::Newer(version));
    }
    let mut reader = Reader::default();
    let mut payload = Vec::new();
    loop {
        let mut head = [0; HEAD_LEN];
        let filled = fill(from, &mut head)?;
        if filled < HEAD_LEN {
            reader.end.tail += filled as u64;
            break;
        }
        let Some(head) = Head::parse(&head) else {
            // Without a length the next frame cannot be located.
            reader.end.damaged += 1;
            reader.end.tail += HEAD_LEN as u64 + io::copy(from, &mut io::sink())?;
            break;
        };
        payload.resize(head.len, 0);
        let filled = fill(from, &mut payload)?;
        if filled < head.len {
            reader.end.tail += (HEAD_LEN + filled) as u64;
            break;
        }
        let whole = head.fits(&payload) && reader.take(head.kind, &payload, each).is_some();
        if !whole {
            if !reader.begun {
                return Err(SegmentError::Header);
            }
            reader.end.damaged += 1;
        }
    }
    if reader.begun { Ok(reader.end) } else { Err(SegmentError::Header) }
}

#[derive(Default)]
struct Reader {
    begun: bool,
    bridge: Option<Pairing>,
    near: TimestampSource,
    end: SegmentEnd,
}

impl Reader {
    /// Handles a frame with a valid checksum; `None` if its contents are invalid.
    fn take(&mut self, kind: Kind, payload: &[u8], each: &mut dyn FnMut(Record<'_>)) -> Option<()> {
        match kind {
            Kind::Header => {
                let header: Header = serde_json::from_slice(payload).ok()?;
                if header.schema != SCHEMA {
                    return None;
                }
                self.begun = true;
                each(Record::Header(&header));
            }
            _ if !self.begun => return None,
            Kind::Bridge => {
                let payload: &[u8; 24] = payload.try_into().ok()?;
                let number = |at: usize| {
                    let mut bytes = [0; 8];
                    bytes.copy_from_slice(&payload[at..at + 8]);
                    i64::from_le_bytes(bytes)
                };
                self.bridge = Some(Pairing {
                    real: Instant::from_nanos(number(0)),
                    mono: Instant::from_nanos(number(8)),
                    width: Nanos(number(16)),
                });
            }
            Kind::Near => {
                self.near = *TimestampSource::ALL.get(usize::from(*payload.first()?))?;
            }
            Kind::Flow => each(Record::Flow(&serde_json::from_slice(payload).ok()?)),
            Kind::Host => each(Record::Host(&serde_json::from_slice(payload).ok()?)),
            Kind::Spike => each(Record::Spike(&serde_json::from_slice(payload).ok()?)),
            Kind::Observations => {
                let (count, rest) = split_count(payload, observation::MIN_ENCODED_LEN)?;
                let (mut bytes, mut before) = (Bytes(rest), observation::Previous::default());
                for _ in 0..count {
                    each(Record::PacketObservation(&bytes.observation(&mut before)?));
                    self.end.samples += 1;
                }
            }
            Kind::Samples => {
                let (count, rest) = split_count(payload, MIN_ENCODED_LEN)?;
                let (mut bytes, mut before) = (Bytes(rest), Previous::default());
                for _ in 0..count {
                    let (sample, void) = bytes.sample(&mut before)?;
                    let bridge = self.bridge.as_ref().filter(|_| !void);
                    each(Record::Sample(&sample, bridge, self.near));
                    self.end.samples += 1;
                }
            }
            Kind::End => self.end.totals = Some(serde_json::from_slice(payload).ok()?),
        }
        Some(())
    }
}

/// Splits the count off the start of a block; `None` if the block is too short for this number of
/// items of at least `min_len` bytes.
fn split_count(payload: &[u8], min_len: usize) -> Option<(usize, &[u8])> {
    let (count, rest) = payload.split_first_chunk()?;
    let count = u32::from_le_bytes(*count) as usize;
    (count <= rest.len() / min_len).then_some((count, rest))
}

/// Reads until `buffer` is full or the input ends; returns the number of bytes read.
fn fill(from: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use dwell_sample::{PacketOutcome, Point, PointStamps, Remote, RxStamps, State, TxStamps};
    use proptest::prelude::*;

    use super::*;
    use crate::segment::SegmentWriter;
    use crate::{Cause, CauseKind, SpikePart};

    fn sample() -> impl Strategy<Value = Sample> {
        let stamp = || any::<i64>();
        let some = || any::<Option<i64>>();
        let rx = (some(), some(), some(), stamp());
        let remote = (stamp(), stamp(), any::<u32>(), any::<Option<u8>>(), any::<bool>());
        (
            (any::<u64>(), 0..5_usize, any::<bool>(), stamp(), stamp()),
            (some(), some(), some(), some()),
            proptest::option::of(rx),
            proptest::option::of(remote),
        )
            .prop_map(
                |((id, state, reordered, intended, app), (sched, tcx, kernel, hw), rx, remote)| {
                    Sample {
                        id,
                        state: State::ALL[state],
                        reordered,
                        intended: Instant::from_nanos(intended),
                        tx: TxStamps {
                            app: Instant::from_nanos(app),
                            sched: sched.map(Instant::from_nanos),
                            tcx: tcx.map(Instant::from_nanos),
                            kernel: kernel.map(Instant::from_nanos),
                            hw: hw.map(Instant::from_nanos),
                        },
                        rx: rx.map(|(hw, driver, kernel, app)| RxStamps {
                            hw: hw.map(Instant::from_nanos),
                            driver: driver.map(Instant::from_nanos),
                            kernel: kernel.map(Instant::from_nanos),
                            app: Instant::from_nanos(app),
                        }),
                        remote: remote.map(|(rx, tx, seq, ttl, same_clock)| Remote {
                            rx: Instant::from_nanos(rx),
                            tx: Instant::from_nanos(tx),
                            seq,
                            ttl,
                            same_clock,
                        }),
                    }
                },
            )
    }

    fn observation() -> impl Strategy<Value = PacketObservation> {
        let stamps = proptest::array::uniform11(proptest::option::of(any::<i64>()));
        (any::<u32>(), any::<u64>(), any::<u16>(), 0..PacketOutcome::ALL.len(), stamps).prop_map(
            |(flow, id, size, outcome, stamps)| {
                let mut all = PointStamps::default();
                for (point, at) in Point::ALL.into_iter().zip(stamps) {
                    if let Some(at) = at {
                        all.set(point, Instant::from_nanos(at));
                    }
                }
                PacketObservation {
                    flow,
                    id,
                    size,
                    outcome: PacketOutcome::ALL[outcome],
                    stamps: all,
                }
            },
        )
    }

    fn pairing(real: i64) -> Pairing {
        Pairing { real: Instant::from_nanos(real), mono: Instant::from_nanos(5), width: Nanos(28) }
    }

    fn written(samples: &[Sample]) -> Vec<u8> {
        let header = Header::of_ping("stamp://n2".into());
        let mut writer = SegmentWriter::new(Vec::new(), &header).unwrap();
        for (n, sample) in samples.iter().enumerate() {
            let bridge = pairing(n as i64 / 3);
            let near = if n < 2 { TimestampSource::User } else { TimestampSource::KernelSw };
            writer.push(sample, (n % 5 != 4).then_some(&bridge), near);
        }
        writer.finish(3).unwrap()
    }

    fn all(bytes: &[u8]) -> (Vec<(Sample, Option<Pairing>, TimestampSource)>, SegmentEnd) {
        let mut out = Vec::new();
        let end = read(&mut &bytes[..], &mut |record| {
            if let Record::Sample(sample, bridge, near) = record {
                out.push((*sample, bridge.copied(), near));
            }
        });
        (out, end.unwrap())
    }

    fn ordinary(id: u64) -> Sample {
        let at = 1_700_000_000_000_000_000 + id as i64 * 1_000_000;
        Sample {
            id,
            state: State::Received,
            reordered: false,
            intended: Instant::from_nanos(id as i64 * 1_000_000),
            tx: TxStamps {
                app: Instant::from_nanos(at),
                sched: None,
                tcx: None,
                kernel: Some(Instant::from_nanos(at + 900)),
                hw: None,
            },
            rx: Some(RxStamps {
                hw: None,
                driver: None,
                kernel: Some(Instant::from_nanos(at + 41_000)),
                app: Instant::from_nanos(at + 45_000),
            }),
            remote: Some(Remote {
                rx: Instant::from_nanos(at + 20_000),
                tx: Instant::from_nanos(at + 23_000),
                seq: id as u32,
                ttl: Some(64),
                same_clock: true,
            }),
        }
    }

    #[test]
    fn ordinary_sample_takes_fewer_than_thirty_bytes() {
        let samples: Vec<_> = (0..10_000).map(ordinary).collect();
        let header = Header::of_ping("stamp://n2".into());
        let mut writer = SegmentWriter::new(Vec::new(), &header).unwrap();
        samples
            .iter()
            .for_each(|sample| writer.push(sample, Some(&pairing(0)), TimestampSource::KernelSw));
        let bytes = writer.finish(0).unwrap();
        assert!(bytes.len() < 30 * samples.len(), "{} B each", bytes.len() / samples.len());
        assert_eq!(all(&bytes).1.samples, 10_000);
    }

    #[test]
    fn foreign_or_newer_segment_is_refused() {
        let mut bytes = written(&[ordinary(0)]);
        assert!(matches!(read(&mut &b"id,state"[..], &mut |_| {}), Err(SegmentError::Foreign)));
        bytes[8] = 9;
        assert!(matches!(read(&mut &bytes[..], &mut |_| {}), Err(SegmentError::Newer(9))));
    }

    #[test]
    fn damaged_frame_loses_only_itself() {
        let samples: Vec<_> = (0..30).map(ordinary).collect();
        let mut bytes = written(&samples);
        // The payload of the fifth block of samples.
        let mut frames = Vec::new();
        let mut at = 12;
        while at < bytes.len() {
            let len = u32::from_le_bytes(*bytes[at + 4..].first_chunk().unwrap()) as usize;
            frames.push((bytes[at], at));
            at += 12 + len;
        }
        let (_, block) = frames.iter().filter(|(kind, _)| *kind == b'S').nth(4).unwrap();
        bytes[block + 20] ^= 0x40;
        let (read, end) = all(&bytes);
        // Blocks contain three samples here, because the bridge changes.
        assert!((26..30).contains(&read.len()), "{}", read.len());
        assert_eq!((end.damaged, end.tail), (1, 0));
        assert_eq!(end.totals.unwrap().samples, 30);
    }

    #[test]
    fn host_samples_are_read_back_in_order() {
        let values = [("cpu0_busy_ratio".to_owned(), 0.25), ("thermal0_celsius".to_owned(), -3.5)];
        let host = HostSample { at_ns: 1_700_000_000_000_000_000, values: values.into() };
        let header = Header::of_ping("stamp://n2".into());
        let mut writer = SegmentWriter::new(Vec::new(), &header).unwrap();
        writer.push(&ordinary(0), Some(&pairing(0)), TimestampSource::KernelSw);
        writer.push_host(&host).unwrap();
        writer.push(&ordinary(1), Some(&pairing(0)), TimestampSource::KernelSw);
        let bytes = writer.finish(0).unwrap();
        let mut order = Vec::new();
        let end = read(&mut &bytes[..], &mut |record| match record {
            Record::Host(read) => {
                assert_eq!(*read, host);
                order.push("host");
            }
            Record::Sample(..) => order.push("sample"),
            _ => {}
        });
        assert_eq!(order, ["sample", "host", "sample"]);
        assert_eq!(end.unwrap().totals, Some(Totals { samples: 2, ring_dropped: 0 }));
    }

    #[test]
    fn spike_with_any_name_is_read_back_after_its_sample() {
        let cause =
            Cause { kind: CauseKind::Waiting, by: Some("a \"\u{fffd}".into()), pid: Some(7) };
        let parts = vec![SpikePart { cause: cause.clone(), ns: 45_000 }];
        let at_ns = ordinary(0).tx.app.as_nanos();
        let (page_faults, complete) = (1, false);
        let spike = Spike { id: 0, at_ns, rtt_ns: 45_000, cause, parts, page_faults, complete };
        let mut writer =
            SegmentWriter::new(Vec::new(), &Header::of_ping("udp://n2".into())).unwrap();
        writer.push(&ordinary(0), Some(&pairing(0)), TimestampSource::KernelSw);
        writer.push_spike(&spike).unwrap();
        let bytes = writer.finish(0).unwrap();
        let mut order = Vec::new();
        let end = read(&mut &bytes[..], &mut |record| match record {
            Record::Spike(read) => {
                assert_eq!(*read, spike);
                order.push("spike");
            }
            Record::Sample(..) => order.push("sample"),
            _ => {}
        });
        assert_eq!(order, ["sample", "spike"]);
        assert_eq!(end.unwrap().totals, Some(Totals { samples: 1, ring_dropped: 0 }));
    }

    proptest! {
        #[test]
        fn written_samples_are_read_back(samples in proptest::collection::vec(sample(), 0..40)) {
            let (read, end) = all(&written(&samples));
            prop_assert_eq!(end.totals, Some(Totals { samples: samples.len() as u64, ring_dropped: 3 }));
            prop_assert_eq!(read.len(), samples.len());
            for (n, (sample, bridge, near)) in read.into_iter().enumerate() {
                prop_assert_eq!(sample, samples[n]);
                prop_assert_eq!(bridge, (n % 5 != 4).then(|| pairing(n as i64 / 3)));
                prop_assert_eq!(near, if n < 2 { TimestampSource::User } else { TimestampSource::KernelSw });
            }
        }

        #[test]
        fn truncated_tail_loses_only_the_tail(cut in 0..2_000_usize) {
            let samples: Vec<_> = (0..40).map(ordinary).collect();
            let bytes = written(&samples);
            let kept = &bytes[..bytes.len().saturating_sub(cut)];
            if let Ok(end) = read(&mut &kept[..], &mut |record| {
                if let Record::Sample(sample, ..) = record {
                    assert_eq!(*sample, ordinary(sample.id));
                }
            }) {
                prop_assert_eq!(end.damaged, 0);
                prop_assert!(cut == 0 || end.totals.is_none());
                // At most the samples of the truncated bytes and of one block are lost.
                prop_assert!(end.samples as usize + cut / 12 + 3 >= 40);
            } else {
                prop_assert!(kept.len() < 900);
            }
        }

        #[test]
        fn written_observations_are_read_back(
            observations in proptest::collection::vec(observation(), 0..200),
        ) {
            let flow = FlowEntry {
                flow: 3,
                protocol: "udp".into(),
                from: "10.0.1.1:4000".parse().unwrap(),
                to: "10.0.1.2:5001".parse().unwrap(),
                from_out: None,
                to_out: Some("10.0.2.2:5001".parse().unwrap()),
            };
            let header = Header::of_observations("relay", "udp://n2:5001".into());
            let mut writer = SegmentWriter::new(Vec::new(), &header).unwrap();
            writer.push_flow(&flow).unwrap();
            observations.iter().for_each(|observation| writer.push_observation(observation));
            let bytes = writer.finish(1).unwrap();
            let (mut flows, mut read_back) = (Vec::new(), Vec::new());
            let end = read(&mut &bytes[..], &mut |record| match record {
                Record::Flow(flow) => flows.push(flow.clone()),
                Record::PacketObservation(observation) => read_back.push(*observation),
                _ => {}
            });
            prop_assert_eq!(flows, [flow]);
            prop_assert_eq!(&read_back, &observations);
            let end = end.unwrap();
            prop_assert_eq!((end.samples, end.damaged), (observations.len() as u64, 0));
        }

        #[test]
        fn any_bytes_are_read_without_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            at in 0..600_usize,
        ) {
            let _ = read(&mut &bytes[..], &mut |_| {});
            let mut real = written(&(0..9).map(ordinary).collect::<Vec<_>>());
            let at = at.min(real.len());
            real.splice(at.., bytes);
            let _ = read(&mut &real[..], &mut |_| {});
        }
    }
}
