//! The HTTP API of `dwell serve`, against the real server on a free port.

mod devices;
mod documentation;
mod experiments;
mod faults;
mod hostile;
mod programs;
mod scale;
mod server;
mod streams;
