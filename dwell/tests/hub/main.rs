//! The hub: schedules, queries, and collection from devices over SSH.

mod collection;
mod faults;
#[path = "../controller/fixture.rs"]
#[expect(dead_code, reason = "shared with the tests of the controller")]
mod fixture;
mod guide;
#[path = "../devices/lab_devices.rs"]
#[expect(dead_code, reason = "shared with the tests of devices")]
mod lab_devices;
mod queries;
mod schedules;
#[path = "../controller/schema.rs"]
mod schema;
