//! Fuzz target for segments: read records and write them again. Shared by the libFuzzer target and
//! the smoke test of `core/record`.

use dwell_record::segment::{Header, Record, SegmentWriter, read};

pub(crate) fn segment(data: &[u8]) {
    let header = Header::of_ping("udp://n2:7".into());
    let mut again = SegmentWriter::new(Vec::new(), &header).expect("writing to memory succeeds");
    let (mut samples, mut observations) = (Vec::new(), Vec::new());
    let (mut host, mut spikes) = (Vec::new(), Vec::new());
    let end = read(&mut &data[..], &mut |record| match record {
        Record::Header(_) => {}
        Record::Sample(sample, bridge, near) => {
            again.push(sample, bridge, near);
            samples.push((*sample, bridge.copied(), near));
        }
        Record::Flow(flow) => again.push_flow(flow).expect("a flow read from JSON can be written"),
        Record::PacketObservation(observation) => {
            again.push_observation(observation);
            observations.push(*observation);
        }
        // A number may need more digits than it was read with.
        Record::Host(sample) => {
            if again.push_host(sample).is_ok() {
                host.push(sample.clone());
            }
        }
        // An escape sequence may be longer than it was read.
        Record::Spike(spike) => {
            if again.push_spike(spike).is_ok() {
                spikes.push(spike.clone());
            }
        }
    });
    let Ok(end) = end else { return };
    let count = samples.len() + observations.len();
    assert_eq!(end.samples, count as u64);
    // Two bytes of flags and at least one byte for each of three differences.
    assert!(count * 5 <= data.len());
    let again = again.finish(0).expect("writing to memory succeeds");
    let (mut samples, mut observations) = (samples.into_iter(), observations.into_iter());
    let (mut host, mut spikes) = (host.into_iter(), spikes.into_iter());
    let whole = read(&mut &again[..], &mut |record| match record {
        Record::Header(_) | Record::Flow(_) => {}
        Record::Sample(sample, bridge, near) => {
            assert_eq!(Some((*sample, bridge.copied(), near)), samples.next());
        }
        Record::PacketObservation(observation) => {
            assert_eq!(Some(*observation), observations.next())
        }
        // A number may lose its last bit in JSON.
        Record::Host(sample) => {
            let (read, kept) = (sample.clone(), host.next().expect("no more samples than written"));
            assert_eq!(read.at_ns, kept.at_ns);
            assert!(read.values.keys().eq(kept.values.keys()));
        }
        Record::Spike(spike) => assert_eq!(Some(spike), spikes.next().as_ref()),
    });
    let whole = whole.expect("the written segment is readable");
    let left = [samples.len(), observations.len(), host.len(), spikes.len()];
    assert_eq!(left, [0; 4]);
    assert_eq!((whole.damaged, whole.tail), (0, 0));
    assert!(whole.totals.is_some_and(|totals| totals.samples == count as u64));
}
