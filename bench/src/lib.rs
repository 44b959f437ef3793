//! Experiments that drive the real binaries from outside: `roundtrip` repeats a published one by
//! running its plan, `rtt` holds dwell beside its peers in a two-node lab of its own, `pace` its
//! trains beside other senders', `relay` its relay beside others in a lab of three, `data` what it
//! does with samples, `hostile` attacks its reflectors. All speak to dwell as a person does: command line in, JSON out.

#![forbid(unsafe_code)]

mod echo;
mod interrupt;
mod lab;
mod machine;
mod process;
mod stolen;
mod summary;
mod table;

pub mod data;
pub mod hostile;
pub mod pace;
pub mod relay;
pub mod roundtrip;
pub mod rtt;

pub use interrupt::Interrupt;
pub use lab::{Lab, Node};
pub use machine::Machine;
pub use process::{Finished, Server, finish};
pub use stolen::Patience;
pub use summary::{RoundTrips, Summary};
pub use table::Table;
