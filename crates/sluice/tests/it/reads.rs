//! What did the agent read: asked of a real gateway, and answered from its record without any content.

use std::fs;

use serde_json::{Value, json};
use sluice_testkit::postgres::TestDatabase;

use crate::cli_gateway::CliTestGateway;
use crate::running::{TestInstallation, ask};

fn of(run: &crate::policy::SluiceRunOutput) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{}{}", run.stdout, run.stderr))
}

/// Entries that a search prints.
fn found(gate: &CliTestGateway, filters: &[&str]) -> Vec<Value> {
    let printed = gate.works(&[&["audit", "show", "--json"], filters].concat());
    serde_json::Deserializer::from_str(&printed).into_iter().map(Result::unwrap).collect()
}

#[test]
fn the_record_says_what_an_agent_read_by_id_and_nothing_of_what_it_said() {
    let gate = CliTestGateway::with("holds: {delays: {\"filesystem.*\": 1h}}\n");
    fs::write(gate.path("workspace/plan.txt"), "the QUILLFEATHER plan").unwrap();
    let path = gate.workspace("plan.txt");
    let read = of(&gate.call("filesystem.read", &json!({"path": path}), &[]));
    let listed = of(&gate.call("filesystem.list", &json!({"path": gate.workspace("")}), &[]));
    let searched = of(&gate.call(
        "filesystem.search_content",
        &json!({"path": gate.workspace(""), "pattern": "QUILLFEATHER"}),
        &[],
    ));
    let id = |call: &Value| call["call_id"].as_str().unwrap().to_owned();

    let shown = gate.works(&["calls", "show", &id(&read)]);
    assert!(shown.contains(&format!("1 object: {path}")) && shown.contains("answer hash"), "{shown}");
    assert!(!shown.contains("QUILLFEATHER"), "{shown}");
    let view = gate.json(&["calls", "show", &id(&listed)]);
    assert!(view["read"]["ids"].to_string().contains("plan.txt"), "{view}");
    let view = gate.json(&["calls", "show", &id(&searched)]);
    assert_eq!(view["read"]["ids"], json!([path]), "{view}");
    assert!(view["read"]["query_hash"].is_string());

    // Who read this file, when, with what.
    let calls = |filters: &[&str]| -> Vec<String> {
        found(&gate, filters)
            .iter()
            .filter_map(|one| one["entry"]["fact"]["call"].as_str().map(str::to_owned))
            .collect()
    };
    assert_eq!(calls(&["--target", &path]), [id(&read), id(&searched)]);
    assert_eq!(calls(&["--target", &path, "--capability", "filesystem.read"]), [id(&read)]);
    assert_eq!(calls(&["--target", "QUILLFEATHER"]), [id(&searched)], "a search for exactly this text");
    assert_eq!(calls(&["--agent", "assistant", "--capability", "filesystem.*"]).len(), 3);
    assert_eq!(calls(&["--agent", "assistant", "--limit", "1"]), [id(&searched)], "the latest");
    assert_eq!(calls(&["--agent", "nobody"]), [""; 0]);
    assert_eq!(calls(&["--since", "1h", "--capability", "filesystem.read"]), [id(&read)]);
    assert_eq!(calls(&["--until", "1h", "--capability", "filesystem.read"]), [""; 0]);
    let data = gate.path("data");
    let from_file = calls(&["--target", &path, "--data", data.to_str().unwrap()]);
    assert_eq!(from_file, [id(&read), id(&searched)], "the same out of the file");

    // A write is found by the object it names.
    let write = gate.pending("filesystem.write", &json!({"path": gate.workspace("new.txt"), "content": "x"}));
    assert!(calls(&["--target", &gate.workspace("new.txt")]).contains(&id(&write)));

    // Nothing of what was read is in an export, and it verifies.
    let out = gate.bench.path("export");
    gate.works(&["audit", "export", "--out", out.to_str().unwrap()]);
    let entries = fs::read_to_string(out.join("entries.jsonl")).unwrap();
    assert!(entries.contains("plan.txt") && !entries.contains("QUILLFEATHER"));
    let key = gate.path("data/keys/audit.pub");
    gate.works(&["audit", "verify", "--export", out.to_str().unwrap(), "--key", key.to_str().unwrap()]);
    let of_read: Vec<&str> =
        entries.lines().filter(|line| line.contains(&id(&read)) && line.contains("call.answered")).collect();
    let [entry] = of_read.as_slice() else { panic!("{of_read:?}") };
    assert!(entry.len() < 900, "a read takes {} bytes: {entry}", entry.len());
}

#[test]
fn a_session_shows_what_was_seen_before_each_write() {
    let gate = CliTestGateway::with("holds: {delays: {\"filesystem.*\": 1h}}\n");
    for name in ["a.txt", "b.txt", "c.txt"] {
        fs::write(gate.path("workspace").join(name), "QUILLFEATHER").unwrap();
    }
    let read = |name: &str| of(&gate.call("filesystem.read", &json!({"path": gate.workspace(name)}), &[]));
    read("a.txt");
    read("b.txt");
    gate.pending("filesystem.write", &json!({"path": gate.workspace("new.txt"), "content": "x"}));
    read("c.txt");
    let sessions = gate.json(&["sessions", "list"]);
    let id = sessions["data"][0]["session_id"].as_str().unwrap().to_owned();
    let shown = gate.works(&["sessions", "show", &id]);
    let at = |part: &str| shown.find(part).unwrap_or_else(|| panic!("`{part}` is not in\n{shown}"));
    assert!(at("did ") < at("read before it:") && at("a.txt") < at("b.txt") && at("b.txt") < at("read since then"));
    assert!(at("read since then") < at("c.txt"), "{shown}");
    assert!(!shown.contains("QUILLFEATHER"));
    let record = &gate.json(&["sessions", "show", &id])["record"];
    assert_eq!(record["writes"][0]["seen_before"].as_array().unwrap().len(), 2, "{record}");
    assert_eq!(record["seen_since"].as_array().unwrap().len(), 1, "{record}");
}

#[test]
fn a_search_of_a_record_on_a_server_finds_the_same() {
    let Some(database) = TestDatabase::fresh() else { return };
    let place = TestInstallation::new("", "defaults:\n  tier: autonomous\n", Some(database.url()));
    let _running = place.start();
    fs::write(place.work().join("a.txt"), "x").unwrap();
    let path = fs::canonicalize(place.work()).unwrap().join("a.txt").display().to_string();
    for _ in 0..3 {
        let answer = place.call(&json!({"capability": "filesystem.read", "arguments": {"path": path}})).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let search = |query: &str| {
        let path = format!("/v1/audit/search?agent=clerk&capability=filesystem.*&{query}");
        ask(place.main, "GET", &path, &place.operator_token, None).unwrap().body
    };
    let all = search("limit=50");
    assert_eq!((all["data"].as_array().unwrap().len(), &all["complete"]), (3, &json!(true)), "{all}");
    let first = search("limit=2");
    assert_eq!((first["data"].as_array().unwrap().len(), &first["has_more"]), (2, &json!(true)), "{first}");
    let rest = search(&format!("limit=2&cursor={}", first["next_cursor"].as_str().unwrap()));
    assert_eq!(rest["data"].as_array().unwrap().len(), 1, "{rest}");
    assert_eq!(rest["data"][0], all["data"][2]);
    assert_ne!(ask(place.main, "GET", "/v1/audit/search", &place.agent_key, None).unwrap().status, 200);
}
