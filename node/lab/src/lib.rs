//! Labs: network namespaces that act as machines, links between them, and their removal. Used by
//! the `dwell lab` commands and as a fixture of tests. Independent of probes.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod addressing;
mod babel;
mod background;
mod creation;
mod description;
mod device;
mod down;
mod emulation;
mod enter;
mod error;
mod iproute;
mod link;
mod list;
mod namespace;
mod namespace_keeper;
mod quota;
mod radio;
mod routes;
mod shared_bridge;
mod state;
mod table;
mod topology;
mod up;

pub use addressing::Addresses;
pub use babel::supervise_babel;
pub use background::kept_processes;
pub use description::{
    Counters, Daemon, DaemonState, Device, DirectionCounters, Filter, Lab, LabState, Link,
    LinkState, Medium, Node, Parameters, Port, Quota, RadioChannel, SCHEMA,
};
pub use device::run_device;
pub use down::{Ended, down, named_or_only, names};
pub use enter::{exec, here};
pub use error::{LabError, TopologyError};
pub use link::run_link;
pub use list::{counters, list};
pub use namespace_keeper::hold;
pub use state::LabDir;
pub use table::{NodeRoute, RouteTable, routes};
pub use topology::{DeviceKind, LinkOptions, Mechanism, QuotaOption, Routing, Topology, rate};
pub use up::up;
