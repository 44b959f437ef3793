#![no_main]

#[path = "../src/frame.rs"]
mod frame;

libfuzzer_sys::fuzz_target!(|data: &[u8]| frame::frame(data));
