//! `dwell-uplink` with a real nats-server (TLS, NKeys, permissions); the tests play the hub.

mod hub;
mod server;
mod spool;
mod uplink;

mod answers;
mod faults;
mod interruptions;
mod shipping;
