#![no_main]

#[path = "../src/plan.rs"]
mod plan;

libfuzzer_sys::fuzz_target!(|data: &[u8]| plan::plan(data));
