#![no_main]

#[path = "../src/ftm.rs"]
mod ftm;

libfuzzer_sys::fuzz_target!(|data: &[u8]| ftm::ftm(data));
