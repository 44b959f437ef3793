//! Every engine that sends trains, between two network namespaces. tcpdump at the far end checks
//! independently which packets left, in which order and when.

mod batch;
mod capture;
mod engines;
mod fixture;
mod punctual;
mod warm;
