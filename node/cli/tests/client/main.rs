//! `dwell ping` beside peers that misbehave, and with targets that leave a choice.

mod garbage;
mod lines;
mod lying;
#[path = "../support/mod.rs"]
mod support;
