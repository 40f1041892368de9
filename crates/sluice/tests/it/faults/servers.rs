//! Faults of a shared PostgreSQL and of the nodes on it.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sluice_testkit::depth::repetitions;
use sluice_testkit::postgres::TestDatabase;
use sluice_testkit::relay::CuttableRelay;
use sluice_testkit::standby::{ReplicatedPostgres, ReplicationMode};

use super::load::{AgentLoad, declare};
use super::oracle::{EffectOracle, OracleBehavior, next};
use super::place;
use crate::nodes::beside;
use crate::running::{TestInstallation, ask, pause};

const LATE: OracleBehavior = OracleBehavior { late: 500, hang: 0, cut: 0, refuse: 0, down: 0 };

#[test]
fn kills_of_one_of_two_nodes() {
    let Some(database) = TestDatabase::fresh() else { return };
    let oracle = EffectOracle::open();
    oracle.behave(LATE);
    let first = place(&oracle, Some(database.url()));
    let mut of_first = first.start();
    let second = beside(&first, "gw-2");
    // Both open the same folder: a node leaves alone what it cannot carry out.
    let config = second.folder.path().join("sluice.yaml");
    let text = fs::read_to_string(&config).unwrap();
    let shared = first.work().display().to_string();
    fs::write(&config, text.replace("{path: work,", &format!("{{path: \"{shared}\","))).unwrap();
    declare(&second, &oracle);
    let second = Arc::new(second);
    let mut of_second = second.start();
    let load = AgentLoad::start(&[Arc::clone(&first), Arc::clone(&second)], &oracle);
    let mut random = 3;
    for n in 0..repetitions(4, 150) {
        load.goes_on(10);
        random = next(random);
        pause(Duration::from_millis(random >> 56));
        if n % 2 == 0 {
            of_first.kill();
            of_first = first.start();
        } else {
            of_second.kill();
            of_second = second.start();
        }
    }
    oracle.behave(OracleBehavior::default());
    load.goes_on(10);
    load.settle("node kills", true).assert_as_promised();
    drop((of_first, of_second));
}

#[test]
fn cut_connections_to_the_database() {
    let Some(database) = TestDatabase::fresh() else { return };
    let server = database.url().parse::<DatabaseServerAddress>().unwrap();
    let line = CuttableRelay::to(server.0);
    let oracle = EffectOracle::open();
    oracle.behave(LATE);
    let place = place(&oracle, Some(&server.by(database.url(), &line)));
    let running = place.start();
    let load = AgentLoad::start(&[Arc::clone(&place)], &oracle);
    let mut random = 5;
    for n in 0..repetitions(8, 400) {
        load.goes_on(6);
        random = next(random);
        pause(Duration::from_millis(random >> 57));
        // By the server, which ends what was under way, and by the network, which leaves both sides with half a word.
        if n % 2 == 0 { database.cut() } else { line.cut() }
    }
    oracle.behave(OracleBehavior::default());
    load.goes_on(6);
    load.settle("cut connections", true).assert_as_promised();
    drop(running);
}

#[test]
fn failovers_to_a_synchronous_standby() {
    for _ in 0..repetitions(1, 10) {
        let Some(servers) = ReplicatedPostgres::start(ReplicationMode::Synchronous) else { return };
        let oracle = EffectOracle::open();
        oracle.behave(LATE);
        let place = place(&oracle, Some(&servers.url()));
        let running = place.start();
        let load = AgentLoad::start(&[Arc::clone(&place)], &oracle);
        load.goes_on(40);
        servers.fail_over();
        load.goes_on(20);
        oracle.behave(OracleBehavior::default());
        let table = load.settle("failover to a synchronous standby", true);
        table.assert_as_promised();
        assert_ne!(operator(&place, "/v1/recovery")["standing"], "suspected", "nothing is missing");
        drop(running);
    }
}

#[test]
fn failovers_to_a_standby_that_was_behind_freeze_and_double_nothing() {
    for _ in 0..repetitions(1, 10) {
        let Some(servers) = ReplicatedPostgres::start(ReplicationMode::Asynchronous) else { return };
        let oracle = EffectOracle::open();
        let place = place(&oracle, Some(&servers.url()));
        let running = place.start();
        let mut load = AgentLoad::start(&[Arc::clone(&place)], &oracle);
        load.goes_on(20);
        servers.fall_behind();
        load.goes_on(30);
        servers.fail_over();
        let noticed = (0..6_000).any(|_| {
            pause(Duration::from_millis(10));
            let answer = ask(place.main, "GET", "/v1/recovery", &place.operator_token, None);
            answer.is_ok_and(|answer| answer.body["standing"] == "suspected")
        });
        assert!(noticed, "{}", fs::read_to_string(place.folder.path().join("log")).unwrap());
        let happened = oracle.count();
        load.stop();
        // What waited is left to a person, what may have left as well, and nothing more happens.
        let left = operator(&place, "/v1/status")["holds"].clone();
        let decides = ["stale", "needs_human", "awaiting_approval"];
        let all = left.as_object().is_some_and(|left| left.keys().all(|state| decides.contains(&state.as_str())));
        assert!(all, "{left}");
        assert!(operator(&place, "/v1/freezes")["data"].as_array().is_some_and(|all| !all.is_empty()));
        let alerts = operator(&place, "/v1/alerts").to_string();
        assert!(alerts.contains("recovery."), "{alerts}");
        let table = load.settle("failover to a standby that was behind", true);
        table.assert_nothing_happened_twice();
        assert!(table.lost() > 0, "the standby lacked nothing, so nothing is proven: {table}");
        assert_eq!(oracle.count(), happened, "nothing happens once it is frozen");
        drop(running);
    }
}

fn operator(place: &TestInstallation, path: &str) -> Value {
    ask(place.main, "GET", path, &place.operator_token, None).unwrap().body
}

/// Where the server of a URL listens.
struct DatabaseServerAddress(std::net::SocketAddr);

impl std::str::FromStr for DatabaseServerAddress {
    type Err = std::net::AddrParseError;

    fn from_str(url: &str) -> Result<Self, Self::Err> {
        let host = url.split(['@', '/', '?']).find(|part| part.contains(':') && !part.ends_with(':'));
        host.unwrap_or_default().replace("localhost", "127.0.0.1").parse().map(Self)
    }
}

impl DatabaseServerAddress {
    /// The same database by way of a line.
    fn by(&self, url: &str, line: &CuttableRelay) -> String {
        url.replacen(&format!(":{}", self.0.port()), &format!(":{}", line.address().port()), 1)
    }
}
