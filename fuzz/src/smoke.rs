//! A target over its committed seeds and over mutations of them by a fixed seed, on a stable
//! toolchain. The tests of the crates whose parsers are fuzzed include this file.

use std::fs;
use std::path::Path;

/// What to try.
pub(crate) struct Smoke {
    /// Of the target: its directory in `fuzz/corpus`.
    pub(crate) corpus: &'static str,
    /// It has at least so many seeds.
    pub(crate) seeds: usize,
    /// So many mutations.
    pub(crate) rounds: usize,
    /// Bytes that formats are made of are put in; none: any byte.
    pub(crate) letters: &'static [u8],
}

impl Smoke {
    /// Runs `body` over all of it.
    pub(crate) fn run(&self, body: fn(&[u8])) {
        // Every crate that includes this lies two directories below the root.
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let corpus = root.join("fuzz/corpus").join(self.corpus);
        let mut paths: Vec<_> = fs::read_dir(&corpus).unwrap().map(|e| e.unwrap().path()).collect();
        paths.sort();
        let seeds: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
        assert!(seeds.len() >= self.seeds, "{} has its seeds", corpus.display());
        seeds.iter().for_each(|seed| body(seed));
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        println!("seed of the mutations: {x:#x}");
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
                    0 | 1 if self.letters.is_empty() => data.insert(at, next(256) as u8),
                    0 | 1 => data.insert(at, self.letters[next(self.letters.len())]),
                    _ if data.is_empty() => {}
                    2 => drop(data.remove(at)),
                    _ => data[at] = next(256) as u8,
                }
            }
            body(&data);
        }
    }
}
