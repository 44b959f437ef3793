#![no_main]

#[path = "../src/audit.rs"]
mod audit;

libfuzzer_sys::fuzz_target!(|data: &[u8]| audit::run(data));
