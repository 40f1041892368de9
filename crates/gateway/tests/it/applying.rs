//! Rules come into force from the folder or by a request, and both take exactly the same files.

use std::fs;
use std::path::Path;

use sluice_core::Actor;
use sluice_gateway::loops::policy::{put_in_force, reload};
use sluice_services::policies::to_send;

use super::test_gateway::{TestGateway, TestGatewayPlan, ana};

/// The files of a folder, by name.
type RuleFolderFiles = &'static [(&'static str, &'static [u8])];

/// Odd folders: name, files, and whether they can be used.
const TABLE: &[(&str, RuleFolderFiles, bool)] = &[
    ("ordinary", &[("org.yaml", b"defaults: {tier: notify}\n"), ("agents/clerk.yaml", b"rules: []\n")], true),
    ("no organisation", &[("agents/clerk.yaml", b"rules: []\n")], true),
    ("other line ends", &[("org.yaml", b"defaults: {tier: notify}\r\n")], true),
    ("a mark of its encoding", &[("org.yaml", b"\xef\xbb\xbfdefaults: {tier: notify}\n")], true),
    ("only a remark", &[("org.yaml", b"# nothing\n")], true),
    ("empty", &[("org.yaml", b"defaults: {tier: notify}\n"), ("agents/clerk.yaml", b"")], false),
    ("blank", &[("org.yaml", b"defaults: {tier: notify}\n"), ("agents/clerk.yaml", b" \n\n")], false),
    ("no text", &[("org.yaml", b"defaults: {tier: \xff}\n")], false),
    ("another ending", &[("org.yaml", b"defaults: {tier: notify}\n"), ("org.yml", b"rules: []\n")], false),
    ("an agent's other ending", &[("org.yaml", b"defaults: {tier: notify}\n"), ("agents/clerk.yml", b"x")], false),
    ("no agent's name", &[("org.yaml", b"defaults: {tier: notify}\n"), ("agents/No Name.yaml", b"rules: []\n")], false),
    ("an unknown key", &[("org.yaml", b"default: {tier: notify}\n")], false),
    ("a key twice", &[("org.yaml", b"defaults: {tier: notify}\ndefaults: {tier: notify}\n")], false),
    ("an unknown tier", &[("org.yaml", b"defaults: {tier: free}\n")], false),
    ("an unknown capability", &[("agents/clerk.yaml", b"rules: [{capability: nothing.at_all, tier: notify}]\n")], true),
    ("two documents", &[("org.yaml", b"defaults: {tier: notify}\n---\ndefaults: {tier: notify}\n")], false),
    (
        "a test that fails",
        &[(
            "agents/clerk.yaml",
            b"rules: [{capability: filesystem.read, tier: notify}]\ntests:\n  - given: {capability: filesystem.read, arguments: {path: /a}}\n    expect: {tier: blocked}\n",
        )],
        false,
    ),
    ("files of others beside them", &[("org.yaml", b"defaults: {tier: notify}\n"), ("notes.txt", b"x")], true),
];

fn lay(folder: &Path, files: &[(&str, &[u8])]) {
    let _there = fs::remove_dir_all(folder);
    fs::create_dir_all(folder.join("agents")).unwrap();
    for (name, bytes) in files {
        fs::write(folder.join(name), bytes).unwrap();
    }
}

#[tokio::test]
async fn the_folder_and_a_request_take_exactly_the_same_files() {
    let house = TestGateway::new(TestGatewayPlan::default()).await;
    let (own, sent) = (house.gw.config.policies.clone(), house.folder.path().join("sent"));
    let good: &[(&str, &[u8])] = &[("org.yaml", b"defaults: {tier: autonomous}\n")];
    let node = || Actor::Node(house.gw.store.node().clone());
    for (name, files, usable) in TABLE {
        lay(&own, good);
        reload(&house.gw, node()).await.unwrap();
        lay(&own, files);
        let watched = reload(&house.gw, node()).await;
        let from_folder = house.gw.policy.get().version().to_owned();

        lay(&own, good);
        reload(&house.gw, node()).await.unwrap();
        let before = house.gw.policy.get().version().to_owned();
        lay(&sent, files);
        let applied = match to_send(&sent) {
            Ok(files) => put_in_force(&house.gw, &files, None, ana()).await.map_err(|no| no.refusal.to_string()),
            Err(errors) => Err(errors.to_string()),
        };
        assert_eq!((watched.is_ok(), applied.is_ok()), (*usable, *usable), "{name}: {watched:?} {applied:?}");
        let now = house.gw.policy.get().version().to_owned();
        if *usable {
            assert_eq!(now, from_folder, "{name}: the same rules");
        } else {
            assert_eq!(now, before, "{name}: the old rules stay");
            assert_eq!(fs::read(own.join("org.yaml")).unwrap(), good[0].1, "{name}: nothing was written");
        }
    }
}
