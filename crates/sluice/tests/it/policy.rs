//! `sluice policy`, end to end: what it prints where, and how it ends.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// A directory of its own to run commands in.
pub struct TestFolder(tempfile::TempDir);

/// How a command went.
#[derive(Debug)]
pub struct SluiceRunOutput {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl TestFolder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub fn run(&self, arguments: &[&str]) -> SluiceRunOutput {
        self.run_with(arguments, "", &[])
    }

    pub fn run_with(&self, arguments: &[&str], stdin: &str, environment: &[(&str, &str)]) -> SluiceRunOutput {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(arguments)
            .current_dir(self.0.path())
            .env_clear()
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that does not read its input may be gone before it is written.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        let output = child.wait_with_output().unwrap();
        SluiceRunOutput {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// With a small policy in place.
    fn with_policy() -> Self {
        let bench = Self::new();
        bench
            .file("policies/org.yaml", "defaults:\n  tier: notify\noverrides:\n  - capability: email.send\n    tier: approval_required\n    reason: mail is read first\n")
            .file("policies/agents/clerk.yaml", "rules:\n  - {capability: \"email.*\", tier: autonomous}\n");
        bench
    }
}

#[test]
fn a_good_policy_checks_with_one_line_on_stdout() {
    let run = TestFolder::with_policy().run(&["policy", "check"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.stdout, "policies is valid: 2 rules, 1 agent file, 0 tests passed\n");
    assert!(run.stderr.starts_with("version sha256:"));
}

#[test]
fn every_problem_is_shown_with_its_place_and_fails() {
    let bench = TestFolder::with_policy();
    bench
        .file("policies/org.yaml", "defaults:\n  teir: notify\n")
        .file("policies/agents/clerk.yaml", "rules:\n  - {capability: email.send, tier: never}\n")
        .file("policies/agents/bad.yaml", b"rules: \xff\n")
        .file("policies/agents/old.yml", "rules: []\n")
        .file("policies/agents/.hidden.yaml", "rules: []\n")
        .file("policies/agents/big.yaml", vec![b'#'; (1 << 20) + 1]);
    let run = bench.run(&["policy", "check"]);
    assert_eq!(run.code, 1);
    assert!(run.stdout.is_empty(), "{}", run.stdout);
    for part in [
        "error: unknown key `teir` [policy.unknown_key]\n  --> policies/org.yaml:2:3\n   |\n 2 |   teir: notify\n   |   ^^^^\n",
        "did you mean `tier`?",
        "policies/agents/clerk.yaml:2:",
        "[policy.tier]",
        "[policy.not_utf8]\n  --> policies/agents/bad.yaml",
        "[policy.file_name]\n  --> policies/agents/old.yml",
        "[policy.agent_name]\n  --> policies/agents/.hidden.yaml",
        "[policy.too_large]\n  --> policies/agents/big.yaml",
        "error: 6 errors in `policies`\n",
    ] {
        assert!(run.stderr.contains(part), "{part}\n---\n{}", run.stderr);
    }
    let run = bench.run(&["policy", "check", "--json"]);
    assert_eq!(run.code, 1);
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(json["ok"], false);
    assert_eq!(json["faults"].as_array().unwrap().len(), 6);
    assert!(json["faults"].as_array().unwrap().iter().any(|f| f["code"] == "policy.unknown_key" && f["line"] == 2));
}

#[test]
fn a_missing_directory_is_not_found() {
    let run = TestFolder::new().run(&["policy", "check"]);
    assert_eq!(run.code, 3);
    assert!(
        run.stderr.starts_with("error: cannot read policies at `policies`\n  why:  no such file"),
        "{}",
        run.stderr
    );
    let bench = TestFolder::new();
    fs::create_dir(bench.path("policies")).unwrap();
    assert_eq!(bench.run(&["policy", "check"]).code, 3);
}

#[test]
fn warnings_pass_unless_they_must_not() {
    let bench = TestFolder::new();
    bench.file("policies/org.yaml", "overrides: [{capability: weather.look, tier: notify}]\n");
    let run = bench.run(&["policy", "check"]);
    assert_eq!(run.code, 0);
    assert!(run.stderr.contains("warning: no capability known here matches `weather.look`"));
    assert_eq!(bench.run(&["policy", "check", "--strict"]).code, 1);
}

#[test]
fn explain_names_the_line_that_decided() {
    let bench = TestFolder::with_policy();
    let arguments = ["policy", "explain", "--agent", "clerk", "--capability", "email.send", "--input"];
    let run = bench.run(&[&arguments[..], &["{\"to\":\"a@b.c\"}"]].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.starts_with("email.send for clerk: approval_required\n"), "{}", run.stdout);
    assert!(run.stdout.ends_with("verdict: approval_required (policies/org.yaml:4)\n"), "{}", run.stdout);
    assert!(run.stderr.is_empty(), "{}", run.stderr);

    let run = bench.run_with(&[&arguments[..], &["-", "--json"]].concat(), "{\"to\":\"a@b.c\"}", &[]);
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(json["tier"], "approval_required");
    assert_eq!(json["decided_by"], "policies/org.yaml:4");
    assert_eq!(json["reason"], "mail is read first");
    assert_eq!(json["layers"][0]["rules"][0]["state"], "matched");

    let run = bench.run(&[&arguments[..], &["{\"to\":1,\"to\":2}"]].concat());
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("the key `to` appears twice"), "{}", run.stderr);
    let run = bench.run(&[&arguments[..], &["{}"]].concat());
    assert!(
        run.stderr.contains("note: the gateway would refuse this call before it checks the policy"),
        "{}",
        run.stderr
    );
}

#[test]
fn failing_tests_fail_the_command_and_the_check() {
    let bench = TestFolder::with_policy();
    bench.file(
        "policies/agents/clerk.yaml",
        "rules: [{capability: email.read, tier: autonomous}]\ntests:\n  - {given: {capability: email.read}, expect: {tier: autonomous}}\n  - {given: {capability: email.send}, expect: {tier: autonomous}}\n",
    );
    let run = bench.run(&["policy", "test"]);
    assert_eq!(run.code, 1);
    assert!(
        run.stderr.contains("a test fails: email.send for clerk is approval_required, not autonomous"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("--> policies/agents/clerk.yaml:4:5"), "{}", run.stderr);
    assert_eq!(bench.run(&["policy", "check"]).code, 1);
    let json: Value = serde_json::from_str(&bench.run(&["policy", "test", "--json"]).stdout).unwrap();
    assert_eq!((json["ok"].as_bool(), json["failed"].as_u64()), (Some(false), Some(1)));
}

#[test]
fn fmt_rewrites_in_place_once() {
    let bench = TestFolder::with_policy();
    let messy = "rules:\n- {capability: 'email.*',   tier: autonomous} # all mail\n";
    bench.file("policies/agents/clerk.yaml", messy);
    let run = bench.run(&["policy", "fmt", "--check"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, "policies/agents/clerk.yaml\n"));
    assert_eq!(fs::read_to_string(bench.path("policies/agents/clerk.yaml")).unwrap(), messy);
    assert_eq!(bench.run(&["policy", "fmt"]).code, 0);
    let tidy = "rules:\n  - {capability: \"email.*\", tier: autonomous} # all mail\n";
    assert_eq!(fs::read_to_string(bench.path("policies/agents/clerk.yaml")).unwrap(), tidy);
    let run = bench.run(&["policy", "fmt", "--check"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""));
    // A file with errors is left alone.
    bench.file("policies/agents/clerk.yaml", "rules:\n- {capability: x,   colour: red}\n");
    assert_eq!(bench.run(&["policy", "fmt"]).code, 1);
    assert!(fs::read_to_string(bench.path("policies/agents/clerk.yaml")).unwrap().contains("   colour"));
}

#[test]
fn diff_shows_what_gets_looser() {
    let bench = TestFolder::with_policy();
    bench.file("new/org.yaml", "defaults:\n  tier: notify\noverrides:\n  - {capability: email.send, tier: notify}\n");
    let run = bench.run(&["policy", "diff", "policies", "new"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stdout.contains("looser     any other agent  email.send: approval_required -> notify\n"),
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("stricter   clerk  email.read: autonomous -> notify\n"), "{}", run.stdout);
    assert_eq!(bench.run(&["policy", "diff", "policies", "new", "--deny-looser"]).code, 1);
    let run = bench.run(&["policy", "diff", "policies", "policies"]);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "", "no differences in behaviour\n"));
}

#[test]
fn every_template_can_be_written_and_is_in_order() {
    let bench = TestFolder::new();
    for name in ["personal", "team", "strict"] {
        assert!(bench.run(&["policy", "templates"]).stdout.contains(name));
        let run = bench.run(&["policy", "templates", name, "--out", name]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let check = bench.run(&["policy", "check", name, "--strict"]);
        assert_eq!(check.code, 0, "{}", check.stderr);
        assert_eq!(bench.run(&["policy", "fmt", "--check", name]).code, 0);
        assert_eq!(bench.run(&["policy", "templates", name, "--out", name]).code, 7, "nothing is overwritten");
    }
    assert_eq!(bench.run(&["policy", "templates", "loose", "--out", "x"]).code, 3);
}

#[test]
fn colour_comes_only_when_asked_for() {
    let bench = TestFolder::new();
    let plain = bench.run(&["policy", "check"]);
    assert!(!plain.stderr.contains('\u{1b}'));
    let forced = bench.run(&["--color", "always", "policy", "check"]);
    assert!(forced.stderr.contains('\u{1b}'));
    let never = bench.run_with(&["--color", "never", "policy", "check"], "", &[("CLICOLOR_FORCE", "1")]);
    assert!(!never.stderr.contains('\u{1b}'));
    let no = bench.run_with(&["policy", "check"], "", &[("NO_COLOR", "1"), ("TERM", "xterm-256color")]);
    assert!(!no.stderr.contains('\u{1b}'));
}

#[test]
fn the_schema_is_json() {
    let schema: Value = serde_json::from_str(&TestFolder::new().run(&["policy", "schema"]).stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
}
