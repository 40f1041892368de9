//! Secrets, the root key and ways out, as an operator handles them.

use std::fs;

use crate::cli_gateway::CliTestGateway;

const VALUE: &str = "hunter2-hunter2-hunter2";

fn set(gate: &CliTestGateway, further: &[&str]) -> i32 {
    let file = gate.bench.path("crm.key");
    fs::write(&file, format!("{VALUE}\n")).unwrap();
    let file = file.to_str().unwrap().to_owned();
    gate.run(&[&["secrets", "set", "crm/key", "--file", &file], further].concat()).code
}

#[test]
fn a_secret_is_set_shown_replaced_and_revoked_and_its_value_never_printed() {
    let gate = CliTestGateway::open();
    assert_eq!(set(&gate, &["--capability", "network.*", "--host", "api.crm.example"]), 0);
    assert_eq!(set(&gate, &["--capability", "*", "--host", "api.crm.example"]), 1, "never for everything");
    assert_eq!(set(&gate, &["--capability", "network.*"]), 2, "never for everywhere");
    let run = gate.run(&["secrets", "set", "crm", VALUE, "--capability", "a.b", "--host", "a.example"]);
    assert_eq!(run.code, 2, "never from the command line");
    insta::assert_snapshot!(gate.table(&gate.works(&["secrets", "list"])), @r"
    SECRET  KIND  VERSION  CAPABILITIES  HOSTS  CHANGED  STATE
    crm/key  api_key  1  network.*  api.crm.example  TIME  set
    ");
    let short = gate.bench.path("short.key");
    fs::write(&short, "short\n").unwrap();
    assert_ne!(gate.run(&["secrets", "rotate", "crm/key", "--file", short.to_str().unwrap()]).code, 0);
    let next = gate.bench.path("next.key");
    fs::write(&next, "another-value-for-crm\n").unwrap();
    gate.works(&["secrets", "rotate", "crm/key", "--file", next.to_str().unwrap(), "--overlap", "1m"]);
    assert_eq!(gate.json(&["secrets", "show", "crm/key"])["version"], 2);
    gate.works(&["secrets", "revoke", "crm/key"]);
    assert_eq!(gate.json(&["secrets", "show", "crm/key"])["revoked"], true);
    assert_eq!(gate.run(&["secrets", "rotate", "crm/key", "--file", next.to_str().unwrap()]).code, 3);
    assert_eq!(gate.run(&["secrets", "show", "none"]).code, 3);
    let said = [
        gate.works(&["secrets", "list"]),
        String::from_utf8_lossy(&fs::read(gate.path("data/sluice.db")).unwrap()).into_owned(),
        fs::read_to_string(gate.bench.path("serve.err")).unwrap(),
    ];
    assert!(
        said.iter().all(|text| !text.contains("hunter2") && !text.contains("another-value")),
        "a value was printed or kept"
    );
}

#[test]
fn the_root_key_is_replaced_and_the_old_file_is_gone() {
    let gate = CliTestGateway::open();
    assert_eq!(set(&gate, &["--capability", "network.*", "--host", "api.crm.example"]), 0);
    let file = gate.path("data/keys/root.key");
    let (before, old) = (fs::read(&file).unwrap(), gate.json(&["vault", "show"])["fingerprint"].clone());
    assert_eq!(gate.run(&["vault", "rekey"]).code, 2, "nobody was asked");
    gate.works(&["vault", "rekey", "--yes"]);
    assert_ne!(gate.json(&["vault", "show"])["fingerprint"], old);
    assert_ne!(fs::read(&file).unwrap(), before);
    assert!(!gate.path("data/keys/root.key.next").exists());
}

#[test]
fn without_a_connection_there_is_no_way_out() {
    let gate = CliTestGateway::open();
    assert_eq!(gate.works(&["egress", "list"]), "");
    assert_eq!(gate.run(&["egress", "reset", "none"]).code, 3);
}
