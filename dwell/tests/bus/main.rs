//! `dwell hub --nats` with a real nats-server that `dwell hub nats-config` configures: schedules, kills,
//! keys, and leaf servers of sites. `controller/bus/tests` has the queue itself.

#[path = "../../../controller/hub/tests/store/agent.rs"]
#[expect(dead_code, reason = "shared with the tests of the store")]
mod agent;
mod bus;
mod failures;
#[path = "../controller/fixture.rs"]
#[expect(dead_code, reason = "shared with the tests of the controller")]
mod fixture;
mod keys;
#[path = "../../../controller/bus/tests/queue/network.rs"]
#[expect(dead_code, reason = "shared with the tests of the queue")]
mod network;
mod schedules;
mod sites;
