//! Runs the fuzz targets on their committed seeds and on 20,000 mutations of them, with a stable
//! toolchain.

#[path = "../../../fuzz/src/bodies.rs"]
mod bodies;
#[path = "../../../fuzz/src/smoke.rs"]
mod smoke;

use smoke::Smoke;

fn smoke(corpus: &'static str, body: fn(&[u8])) {
    Smoke { corpus, seeds: 2, rounds: 20_000, letters: b"" }.run(body);
}

#[test]
fn stamp_packets_of_any_bytes_are_read_and_written_without_panic() {
    smoke("stamp", bodies::stamp);
}

#[test]
fn round_trip_messages_of_any_bytes_are_read_and_written_without_panic() {
    smoke("roundtrip", bodies::roundtrip);
}

#[test]
fn icmp_messages_of_any_bytes_are_read_and_written_without_panic() {
    smoke("icmp", bodies::icmp);
}

#[test]
fn text_streams_of_any_bytes_are_split_without_panic() {
    smoke("text", bodies::text);
}

#[test]
fn iperf2_packets_of_any_bytes_are_read_and_written_without_panic() {
    smoke("iperf2", bodies::iperf2);
}
