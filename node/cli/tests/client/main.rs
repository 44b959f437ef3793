//! `dwell ping`: misbehaving peers, and terminal output.

mod bad_timestamps;
mod garbage;
#[path = "../support/mod.rs"]
mod support;
mod terminal_output;
