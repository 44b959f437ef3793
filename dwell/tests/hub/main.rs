//! The hub: schedules, queries, and collection from devices over SSH.

mod alerts;
mod collection;
mod examples;
mod faults;
#[path = "../controller/fixture.rs"]
#[expect(dead_code, reason = "shared with the tests of the controller")]
mod fixture;
mod guide;
#[path = "../devices/lab_devices.rs"]
#[expect(dead_code, reason = "shared with the tests of devices")]
mod lab_devices;
mod operations;
mod postgres;
#[path = "../../../controller/hub/tests/store/postgres_server.rs"]
#[expect(dead_code, reason = "shared with the tests of the hub's databases")]
mod postgres_server;
mod queries;
mod reader;
mod schedules;
#[path = "../controller/schema.rs"]
mod schema;
