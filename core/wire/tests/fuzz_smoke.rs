//! The fuzz targets over their committed seeds and 20,000 mutations of them, on a stable toolchain.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/src/bodies.rs"]
mod bodies;

/// Runs `body` over the corpus of `target` and over mutations by a fixed seed.
fn smoke(target: &str, body: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut seeds: Vec<_> = fs::read_dir(&corpus).unwrap().map(|e| e.unwrap().path()).collect();
    seeds.sort();
    let seeds: Vec<_> = seeds.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(seeds.len() >= 2, "{} has its seeds", corpus.display());
    seeds.iter().for_each(|seed| body(seed));
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    println!("seed of the mutations: {x:#x}");
    let mut next = move |limit: usize| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 8) as usize % limit
    };
    for round in 0..20_000 {
        let mut data = seeds[round % seeds.len()].clone();
        for _ in 0..=next(8) {
            match next(4) {
                0 => data.truncate(next(data.len() + 1)),
                1 => data.push(next(256) as u8),
                _ if data.is_empty() => {}
                _ => {
                    let at = next(data.len());
                    data[at] = next(256) as u8;
                }
            }
        }
        body(&data);
    }
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
