//! The commands of docs/fleet-operations.md (blocks marked `sh ops`) against five devices, an embedded hub, and
//! then a hub with nats-server and PostgreSQL, which the blocks of docs/fleet.md start. Blocks marked
//! `sh system` need the package manager.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::Value;

use crate::fixture::{object, repository, stdout, wait_until};
use crate::guide::{BusGuide, Guide, assert_all_listed};
use crate::reader::{NODES, PAIRS, Reader, blocks, sent};

/// The document.
const DOCUMENT: &str = "docs/fleet-operations.md";

/// Time between looks at the list of nodes.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Number of the user of the devices.
const USER: u32 = 6_543;

/// Migrations of the version of the hub's database from which the test upgrades.
const OLD_MIGRATIONS: [&str; 3] = [
    include_str!("../../../controller/hub/src/sqlite/migrations/1.sql"),
    include_str!("../../../controller/hub/src/sqlite/migrations/2.sql"),
    include_str!("../../../controller/hub/src/sqlite/migrations/3.sql"),
];

/// Number of the last of them.
const OLD_VERSION: u32 = 3;

/// `application_id` of the hub's database.
const APPLICATION_ID: u32 = 0x6477_6862;

/// Restarts the uplink of a node with the key of a file.
const RESTART_WITH_OLD_KEY: &str = "
ssh berlin 'sed s/uplink.nk/old.nk/ uplink.toml >old.toml; kill $(cat uplink.pid)
    setsid ./dwell-uplink run --config old.toml </dev/null >old.log 2>&1 & echo $! >uplink.pid'
";

const RESTART_WITH_NEW_KEY: &str = "
ssh berlin 'kill $(cat uplink.pid)
    setsid ./dwell-uplink run --config uplink.toml </dev/null >>uplink.log 2>&1 & echo $! >uplink.pid'
";

/// Starts another hub with the old key, which fails.
const HUB_WITH_OLD_KEY: &str = "
! DWELL_HUB_DATABASE= DWELL_DATA=other dwell hub --nats tls://$hub:4222 --nats-ca ca.pem \
    --nats-key backup/old-hub.nk 2>other.log
";

struct Operations {
    back_up_sqlite: String,
    restore_sqlite: String,
    back_up_postgresql: String,
    restore_postgresql: String,
    stop: String,
    start: String,
    upgrade_nodes: String,
    rotate: String,
    finish: String,
    revoke: String,
    enroll: String,
    replace_hub_key: String,
    listen_for_leaf_servers: String,
    start_leaf_server: String,
    revoke_leaf_server: String,
}

impl Operations {
    fn read() -> Self {
        let blocks: [String; 15] = blocks(DOCUMENT, "ops").try_into().unwrap();
        let [back_up_sqlite, restore_sqlite, back_up_postgresql, restore_postgresql, ..] =
            blocks.clone();
        let [.., rotate, finish, revoke, enroll, hub_key, listen, leaf, revoke_leaf] =
            blocks.clone();
        let [_, _, _, _, stop, start, upgrade_nodes, ..] = blocks;
        Self {
            back_up_sqlite,
            restore_sqlite,
            back_up_postgresql,
            restore_postgresql,
            stop,
            start,
            upgrade_nodes,
            rotate,
            finish,
            revoke,
            enroll,
            replace_hub_key: hub_key,
            listen_for_leaf_servers: listen,
            start_leaf_server: leaf,
            revoke_leaf_server: revoke_leaf,
        }
    }
}

/// The sum of a number of all nodes in the list of the hub.
fn total(reader: &Reader, number: &str) -> u64 {
    let nodes = nodes(reader);
    nodes.iter().map(|node| node[number].as_u64().unwrap()).sum()
}

fn nodes(reader: &Reader) -> Vec<Value> {
    let output = reader.dwell(&["hub", "nodes", "--json"]);
    assert!(output.status.success(), "{output:?}");
    object(&output)["nodes"].as_array().unwrap().clone()
}

/// Numbers of stored records of nodes.
fn stored(reader: &Reader, names: &[&str]) -> Vec<u64> {
    let nodes = nodes(reader);
    let of = |name| nodes.iter().find(|node| node["node"] == name).unwrap();
    names.iter().map(|name| of(*name)["stored"].as_u64().unwrap()).collect()
}

/// Waits until new records of each of the nodes are stored.
fn wait_for_records(reader: &Reader, names: &[&str]) {
    let before = stored(reader, names);
    wait_until(&format!("records of {names:?}"), || {
        // Leaves the processor to the programs that are waited for.
        std::thread::sleep(POLL_INTERVAL);
        stored(reader, names).iter().zip(&before).all(|(now, before)| now > before)
    });
}

/// What is measured in the complete rows of a pair.
fn measured(reader: &Reader) -> Vec<[Value; 3]> {
    let rows = reader.rows("berlin:lyon").into_iter();
    let rows = rows.filter(|row| sent(std::slice::from_ref(row)) >= 10);
    rows.map(|mut row| ["from", "packets", "delays"].map(|field| row[field].take())).collect()
}

/// Asserts that rows are still there.
fn assert_contains(reader: &Reader, rows: &[[Value; 3]]) {
    assert!(!rows.is_empty());
    let now = measured(reader);
    assert!(rows.iter().all(|row| now.contains(row)), "{rows:#?}\n{now:#?}");
}

/// Types the commands of a backup, lets the hub store more, and types those of the restoration.
fn back_up_and_restore(reader: &mut Reader, back_up: &str, restore: &str) {
    let rows = measured(reader);
    reader.types(back_up);
    // The nodes free the records that the hub stores now.
    wait_for_records(reader, &NODES);
    let missing = total(reader, "missing");
    assert_all_listed(&reader.types(restore));
    assert_contains(reader, &rows);
    wait_until("the lost records are counted", || total(reader, "missing") > missing);
    wait_for_records(reader, &["berlin"]);
}

/// Replaces a database by one of an older version with the same rows.
fn make_older(path: &Path) {
    let newer = path.with_extension("newer");
    fs::rename(path, &newer).unwrap();
    let db = Connection::open(path).unwrap();
    OLD_MIGRATIONS.iter().for_each(|script| db.execute_batch(script).unwrap());
    db.pragma_update(None, "user_version", OLD_VERSION).unwrap();
    db.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
    db.execute("ATTACH ?1 AS newer", [newer.to_str().unwrap()]).unwrap();
    let texts = |sql: &str| -> Vec<String> {
        let mut select = db.prepare(sql).unwrap();
        let rows = select.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    // Partitions of rows.
    let partitions = "SELECT sql FROM newer.sqlite_schema WHERE name LIKE 'rows\\_%' ESCAPE '\\' \
                      AND sql IS NOT NULL ORDER BY type DESC";
    texts(partitions).iter().for_each(|sql| db.execute_batch(sql).unwrap());
    db.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    for table in texts("SELECT name FROM main.sqlite_schema WHERE type = 'table'") {
        if texts(&format!("SELECT name FROM newer.sqlite_schema WHERE name = '{table}'")).is_empty()
        {
            continue;
        }
        let columns = texts(&format!(
            "SELECT name FROM pragma_table_info('{table}', 'main') WHERE name IN \
             (SELECT name FROM pragma_table_info('{table}', 'newer'))"
        ));
        let columns = columns.join(", ");
        db.execute_batch(&format!(
            "DELETE FROM main.{table}; INSERT INTO main.{table} ({columns}) \
             SELECT {columns} FROM newer.{table}"
        ))
        .unwrap();
    }
    drop(db);
    fs::remove_file(newer).unwrap();
}

/// Process ids of the agents.
fn agents(reader: &Reader) -> Vec<String> {
    NODES.iter().map(|node| reader.remote_file(node, "agent.pid")).collect()
}

/// Backup, restoration and upgrade with SQLite.
fn operate_embedded_hub(reader: &mut Reader, operations: &Operations) {
    back_up_and_restore(reader, &operations.back_up_sqlite, &operations.restore_sqlite);
    let catalogue = Connection::open(reader.work.join("backup/catalogue.sqlite")).unwrap();
    let devices: i64 =
        catalogue.query_row("SELECT count(*) FROM devices", [], |row| row.get(0)).unwrap();
    assert_eq!(devices, 5);
    reader.types(&operations.stop);
    let rows = measured(reader);
    let database = reader.work.join("dwell-data/hub.sqlite");
    make_older(&database);
    let refused = reader.dwell(&["query"]);
    assert!(!refused.status.success(), "a query migrates nothing: {refused:?}");
    assert_all_listed(&reader.types(&operations.start));
    assert!(database.with_file_name("hub.v3.backup.sqlite").exists());
    assert_contains(reader, &rows);
}

/// Replaces the program of the nodes. The statuses of the new agents are the first ones of another hub.
fn upgrade_nodes(reader: &mut Reader, operations: &Operations) {
    let before = agents(reader);
    reader.types(&operations.upgrade_nodes);
    let after = agents(reader);
    assert!(before.iter().zip(&after).all(|(before, after)| before != after), "{after:?}");
}

/// Number of connections of an uplink.
fn connections(reader: &Reader, node: &str) -> usize {
    reader.remote_file(node, "uplink.log").matches("connected to server").count()
}

fn wait_for_connection(reader: &Reader, node: &str, count: usize) {
    wait_until(&format!("connection {count} of {node}"), || connections(reader, node) >= count);
}

/// Rotation, revocation and enrolment of keys of nodes, and another key of the hub.
fn change_keys(reader: &mut Reader, operations: &Operations) {
    let old = reader.remote_file("berlin", "uplink.nk");
    let count = connections(reader, "berlin");
    reader.types(&operations.rotate);
    wait_for_connection(reader, "berlin", count + 1);
    assert_eq!(keys_of(reader, "berlin"), 2);
    reader.types(&operations.finish);
    assert_eq!(keys_of(reader, "berlin"), 1);
    wait_for_records(reader, &["berlin"]);
    // The old key is refused.
    let path = reader.home("berlin").join("old.nk");
    fs::write(&path, old).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    chown(&path, Some(USER), Some(USER)).unwrap();
    reader.types(RESTART_WITH_OLD_KEY);
    wait_until("the old key to be refused", || {
        reader.remote_file("berlin", "old.log").contains("authorization violation")
    });
    reader.types(RESTART_WITH_NEW_KEY);
    let count = connections(reader, "turin");
    let revoked = reader.types(&operations.revoke);
    assert!(revoked.contains("revoked 1 keys of node turin"), "{revoked}");
    wait_until("the revoked key to be refused", || {
        reader.remote_file("turin", "uplink.log").contains("authorization violation")
    });
    reader.types(&operations.enroll);
    wait_for_connection(reader, "turin", count + 1);
    wait_for_records(reader, &["turin"]);
    let count = hubs(reader);
    reader.types(&operations.replace_hub_key);
    wait_until("the hub with its new key", || hubs(reader) > count);
    wait_for_records(reader, &["berlin"]);
    reader.types(HUB_WITH_OLD_KEY);
    assert!(reader.file("other.log").contains("refuses key"), "{}", reader.file("other.log"));
}

/// Number of times that a hub has begun to receive.
fn hubs(reader: &Reader) -> usize {
    reader.file("hub.log").matches("receiving from").count()
}

fn keys_of(reader: &Reader, owner: &str) -> usize {
    let listed = stdout(&reader.dwell(&["hub", "keys"]));
    listed.lines().filter(|line| line.starts_with(&format!("{owner} "))).count()
}

/// A leaf server for two nodes, and its revocation.
fn use_leaf_server(reader: &mut Reader, operations: &Operations) {
    reader.types(&operations.listen_for_leaf_servers);
    reader.types(&operations.start_leaf_server);
    for node in ["oslo", "porto"] {
        wait_until(&format!("{node} to connect to its site"), || {
            reader.remote_file(node, "uplink.log").contains("connected to server dwell-roof")
        });
    }
    // Those that are on the way by the server of the hub.
    wait_for_records(reader, &["oslo", "porto"]);
    wait_for_records(reader, &NODES);
    assert_eq!(keys_of(reader, "leaf:roof"), 1);
    reader.types(&operations.revoke_leaf_server);
    assert_eq!(keys_of(reader, "leaf:roof"), 0);
    wait_until("the leaf server to be refused", || {
        reader.remote_file("lyon", "leaf-roof/nats.log").contains("Authorization Violation")
    });
    // The other nodes connect again.
    wait_for_records(reader, &["berlin"]);
}

#[test]
fn operations_work_as_typed() {
    let text = fs::read_to_string(repository(DOCUMENT)).unwrap();
    let marked = ["ops", "system"].map(|mark| blocks(DOCUMENT, mark).len());
    assert_eq!(
        text.matches("```sh").count(),
        marked.iter().sum::<usize>(),
        "each block has a mark"
    );
    assert_eq!(marked[1], 1, "only the installation of packages is not typed");
    let Some(mut reader) = Reader::with_servers() else { return };
    let (guide, bus, operations) = (Guide::read(), BusGuide::read(), Operations::read());
    guide.start_agents(&mut reader);
    reader.types(&guide.hub);
    reader.wait_for_row(10);
    operate_embedded_hub(&mut reader, &operations);
    reader.types(&operations.stop);
    bus.start_servers(&mut reader);
    reader.types(&guide.schedule);
    upgrade_nodes(&mut reader, &operations);
    assert_all_listed(&reader.types(&bus.uplinks));
    wait_until("rows of all pairs", || reader.pairs() == PAIRS);
    reader.wait_for_row(10);
    let postgresql = (&operations.back_up_postgresql, &operations.restore_postgresql);
    back_up_and_restore(&mut reader, postgresql.0, postgresql.1);
    change_keys(&mut reader, &operations);
    use_leaf_server(&mut reader, &operations);
    println!("operations: {:.0?} in commands", reader.typed);
    assert!(!reader.file("hub.log").contains("panicked"));
}
