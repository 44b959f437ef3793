//! Benchmarks that drive the real binaries from outside. `roundtrip` repeats a published experiment
//! with a plan; `rtt`, `pace`, `relay` and `reflect` compare dwell with other programs in labs of two
//! or three nodes; `data` measures the handling of samples; `hostile` attacks reflectors; `web` loads
//! the web controller; `fleet` loads a hub with the records of many agents. All but `fleet` use the
//! command line and JSON output only. `judge` compares them in pairs and decides on goals.

#![forbid(unsafe_code)]

mod echo;
mod first_figure;
mod http_client;
mod interrupt;
mod lab;
mod machine;
mod process;
mod steal;
mod summary;
mod table;

pub mod data;
pub mod fleet;
pub mod hostile;
pub mod judge;
pub mod pace;
pub mod reflect;
pub mod relay;
pub mod roundtrip;
pub mod rtt;
pub mod short;
pub mod web;

pub use interrupt::Interrupt;
pub use lab::{Lab, Node};
pub use machine::Machine;
pub use process::{Finished, Server, finish};
pub use steal::StealBudget;
pub use summary::{RoundTrips, Summary};
pub use table::Table;
