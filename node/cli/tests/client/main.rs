//! `dwell ping`: misbehaving peers, and terminal output.

mod garbage;
mod terminal_output;
mod bad_timestamps;
#[path = "../support/mod.rs"]
mod support;
