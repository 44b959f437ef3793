//! The commands of the guides in docs/fleet.md, in their order: blocks marked `sh fleet` for the embedded hub,
//! and those marked `sh fleet-bus` for NATS and PostgreSQL. `sleep` is replaced by a wait for the results
//! that the next commands show.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fixture::{repository, stdout, wait_until};
use crate::reader::{NODES, PAIRS, Reader, SPOOL, blocks, sent, split_at};
use crate::schema::assert_matches_schema;

/// The blocks of the first guide.
pub(crate) struct Guide {
    pub(crate) machines: String,
    pub(crate) agents: String,
    pub(crate) schedule: String,
    pub(crate) hub: String,
    ask: String,
    change: String,
    grid: String,
    receiver: String,
    outage: String,
    stop: String,
}

impl Guide {
    pub(crate) fn read() -> Self {
        let blocks: [String; 10] = blocks("docs/fleet.md", "fleet").try_into().unwrap();
        let [machines, agents, schedule, hub, ask, change, grid, receiver, outage, stop] = blocks;
        Self { machines, agents, schedule, hub, ask, change, grid, receiver, outage, stop }
    }

    /// Steps 1 to 3.
    pub(crate) fn start_agents(&self, reader: &mut Reader) {
        let checked = reader.types(&self.machines);
        assert!(NODES.iter().all(|node| checked.contains(node)), "{checked}");
        reader.types(&self.agents);
        let cost = reader.types(&self.schedule);
        assert!(cost.contains("applied as version 1"), "{cost}");
    }

    /// Steps 5 and 6.
    fn ask_and_change(&self, reader: &mut Reader) {
        let (before, after) = split_at(&self.ask, "sleep ");
        assert_eq!(before, "");
        reader.wait_for_row(5);
        wait_until("rows of all pairs", || reader.pairs() == PAIRS);
        let asked = reader.types(&after);
        // Each node measures each other one.
        assert_eq!(asked.matches(" mesh ").count(), PAIRS + 1, "{asked}");
        assert!(asked.contains("berlin:lyon  mesh  stamp  rtt_ns"), "{asked}");
        let table = asked.lines().skip_while(|line| !line.starts_with("berlin:lyon  mesh  stamp"));
        assert!((4..12).contains(&table.count()), "only rows since the start: {asked}");
        let answer: Value = serde_json::from_str(&reader.file("berlin-lyon.json")).unwrap();
        assert_matches_schema("dwell.query", &answer);
        let total = &answer["streams"][0]["total"];
        assert_eq!((&total["packets"]["lost"], &total["packets"]["late"]), (&json!(0), &json!(0)));
        assert!(total["n"].as_u64().unwrap() >= 5, "{total}");
        assert!(reader.file("berlin-lyon.csv").starts_with("sender,reflector,measure"));
        let (before, after) = split_at(&self.change, "sleep ");
        let changed = reader.types(&before);
        assert!(changed.contains("applied as version 2"), "{changed}");
        reader.wait_for_row(100);
        reader.types(&after);
        let rows = reader.rows("berlin:lyon");
        let p99 = rows.iter().map(|row| &row["delays"]["percentiles"]["p99"]["high_ns"]);
        assert!(p99.filter_map(Value::as_i64).any(|ns| ns > 0), "{rows:#?}");
    }

    /// Steps 7 and 8.
    fn look_and_be_alerted(&self, reader: &mut Reader) {
        reader.types(&self.grid);
        let document = fs::read_to_string(repository("docs/fleet.md")).unwrap();
        let (_, rest) = document.split_once("Open <").unwrap();
        let url = rest.split('>').next().unwrap();
        // Cells with a value have a colour: c0, c1, ...
        let values = |page: String| page.matches("<td class=\"c").count();
        wait_until("values of all pairs in the grid", || {
            reader.page(url).map(values) == Some(PAIRS)
        });
        let applied = reader.types(&self.receiver);
        assert!(applied.contains("sent to me webhook"), "{applied}");
        assert_eq!(messages(reader)[0]["event"], json!("test"));
        let (stop, rest) = split_at(&self.outage, "sleep ");
        reader.types(&stop);
        let streams = || {
            let fired = messages(reader).into_iter().filter(|message| message["event"] == "fired");
            fired.map(|message| message["count"].as_u64().unwrap()).sum::<u64>()
        };
        wait_until("alerts of all streams to turin", || streams() == 4);
        for message in messages(reader) {
            assert_matches_schema("dwell.alert", &message);
            let alerts = message["alerts"].as_array().unwrap();
            assert!(
                alerts.iter().all(|alert| alert["subject"]["reflector"] == "turin"),
                "{message}"
            );
        }
        let shown = reader.types(&rest);
        assert!(shown.contains("firing") && shown.contains("dwell.alert/1"), "{shown}");
    }
}

/// What the receiver of alerts has printed.
fn messages(reader: &Reader) -> Vec<Value> {
    let text = reader.file("messages.log");
    // The last one may be incomplete.
    let messages = serde_json::Deserializer::from_str(&text).into_iter().map_while(Result::ok);
    // The guide sends an empty one, to wait until the receiver listens.
    messages.filter(|message: &Value| message["event"].is_string()).collect()
}

/// The blocks of the second guide.
pub(crate) struct BusGuide {
    pub(crate) database: String,
    pub(crate) server: String,
    pub(crate) uplinks: String,
    stop: String,
    removal: String,
}

impl BusGuide {
    pub(crate) fn read() -> Self {
        let blocks: [String; 5] = blocks("docs/fleet.md", "fleet-bus").try_into().unwrap();
        let [database, server, uplinks, stop, removal] = blocks;
        Self { database, server, uplinks, stop, removal }
    }

    /// The database and nats-server.
    pub(crate) fn start_servers(&self, reader: &mut Reader) {
        reader.types(&self.database);
        reader.types(&self.server);
        reader.uses_database = true;
        wait_until("nats-server", || reader.file("nats.log").contains("Server is ready"));
    }
}

/// Asserts that the hub lists all nodes, without a note.
pub(crate) fn assert_all_listed(listed: &str) {
    assert!(!listed.contains("note:"), "{listed}");
    assert_eq!(NODES.iter().filter(|node| listed.contains(*node)).count(), NODES.len(), "{listed}");
}

/// Types the block that stops everything. The agents end, and the hub stores their last records. The
/// guide promises ten minutes, to a reader who types at once.
fn stop(reader: &mut Reader, block: &str, since: Instant) {
    let before_stop = sent(&reader.rows("berlin:lyon"));
    let (agents, rest) = split_at(block, "sleep ");
    reader.types(&agents);
    wait_until("the last records", || sent(&reader.rows("berlin:lyon")) > before_stop);
    reader.types(&rest);
    println!("guide: {:.0?}, of which {:.0?} in commands", since.elapsed(), reader.typed);
    assert!(since.elapsed() < Duration::from_secs(600), "{:?}", since.elapsed());
    reader.wait_until_stopped();
    let log = reader.file("hub.log");
    assert!(log.contains("hub stopped") && !log.contains("panicked"), "{log}");
    assert_devices_are_clean(reader);
}

/// Asserts that nothing of dwell is left on a device but the spool, also if the hub has run it.
fn assert_devices_are_clean(reader: &Reader) {
    for (index, node) in NODES.iter().enumerate() {
        reader.lab.assert_idle(index);
        let home = reader.home(node);
        let known = [".cache", ".local", ".ssh"];
        let names = fs::read_dir(&home).unwrap().flatten().map(|entry| entry.file_name());
        let left: Vec<_> = names.filter(|name| known.iter().all(|it| name != it)).collect();
        assert!(left.is_empty(), "{left:?}");
        assert!(home.join(SPOOL).join("status.json").exists(), "the guide names {SPOOL}");
    }
}

#[test]
fn guide_leads_to_a_mesh_of_five_agents() {
    let Some(mut reader) = Reader::new() else { return };
    let (guide, since) = (Guide::read(), Instant::now());
    guide.start_agents(&mut reader);
    assert_all_listed(&reader.types(&guide.hub));
    guide.ask_and_change(&mut reader);
    guide.look_and_be_alerted(&mut reader);
    stop(&mut reader, &guide.stop, since);
    let output = reader.dwell(&["query", "berlin:lyon", "--last", "10m"]);
    assert!(stdout(&output).contains("total"), "{output:?}");
}

#[test]
fn guide_with_nats_and_postgresql_leads_to_the_same_mesh() {
    let Some(mut reader) = Reader::with_servers() else { return };
    let (guide, bus, since) = (Guide::read(), BusGuide::read(), Instant::now());
    bus.start_servers(&mut reader);
    guide.start_agents(&mut reader);
    assert_all_listed(&reader.types(&bus.uplinks));
    guide.ask_and_change(&mut reader);
    guide.look_and_be_alerted(&mut reader);
    stop(&mut reader, &bus.stop, since);
    assert!(!reader.work.join("dwell-data/hub.sqlite").exists(), "all is in PostgreSQL");
    reader.types(&bus.removal);
    assert!(!reader.dwell(&["query"]).status.success());
}
