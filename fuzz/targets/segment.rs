#![no_main]

#[path = "../src/segment.rs"]
mod segment;

libfuzzer_sys::fuzz_target!(|data: &[u8]| segment::segment(data));
