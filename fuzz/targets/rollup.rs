#![no_main]

#[path = "../src/rollup.rs"]
mod rollup;

libfuzzer_sys::fuzz_target!(|data: &[u8]| rollup::rollup(data));
