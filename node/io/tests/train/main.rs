//! Every engine that sends trains, between two network namespaces, with tcpdump at the far end as the
//! independent witness of what left, in which order, and when.

mod batch;
mod capture;
mod engines;
mod fixture;
mod punctual;
mod warm;
