#![no_main]

#[path = "../src/gaps.rs"]
mod gaps;

libfuzzer_sys::fuzz_target!(|data: &[u8]| gaps::gaps(data));
