//! Sending at instants: waiting for them, keeping the packet path in the caches, and engines that
//! send trains. Depends on all other groups.

pub mod cache_warming;
pub mod pacer;
pub mod train;
