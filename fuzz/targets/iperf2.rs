#![no_main]

#[path = "../src/bodies.rs"]
#[expect(dead_code, reason = "each target uses one body")]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::iperf2(data));
