#![no_main]

#[path = "../src/predict.rs"]
#[expect(dead_code, reason = "each target uses one body")]
mod predict;

libfuzzer_sys::fuzz_target!(|data: &[u8]| predict::model(data));
