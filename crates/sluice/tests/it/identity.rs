//! Which credential a command uses: one of its own kind, or none.

use std::fs;

use serde_json::{Value, json};

use crate::cli_gateway::CliTestGateway;

/// What a command does under some variables.
struct IdentityCase {
    variables: &'static [(&'static str, &'static str)],
    /// Exit code and part of the reason of an operator's command; none if it works.
    operator: Option<&'static str>,
    /// The same for an agent's command.
    agent: Option<&'static str>,
}

const AGENT_FILE: &str = "data/agents/assistant.key";
const TASK_FILE: &str = "data/agents/assistant.task";
const TOKEN_FILE: &str = "data/operator.token";
const NOT_USED: &str = "so the operator token in the data folder is not used";
const NO_KEY: &str = "no agent key found";

/// Values that begin with `text:` stand for what the file holds.
const CASES: [IdentityCase; 12] = [
    IdentityCase { variables: &[], operator: None, agent: Some(NO_KEY) },
    IdentityCase { variables: &[("SLUICE_AGENT_KEY", "")], operator: None, agent: Some(NO_KEY) },
    IdentityCase { variables: &[("SLUICE_AGENT_KEY_FILE", AGENT_FILE)], operator: Some(NOT_USED), agent: None },
    IdentityCase {
        variables: &[("SLUICE_AGENT_KEY", "text:data/agents/assistant.key")],
        operator: Some(NOT_USED),
        agent: None,
    },
    IdentityCase { variables: &[("SLUICE_AGENT_KEY", "rubbish")], operator: Some(NOT_USED), agent: Some("credential") },
    IdentityCase {
        variables: &[("SLUICE_AGENT_KEY_FILE", "data/none")],
        operator: Some(NOT_USED),
        agent: Some("cannot read"),
    },
    IdentityCase { variables: &[("SLUICE_TASK_KEY_FILE", TASK_FILE)], operator: Some(NOT_USED), agent: Some(NO_KEY) },
    IdentityCase { variables: &[("SLUICE_TOKEN_FILE", TOKEN_FILE)], operator: None, agent: Some(NO_KEY) },
    IdentityCase {
        variables: &[("SLUICE_AGENT_KEY_FILE", AGENT_FILE), ("SLUICE_TOKEN_FILE", TOKEN_FILE)],
        operator: None,
        agent: None,
    },
    IdentityCase {
        variables: &[("SLUICE_TOKEN_FILE", AGENT_FILE)],
        operator: Some("`SLUICE_TOKEN_FILE` holds an agent key, not an operator token"),
        agent: Some(NO_KEY),
    },
    IdentityCase {
        variables: &[("SLUICE_AGENT_KEY_FILE", TOKEN_FILE)],
        operator: Some(NOT_USED),
        agent: Some("`SLUICE_AGENT_KEY_FILE` holds an operator token, not an agent key"),
    },
    IdentityCase {
        variables: &[("SLUICE_AGENT_KEY_FILE", TASK_FILE), ("SLUICE_TOKEN", "text:data/agents/assistant.task")],
        operator: Some("`SLUICE_TOKEN` holds a task key, not an operator token"),
        agent: Some("`SLUICE_AGENT_KEY_FILE` holds a task key, not an agent key"),
    },
];

#[test]
fn no_command_falls_back_to_a_credential_of_another_kind() {
    let gate = CliTestGateway::open();
    fs::write(gate.workspace("a.txt"), "x").unwrap();
    let call = gate.pending("filesystem.delete", &json!({"path": gate.workspace("a.txt")}));
    let approval = call["approval_id"].as_str().unwrap();
    for (n, case) in CASES.iter().enumerate() {
        let values: Vec<(&str, String)> = case
            .variables
            .iter()
            .map(|(name, value)| {
                let value = match value.strip_prefix("text:") {
                    Some(file) => fs::read_to_string(gate.path(file)).unwrap().trim().to_owned(),
                    None if value.starts_with("data/") => gate.path(value).display().to_string(),
                    None => (*value).to_owned(),
                };
                (*name, value)
            })
            .collect();
        let variables: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
        for further in [&[][..], &["--url", &gate.url]] {
            let run = |arguments: &[&str]| gate.run_as(&[arguments, further].concat(), &variables);
            for (run, expected) in [
                (run(&["approvals", "list"]), case.operator),
                (run(&["status"]), case.operator),
                (run(&["call", "agent.whoami"]), case.agent),
            ] {
                match expected {
                    None => assert_eq!(run.code, 0, "{n} {further:?}: {}", run.stderr),
                    Some(part) => {
                        assert!(run.code != 0 && run.stderr.contains(part), "{n} {further:?}: {}", run.stderr)
                    }
                }
            }
            if case.operator.is_some() {
                let run = run(&["approvals", "approve", approval]);
                assert_eq!(run.code, 4, "{n}: {}", run.stderr);
            }
        }
    }
    let state = gate.json(&["approvals", "show", approval])["status"].clone();
    assert_eq!(state, "pending", "nobody approved it");
}

#[test]
fn the_doctor_warns_while_one_user_can_read_the_keys_of_both_sides() {
    let gate = CliTestGateway::open();
    let warned = || {
        let report: Value = serde_json::from_str(&gate.run(&["doctor", "--json"]).stdout).unwrap();
        let checks = report["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|finding| finding["check"] == "credentials")
    };
    let finding = warned().expect("a warning");
    assert_eq!(finding["state"], "warn", "{finding}");
    let message = finding["message"].as_str().unwrap();
    assert!(message.contains("assistant.key") && message.contains("operator.token"), "{message}");
    fs::remove_file(gate.path(AGENT_FILE)).unwrap();
    assert_eq!(warned(), None, "the agent's key is elsewhere");
}
