//! The HTTP API of `dwell serve`, against the real server on a free port.

#[path = "../../../controller/hub/tests/store/agent.rs"]
#[expect(dead_code, reason = "shared with the tests of the hub")]
mod agent;
mod devices;
mod documentation;
mod experiments;
mod faults;
#[path = "../../../controller/server/tests/fleet/data.rs"]
#[expect(dead_code, reason = "shared with the tests of the server")]
mod fleet_data;
mod hostile;
mod programs;
mod scale;
mod server;
mod streams;
