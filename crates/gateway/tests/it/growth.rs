//! Growth: what is over leaves as fast as it comes, and under a steady load the database stops growing.

use serde_json::json;
use sluice_core::Millis;
use sluice_gateway::loops::{archive, housekeeping};

use crate::test_gateway::{TestGateway, TestGatewayPlan};

const DAY: Millis = Millis::from_hours(24);
/// Writes of one day. Each leaves a hold, its content, a result, a rollback point and seven entries.
const WRITES: usize = 25;
const READS: usize = 25;
/// What sessions have seen is kept for 30 days, whatever `retention` says.
const SETTLED: usize = 34;

async fn house(config: &str) -> TestGateway {
    TestGateway::new(TestGatewayPlan { config: config.into(), ..TestGatewayPlan::default() }).await
}

async fn write(house: &mut TestGateway, count: usize) {
    let now = house.gw.now().as_millis();
    for n in 0..count {
        let path = house.path(&format!("f{}", n % 20));
        house.call("filesystem.write", json!({"path": path, "content": format!("{now} {n}")})).await.unwrap();
    }
    house.pass(Millis::from_mins(1));
    house.let_go().await;
}

fn database(house: &TestGateway) -> rusqlite::Connection {
    rusqlite::Connection::open(house.folder.path().join("data/sluice.db")).unwrap()
}

fn number(house: &TestGateway, sql: &str) -> i64 {
    database(house).query_row(sql, [], |row| row.get(0)).unwrap()
}

/// The pages that hold something.
fn pages(house: &TestGateway) -> i64 {
    number(
        house,
        "SELECT (SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count)",
    )
}

const UNCOUNTED: &str = "batch: {services: {filesystem: off, state: off}}\n";

#[tokio::test]
async fn the_undo_of_many_writes_at_once_ends_within_a_second_of_its_time() {
    let mut house = house(UNCOUNTED).await;
    write(&mut house, 450).await;
    let usable = "SELECT count(*) FROM rollback_points WHERE state = 'sealed'";
    assert_eq!(number(&house, usable), 450);
    house.pass(Millis::from_hours(73));
    housekeeping::step(&house.gw, 0).await.unwrap();
    assert_eq!(number(&house, usable), 0);
    assert_eq!(std::fs::read_dir(house.work().join(".sluice-trash")).map_or(0, Iterator::count), 0);
}

#[tokio::test]
async fn under_a_steady_load_the_database_stops_growing() {
    let kept = "retention: {writes: 7d, sessions: 7d, proxy_tasks: 7d, audit: 7d}\n";
    let mut house = house(&format!("{kept}{UNCOUNTED}")).await;
    let mut sizes = Vec::new();
    for _ in 0..SETTLED + 15 {
        write(&mut house, WRITES).await;
        for n in 0..READS {
            house.call("filesystem.read", json!({"path": house.path(&format!("f{}", n % 20))})).await.unwrap();
        }
        housekeeping::step(&house.gw, 0).await.unwrap();
        while archive::step(&house.gw, 256, 65_536).await.unwrap() > 0 {}
        sizes.push(pages(&house));
        house.pass(DAY);
    }
    let (settled, last) = (sizes[SETTLED], sizes[SETTLED + 14]);
    assert!(sizes[6] - sizes[0] > 100, "it grew at first: {sizes:?}");
    assert!(last * 100 <= settled * 103, "it grows on: {sizes:?}");
}
