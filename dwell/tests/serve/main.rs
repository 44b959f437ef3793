//! `dwell serve` from outside: the real program on a free port, and requests byte by byte.

mod changes;
mod hosts;
mod limits;
mod load;
mod login;
mod packaging;
mod startup;
mod support;
mod tls;
