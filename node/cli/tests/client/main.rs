//! `dwell ping`: misbehaving peers, and terminal output.

mod garbage;
mod lines;
mod lying;
#[path = "../support/mod.rs"]
mod support;
