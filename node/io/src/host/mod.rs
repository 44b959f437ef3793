//! The machine: its processors, processes, interfaces, namespaces and control groups, and what else
//! runs on it. Depends on `sys` only.

pub mod activity;
pub mod cgroup;
pub mod cpu;
pub mod cpu_idle;
mod ethtool;
mod generic_netlink;
pub mod interface;
pub mod machine;
pub(crate) mod neighbour;
pub mod netns;
pub mod plain_file;
pub mod process;
pub mod random;
mod rtnetlink;
pub mod tap;
pub mod wireless;
