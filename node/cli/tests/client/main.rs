//! `dwell ping` beside peers that misbehave, and with targets that leave a choice.

mod garbage;
mod lying;
#[path = "../support/mod.rs"]
mod support;
