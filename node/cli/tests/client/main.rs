//! `dwell ping` beside peers that misbehave, and with targets that leave a choice.

mod garbage;
#[path = "../support/mod.rs"]
mod support;
