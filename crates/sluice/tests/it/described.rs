//! The API held against its own description, by a program that knows only the description.

use std::process::Command;

use crate::cli_gateway::CliTestGateway;

/// Set by `cargo xtask test`.
const PROGRAM: &str = "SLUICE_TEST_SCHEMATHESIS";
/// Requests for each route and each way of making them up.
const EXAMPLES: &str = "8";

#[expect(clippy::disallowed_methods, reason = "this is the edge: tests have no other configuration")]
fn program() -> Option<String> {
    let named = std::env::var(PROGRAM).ok().filter(|value| !value.is_empty());
    if named.is_none() {
        eprintln!("skipped: no schemathesis (`cargo xtask test` installs it and names it in {PROGRAM})");
    }
    named
}

/// Asks everything the description offers, with this credential.
fn ask_everything(gate: &CliTestGateway, program: &str, token: Option<&str>, which: &[&str]) {
    let mut command = Command::new(program);
    command.args(["run", &format!("{}/openapi.json", gate.url)]);
    command.args([
        "--phases",
        "examples,coverage,fuzzing",
        "--max-examples",
        EXAMPLES,
        "--seed",
        "7",
        "--workers",
        "1",
    ]);
    command.args([
        "--checks",
        "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,response_headers_conformance",
    ]);
    // One worker: with two, the tool trips over itself now and then. A stream has no end, and its answer no shape.
    command.args(["--exclude-path", "/v1/events", "--request-timeout", "20", "--no-color"]);
    command.args(which);
    if let Some(token) = token {
        command.args(["--header", &format!("Authorization: Bearer {token}")]);
    }
    let run = command.current_dir(gate.path("")).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn every_answer_is_one_the_api_description_has() {
    let Some(program) = program() else { return };
    let gate = CliTestGateway::open();
    ask_everything(&gate, &program, None, &[]);
    let agent = std::fs::read_to_string(gate.path("data/agents/assistant.key")).unwrap();
    ask_everything(&gate, &program, Some(agent.trim()), &[]);
    let operator = std::fs::read_to_string(gate.path("data/operator.token")).unwrap();
    // It finds its own key in the answers, and would rotate or revoke it before it has asked the rest.
    ask_everything(&gate, &program, Some(operator.trim()), &["--exclude-path-regex", "^/v1/keys/"]);
    ask_everything(&gate, &program, Some(operator.trim()), &["--include-path-regex", "^/v1/keys/"]);
}
