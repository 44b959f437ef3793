//! A hub with a real nats-server: what is stored and receipted, what is refused, and what full queues,
//! failures and several hubs do. The hub runs in the test's process; `dwell/tests/bus` has the program.

#[path = "../../../hub/tests/store/agent.rs"]
#[expect(dead_code, reason = "shared with the tests of the store")]
mod agent;
mod bus;
mod failures;
mod headers;
mod limits;
mod network;
mod raw_client;
mod records;
mod sharing;
