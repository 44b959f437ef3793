#![no_main]

#[path = "../src/packets.rs"]
#[expect(dead_code, reason = "each target uses one body")]
mod packets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| packets::roundtrip(data));
