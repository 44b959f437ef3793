//! Runs `dwell lab` as a program: real namespaces and processes, and complete removal. Needs root
//! (or, for the rootless tests, user namespaces); otherwise prints SKIP and the reason.

mod agents;
mod attached;
mod babel;
mod bulk;
#[path = "../../../io/tests/train/capture.rs"]
mod capture;
mod cipher;
mod cleanup;
mod complete_labs;
#[cfg(feature = "bpf")]
mod driver_stamps;
mod first_contact;
mod fixture;
mod forced_line;
mod icmp;
mod late_replies;
mod links;
mod loops;
mod merged_packets;
mod microcontroller;
mod nic;
mod pace;
mod quota;
mod rootless;
mod telemetry;
#[cfg(feature = "bpf")]
mod trace;
mod traffic;
mod uno;
mod wifi;
#[cfg(feature = "bpf")]
mod xdp_command;
#[cfg(feature = "bpf")]
mod xdp_flood;
#[cfg(feature = "bpf")]
mod xdp_frames;
#[cfg(feature = "bpf")]
mod xdp_mutations;
#[cfg(feature = "bpf")]
mod xdp_reflector;
#[cfg(feature = "bpf")]
mod xdp_reflector_program;
#[cfg(feature = "bpf")]
mod xdp_refusals;
mod xdp_relay;
#[cfg(feature = "bpf")]
mod xdp_sessions;
#[cfg(feature = "bpf")]
mod xdp_traffic;
