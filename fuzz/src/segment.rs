//! What the fuzz target of segments does with its bytes: read them, and write again what was read.
//! Shared by the libFuzzer target and the smoke test of `core/record`.

use dwell_record::segment::{Header, Record, SegmentWriter, read};

pub(crate) fn segment(data: &[u8]) {
    let header = Header::of_ping("udp://n2:7".into());
    let mut again = SegmentWriter::new(Vec::new(), &header).expect("memory takes everything");
    let mut samples = Vec::new();
    let end = read(&mut &data[..], &mut |record| {
        if let Record::Sample(sample, bridge, near) = record {
            again.push(sample, bridge, near);
            samples.push((*sample, bridge.copied(), near));
        }
    });
    let Ok(end) = end else { return };
    assert_eq!(end.samples, samples.len() as u64);
    // Two bytes of flags and at least one each of three differences.
    assert!(samples.len() * 5 <= data.len());
    let again = again.finish(0).expect("memory takes everything");
    let mut place = 0;
    let whole = read(&mut &again[..], &mut |record| {
        if let Record::Sample(sample, bridge, near) = record {
            assert_eq!((*sample, bridge.copied(), near), samples[place]);
            place += 1;
        }
    });
    let whole = whole.expect("what was just written is a segment");
    assert_eq!((place, whole.damaged, whole.tail), (samples.len(), 0, 0));
    assert!(whole.totals.is_some_and(|totals| totals.samples == place as u64));
}
