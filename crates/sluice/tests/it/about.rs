//! The program about itself.

use crate::policy::TestFolder;

#[test]
fn the_version_prints_for_people_and_machines() {
    let bench = TestFolder::new();
    let run = bench.run(&["version"]);
    let about = concat!("sluice ", env!("CARGO_PKG_VERSION"), " (development build");
    assert!(run.code == 0 && run.stdout.starts_with(about) && run.stdout.ends_with(")\n"), "{}", run.stdout);
    let json: serde_json::Value = serde_json::from_str(&bench.run(&["version", "--json"]).stdout).unwrap();
    assert_eq!(
        (json["version"].as_str(), json["build"].as_str()),
        (Some(env!("CARGO_PKG_VERSION")), Some("development"))
    );
    assert!(json["target"].as_str().is_some_and(|target| target.contains('-')), "{json}");
}

#[test]
fn a_mistyped_command_is_a_usage_error_that_names_the_right_one() {
    let run = TestFolder::new().run(&["polcy"]);
    assert_eq!(run.code, 2);
    assert!(run.stdout.is_empty() && run.stderr.contains("policy"), "{}", run.stderr);
}

#[test]
fn completions_and_manual_pages_are_generated() {
    let bench = TestFolder::new();
    assert!(bench.run(&["completions", "bash"]).stdout.contains("sluice"));
    assert!(bench.run(&["man"]).stdout.contains(".TH sluice"));
    let run = bench.run(&["man", "--dir", "man"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(bench.path("man/sluice-policy-explain.1").exists());
}

#[test]
fn help_knows_commands_and_pages_and_says_so_when_it_knows_nothing() {
    let bench = TestFolder::new();
    let holds = bench.run(&["help", "holds", "cancel"]);
    assert_eq!((holds.code, holds.stdout.contains("sluice holds cancel")), (0, true), "{}", holds.stdout);
    assert!(bench.run(&["help", "errors"]).stdout.starts_with("# "));
    assert!(bench.run(&["help"]).stdout.contains("ways-out"));
    let none = bench.run(&["help", "weather"]);
    assert_eq!(none.code, 3);
    assert!(none.stderr.contains("list all commands and pages: sluice help"), "{}", none.stderr);
}
