//! The fuzz target over its committed seeds and 5,000 mutations of them, on a stable toolchain.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/src/frame.rs"]
mod frame;

#[test]
fn frames_of_any_bytes_are_read_and_written_again_without_panic() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/frame");
    let mut seeds: Vec<_> = fs::read_dir(&corpus).unwrap().map(|e| e.unwrap().path()).collect();
    seeds.sort();
    let seeds: Vec<_> = seeds.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(seeds.len() >= 2, "{} has its seeds", corpus.display());
    seeds.iter().for_each(|seed| frame::frame(seed));
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    println!("seed of the mutations: {x:#x}");
    let mut next = move |limit: usize| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 8) as usize % limit
    };
    for round in 0..5_000 {
        let mut data = seeds[round % seeds.len()].clone();
        for _ in 0..=next(8) {
            let at = next(data.len().max(1));
            match next(5) {
                0 if next(4) == 0 => data.truncate(at),
                0 | 1 => data.insert(at.min(data.len()), next(256) as u8),
                _ if data.is_empty() => {}
                2 => drop(data.remove(at)),
                _ => data[at] = next(256) as u8,
            }
        }
        frame::frame(&data);
    }
}
