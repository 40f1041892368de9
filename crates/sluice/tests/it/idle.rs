//! Files that do nothing are said to do nothing, by every command that reads them.

use std::fs;

use serde_json::Value;

use crate::cli_gateway::CliTestGateway;
use crate::policy::TestFolder;

/// Files that count for nothing, and the name that is probably meant.
const IDLE: [(&str, &str); 4] = [
    ("policies/system.yaml", "org.yaml"),
    ("policies/agent/assistant.yaml", "agents"),
    ("policies/orgg.yaml", "org.yaml"),
    ("policies/agents/asistant.yaml", "assistant"),
];

#[test]
fn a_policy_file_that_counts_for_nothing_is_named_by_check_config_doctor_and_serve() {
    let mut gate = CliTestGateway::open();
    for (file, _) in IDLE {
        let path = gate.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "rules: []\n").unwrap();
    }
    let policies = gate.path("policies");
    let policies = policies.to_str().unwrap();
    let strict = gate.run(&["policy", "check", policies, "--strict"]);
    assert_eq!(strict.code, 1, "{}{}", strict.stdout, strict.stderr);
    let plain = gate.run(&["policy", "check", policies]);
    assert_eq!(plain.code, 0, "{}", plain.stderr);
    let checked = gate.run(&["config", "check"]);
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    gate.signal(rustix::process::Signal::TERM);
    assert_eq!(gate.ended(), 0);
    gate.restart();
    let served = fs::read_to_string(gate.bench.path("serve.err")).unwrap();
    for (file, meant) in IDLE {
        let name = file.rsplit('/').next().unwrap();
        for (who, said) in [
            ("check --strict", &strict.stderr),
            ("check", &plain.stderr),
            ("config check", &checked.stderr),
            ("serve", &served),
        ] {
            assert!(said.contains(name) && said.contains(meant), "{who} does not name {file}:\n{said}");
        }
    }
    let report: Value = serde_json::from_str(&gate.run(&["doctor", "--json"]).stdout).unwrap();
    let found = report["checks"].as_array().unwrap().iter().find(|finding| finding["check"] == "policies").unwrap();
    assert_eq!(found["state"], "warn", "{found}");
    for (file, _) in IDLE {
        fs::remove_file(gate.path(file)).unwrap();
    }
    assert_eq!(gate.run(&["policy", "check", policies, "--strict"]).code, 0, "and without them it is in order");
}

#[test]
fn serve_with_rules_that_cannot_be_used_names_file_line_and_problem_and_the_command_that_shows_more() {
    let mut gate = CliTestGateway::open();
    gate.signal(rustix::process::Signal::TERM);
    assert_eq!(gate.ended(), 0);
    let policies = gate.path("policies").display().to_string();
    let org = gate.path("policies/org.yaml");
    let text = fs::read_to_string(&org).unwrap() + "tierr: 1\n";
    fs::write(&org, &text).unwrap();
    let served = gate.run(&["serve"]);
    assert_eq!(served.code, 1, "{}", served.stderr);
    let last = served.stderr.rsplit("error: the rules cannot be used").next().unwrap();
    let place = format!("org.yaml:{}: unknown key `tierr`", text.lines().count());
    assert!(last.contains(&place), "{}", served.stderr);
    let hint = format!("sluice policy check {policies}");
    assert!(last.contains(&hint), "{}", served.stderr);
    let checked = gate.run(&["policy", "check", &policies]);
    let fault = checked.stderr.split("\n\n").next().unwrap();
    assert!(served.stderr.contains(fault), "serve prints what check prints:\n{}", served.stderr);
}

#[test]
fn settings_that_can_do_nothing_or_too_much_are_refused_with_the_nearest_name() {
    for (lines, parts) in [
        ("services: {connections: {slack: {}}}\n", &["slack", "adapter"][..]),
        ("services: {connections: {gmial: {}}}\n", &["gmial", "did you mean `adapter: gmail`"]),
        ("services: {connections: {work: {adapter: gmal}}}\n", &["gmal", "gmail"]),
        ("egress: {connections: {x: {hosts: [a.example], allow_addresses: [0.0.0.0/0]}}}\n", &["0.0.0.0/0"]),
        (
            "egress: {connections: {x: {hosts: [a.example], allow_addresses: [169.254.169.254]}}}\n",
            &["169.254.169.254", "credentials"],
        ),
        ("egress: {connections: {x: {hosts: [a.example], allow_addresses: [169.254.0.0/16]}}}\n", &["169.254"]),
        ("egress: {connections: {x: {hosts: [a.example], allow_addresses: [\"::/0\"]}}}\n", &["::/0"]),
        (
            "egress: {connections: {x: {hosts: [a.example], allow_addresses: [\"fd00:ec2::254\"]}}}\n",
            &["fd00:ec2::254"],
        ),
    ] {
        let bench = TestFolder::new();
        bench.file("sluice.yaml", lines);
        for command in [&["config", "check"][..], &["serve"]] {
            let run = bench.run(command);
            assert_eq!(run.code, 1, "{lines}{command:?}: {}{}", run.stdout, run.stderr);
            assert!(parts.iter().all(|part| run.stderr.contains(part)), "{lines}{}", run.stderr);
        }
        let report: Value = serde_json::from_str(&bench.run(&["doctor", "--json"]).stdout).unwrap();
        let config = report["checks"].as_array().unwrap().iter().find(|finding| finding["check"] == "config").unwrap();
        assert_eq!(config["state"], "fail", "{lines}{config}");
    }
    let bench = TestFolder::new();
    bench.file(
        "sluice.yaml",
        "services: {connections: {gmail: {}, work: {adapter: gmail}}}\n\
         egress: {connections: {x: {hosts: [a.example], allow_addresses: [127.0.0.1, 10.0.0.0/8, 100.64.0.0/10]}}}\n",
    );
    let run = bench.run(&["config", "check"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
}

#[test]
fn the_doctor_opens_the_database_reads_token_files_and_tries_channels() {
    let bench = TestFolder::new();
    let run = bench.run(&["init", "--dir", "gate", "--yes"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let written = fs::read_to_string(bench.path("gate/sluice.yaml")).unwrap();
    let doctor = |lines: &str| -> Value {
        fs::write(bench.path("gate/sluice.yaml"), format!("{written}\n{lines}")).unwrap();
        serde_json::from_str(&bench.run(&["doctor", "--config", "gate/sluice.yaml", "--json"]).stdout).unwrap()
    };
    let of = |report: &Value, check: &str| -> Vec<(String, String)> {
        let all = report["checks"].as_array().unwrap().iter().filter(|finding| finding["check"] == check);
        all.map(|finding| {
            (finding["state"].as_str().unwrap().to_owned(), finding["message"].as_str().unwrap().to_owned())
        })
        .collect()
    };
    let report = doctor("");
    assert_eq!(of(&report, "tokens")[0].0, "ok", "{report}");
    assert_eq!(of(&report, "channels")[0].0, "warn", "nobody can be asked: {report}");

    // A bot that nobody answers for, with a token that is not there.
    let [dead, _] = crate::cli_gateway::free_ports();
    let bot = |file: &str| format!("telegram: {{token_file: {file}, api: \"http://127.0.0.1:{dead}\"}}\n");
    let report = doctor(&bot("missing.token"));
    assert!(
        of(&report, "tokens").iter().any(|(state, why)| state == "fail" && why.contains("missing.token")),
        "{report}"
    );
    let secret = format!("12345:{}", "QUILLFEATHER".repeat(3));
    fs::write(bench.path("gate/bot.token"), &secret).unwrap();
    let report = doctor(&bot("bot.token"));
    let (state, why) = of(&report, "channels").remove(0);
    assert!(state == "fail" && why.contains("telegram"), "{report}");
    assert!(
        of(&report, "tokens").iter().any(|(state, why)| state == "fail" && why.contains("mode")),
        "others can read it: {report}"
    );
    assert!(!report.to_string().contains("QUILLFEATHER"), "{report}");
    let mail =
        format!("email: {{smtp_host: 127.0.0.1, smtp_port: {dead}, smtp_security: off, from: gate@example.test}}\n");
    let (state, why) = of(&doctor(&mail), "channels").remove(0);
    assert!(state == "fail" && why.contains("email"), "{why}");

    // A page in the middle of the file is torn.
    let path = bench.path("gate/data/sluice.db");
    let mut bytes = fs::read(&path).unwrap();
    assert_eq!(of(&doctor(""), "database")[0].0, "ok");
    for page in bytes.chunks_mut(4096).skip(2).take(6) {
        page[..64].fill(0xa5);
    }
    fs::write(&path, &bytes).unwrap();
    let (state, why) = of(&doctor(""), "database").remove(0);
    assert!(state == "fail", "{why}");
}
