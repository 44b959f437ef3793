//! Runs a fuzz target on its committed seeds and on mutations of them (with a fixed seed), on a
//! stable toolchain. Included by the tests of the crates whose parsers are fuzzed.

use std::fs;
use std::path::Path;

/// A smoke test of one fuzz target.
pub(crate) struct Smoke {
    /// Directory of the target in `fuzz/corpus`.
    pub(crate) corpus: &'static str,
    /// Minimum number of seeds in it.
    pub(crate) seeds: usize,
    /// Number of mutations.
    pub(crate) rounds: usize,
    /// Bytes that mutations insert; empty: any byte.
    pub(crate) alphabet: &'static [u8],
}

impl Smoke {
    /// Runs `body` on all seeds and mutations.
    pub(crate) fn run(&self, body: fn(&[u8])) {
        // Every crate that includes this file is two directories below the root.
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let corpus = root.join("fuzz/corpus").join(self.corpus);
        let mut paths: Vec<_> = fs::read_dir(&corpus).unwrap().map(|e| e.unwrap().path()).collect();
        paths.sort();
        let seeds: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
        assert!(seeds.len() >= self.seeds, "{}: too few seeds", corpus.display());
        seeds.iter().for_each(|seed| body(seed));
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        println!("mutation seed: {x:#x}");
        let mut next = move |limit: usize| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 8) as usize % limit
        };
        for round in 0..self.rounds {
            let mut data = seeds[round % seeds.len()].clone();
            for _ in 0..=next(8) {
                let at = next(data.len().max(1));
                match next(5) {
                    0 if next(4) == 0 => data.truncate(at),
                    0 | 1 if self.alphabet.is_empty() => data.insert(at, next(256) as u8),
                    0 | 1 => data.insert(at, self.alphabet[next(self.alphabet.len())]),
                    _ if data.is_empty() => {}
                    2 => drop(data.remove(at)),
                    _ => data[at] = next(256) as u8,
                }
            }
            body(&data);
        }
    }
}
