#![no_main]

#[path = "../src/import.rs"]
mod import;

libfuzzer_sys::fuzz_target!(|data: &[u8]| import::import(data));
