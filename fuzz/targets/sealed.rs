#![no_main]

#[path = "../src/sealed.rs"]
mod sealed;

libfuzzer_sys::fuzz_target!(|data: &[u8]| sealed::sealed(data));
