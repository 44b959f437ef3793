//! `dwell lab` from outside: real namespaces, real processes, and nothing left of them afterwards.
//! Needs root (or, for the rootless tests, user namespaces); says SKIP and why where it has neither.

mod fixture;
mod leftovers;
mod links;
mod rootless;
#[cfg(feature = "bpf")]
mod trace;
mod whole;
#[cfg(feature = "bpf")]
mod xdp_relay;
