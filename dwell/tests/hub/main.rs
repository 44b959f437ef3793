//! The hub: schedules, queries, and collection from devices over SSH.

#[path = "../controller/fixture.rs"]
#[expect(dead_code, reason = "shared with the tests of the controller")]
mod fixture;
mod queries;
mod schedules;
mod schema;
