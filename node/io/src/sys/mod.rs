//! System calls, addresses, socket options and control data in the kernel's form, and memory shared
//! with it. Depends on `clock` only.

pub(crate) mod address;
pub(crate) mod control;
pub(crate) mod mapping;
pub(crate) mod netlink;
pub(crate) mod sockopt;
pub(crate) mod syscall;
pub(crate) mod time;
