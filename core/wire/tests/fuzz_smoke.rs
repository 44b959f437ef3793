//! Runs the fuzz targets on their committed seeds and on 20,000 mutations of them, with a stable
//! toolchain.

#[path = "../../../fuzz/src/packets.rs"]
mod packets;
#[path = "../../../fuzz/src/smoke.rs"]
mod smoke;

use smoke::Smoke;

fn smoke(corpus: &'static str, body: fn(&[u8])) {
    Smoke { corpus, seeds: 2, rounds: 20_000, alphabet: b"" }.run(body);
}

#[test]
fn any_stamp_packet_is_read_without_panic() {
    smoke("stamp", packets::stamp);
}

#[test]
fn any_round_trip_message_is_read_without_panic() {
    smoke("roundtrip", packets::roundtrip);
}

#[test]
fn any_icmp_message_is_read_without_panic() {
    smoke("icmp", packets::icmp);
}

#[test]
fn any_text_stream_is_split_without_panic() {
    smoke("text", packets::text);
}

#[test]
fn any_iperf2_packet_is_read_without_panic() {
    smoke("iperf2", packets::iperf2);
}
