//! Declared programs: valid, flawed and hostile ones.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const DEPLOY: &str = r#"
summary: Deploys a release.
effect: write
class: findable
arguments:
  service: {type: text, required: true, max: 60}
  version: {type: text, required: true, max: 40}
  note: {type: text, max: 200}
  replicas: {type: integer, required: true, max: 20}
  regions: {type: texts}
keep: {release: /id}
program:
  command: [/opt/deploy/bin/deploy, release, "--service={service}", "--note={note}", "v{version}", "{replicas}", "--", "{service}", "x-{version}"]
  input: {regions: "{regions}", key: "{call.key}"}
  folder: /srv/deploy/now
  reads: [/opt/deploy]
  writes: [/srv/deploy]
  files: [/opt/deploy/deploy.conf]
  network: [deploy.example.com]
  environment: {MODE: live, DEPLOY_TOKEN: "secret:deploy/token", CALL: "{call.key}"}
  limits: {timeout_seconds: 20, memory_mb: 256, answer_kb: 64}
  answer: {type: object, required: [id]}
  exit_codes: {done: [0], not_applied: [75], refused: [2, 64]}
  lookup: {command: [/opt/deploy/bin/deploy, find, "{call.key}"]}
  rollback: {command: [/opt/deploy/bin/deploy, withdraw, "{answer.release}"], repeatable: true}
"#;

fn declared(text: &str) -> CustomCapability {
    CustomCapability::from_yaml(text).unwrap()
}

fn map(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { panic!() };
    map
}

fn said() -> Map<String, Value> {
    map(json!({"service": "web shop", "version": "1.2", "replicas": 3}))
}

fn key() -> TemplateContext<'static> {
    TemplateContext { key: Some("buf_1"), ..TemplateContext::default() }
}

#[test]
fn a_command_line_is_what_the_file_says_with_its_places_filled() {
    let deploy = declared(DEPLOY);
    assert_eq!(deploy.check("deploy"), []);
    let own = deploy.program().unwrap();
    let line = deploy.fill_command(&own.template(), &said(), &key()).unwrap();
    assert_eq!(line.program, "/opt/deploy/bin/deploy");
    assert_eq!(line.arguments, ["release", "--service=web shop", "v1.2", "3", "--", "web shop", "x-1.2"]);
    assert_eq!(line.input, br#"{"key":"buf_1"}"#);
    let mut more = said();
    more.extend(map(json!({"note": "-q; rm -rf / $(x)", "regions": ["eu", "--all"]})));
    let line = deploy.fill_command(&own.template(), &more, &key()).unwrap();
    assert_eq!(line.arguments[2], "--note=-q; rm -rf / $(x)");
    assert_eq!(line.input, br#"{"key":"buf_1","regions":["eu","--all"]}"#);
    let back = own.rollback.as_ref().unwrap().template();
    let kept = deploy.extract_kept_values(&json!({"id": "r-17"}));
    let line = deploy.fill_command(&back, &said(), &TemplateContext { key: None, kept }).unwrap();
    assert_eq!(line.arguments, ["withdraw", "r-17"]);
    assert!(deploy.fill_command(&back, &said(), &key()).is_err(), "what was not kept is missing");
    let kept = deploy.extract_kept_values(&json!({"id": "--all"}));
    let no = deploy.fill_command(&back, &said(), &TemplateContext { key: None, kept }).unwrap_err();
    assert_eq!(no, CommandTemplateError::Option("answer.release".into()), "an answer begins no option either");
}

#[test]
fn everything_that_runs_belongs_to_what_is_approved() {
    let text = DEPLOY.replace("command: [/opt/deploy/bin/deploy, find", "command: [/bin/sh, /opt/deploy/find.sh");
    let deploy = declared(&text);
    assert_eq!(deploy.check("deploy"), []);
    let files = deploy.program().unwrap().bound_files();
    assert_eq!(files, ["/opt/deploy/bin/deploy", "/bin/sh", "/opt/deploy/find.sh", "/opt/deploy/deploy.conf"]);
}

#[test]
fn values_that_would_be_options_or_nothing_are_refused_where_they_would_be_read_so() {
    let deploy = declared(DEPLOY);
    let template = deploy.program().unwrap().template();
    let of = |service: &str, version: &str| {
        let mut said = said();
        said.insert("service".into(), service.into());
        said.insert("version".into(), version.into());
        deploy.fill_command(&template, &said, &key())
    };
    assert!(of("--all", "1").is_ok(), "after `=` and after `--` it is a value");
    assert_eq!(of("a", "-1").unwrap_err(), CommandTemplateError::Option("version".into()));
    assert_eq!(
        of("", "1").unwrap_err(),
        CommandTemplateError::Unusable("service".into()),
        "an item of its own is not empty"
    );
    assert_eq!(of("a\0b", "1").unwrap_err(), CommandTemplateError::Unusable("service".into()));
    assert_eq!(of("a", "x".repeat(41).as_str()).unwrap_err(), FillError::Shape("version".into()).into());
    let mut negative = said();
    negative.insert("replicas".into(), json!(-1));
    assert!(deploy.fill_command(&template, &negative, &key()).is_err());
}

#[test]
fn all_arguments_are_one_object_on_standard_input() {
    let text = DEPLOY.replace("input: {regions: \"{regions}\", key: \"{call.key}\"}", "input: json");
    let deploy = declared(&text);
    assert_eq!(deploy.check("deploy"), []);
    let line = deploy.fill_command(&deploy.program().unwrap().template(), &said(), &key()).unwrap();
    let read: Value = serde_json::from_slice(&line.input).unwrap();
    assert_eq!(read, Value::Object(said()));
}

/// One change of the example, and the code of the flaw that it must cause.
#[test]
fn every_flaw_of_a_program_is_found() {
    let command = "[/opt/deploy/bin/deploy, release,";
    for (from, to, code) in [
        (command, "[deploy, release,", "custom.command"),
        (command, "[/opt/../bin/deploy, release,", "custom.command"),
        (command, "[\"/opt/{service}\", release,", "custom.command"),
        (command, "[/usr/bin/env, release,", "custom.shell"),
        (command, "[/usr/bin/sudo, release,", "custom.shell"),
        (command, "[/bin/sh, -c, \"deploy {service}\",", "custom.shell"),
        (command, "[/bin/bash, \"-cdeploy {service}\",", "custom.shell"),
        (command, "[/bin/bash, \"{service}\",", "custom.shell"),
        (command, "[/usr/bin/python3.12, -c, x, \"{service}\",", ""),
        (command, "[/usr/bin/python3.12, -c, \"{service}\",", "custom.shell"),
        (command, "[/opt/venv/bin/python, -m, \"{service}\",", "custom.shell"),
        (command, "[/opt/deploy/bin/deploy, \"-n{service}\",", "custom.command"),
        (command, "[/opt/deploy/bin/deploy, \"{note}\",", "custom.command"),
        (command, "[/opt/deploy/bin/deploy, \"{regions}\",", "custom.command"),
        (command, "[/opt/deploy/bin/deploy, \"{ service }\",", "custom.command"),
        (command, "[/opt/deploy/bin/deploy, \"{host}\",", "custom.unknown_argument"),
        (command, "[/opt/deploy/bin/deploy, \"{answer.release}\",", "custom.unknown_argument"),
        ("\"--note={note}\", ", "", "custom.unused_argument"),
        ("input: {regions: \"{regions}\", key: \"{call.key}\"}", "input: text", "custom.input"),
        ("folder: /srv/deploy/now", "folder: /srv/deployed", "custom.folder"),
        ("folder: /srv/deploy/now", "folder: /srv/deploy/../x", "custom.folder"),
        ("reads: [/opt/deploy]", "reads: [opt]", "custom.folder"),
        ("writes: [/srv/deploy]", "writes: [/opt/deploy, /srv/deploy]", "custom.changeable"),
        ("network: [deploy.example.com]", "network: [\"https://deploy.example.com/\"]", "custom.network"),
        ("network: [deploy.example.com]", "allow_addresses: [10.0.0.0/8]", "custom.network"),
        ("MODE: live", "MODE: \"{service}\"", "custom.environment"),
        ("MODE: live", "1MODE: live", "custom.environment"),
        ("MODE: live", "API_TOKEN: live", "custom.secret"),
        ("secret:deploy/token", "secret:De ploy", "custom.environment"),
        ("timeout_seconds: 20", "timeout_seconds: 60", "custom.limits"),
        ("memory_mb: 256", "memory_mb: 1", "custom.limits"),
        ("answer_kb: 64", "answer_kb: 0", "custom.limits"),
        ("done: [0]", "done: [0, 75]", "custom.exit_codes"),
        ("done: [0]", "done: []", "custom.exit_codes"),
        ("answer: {type: object, required: [id]}", "files: []", "custom.keep"),
        ("class: findable", "class: consume_once", ""),
        ("effect: write\nclass: findable", "effect: read", "custom.effect"),
        (", repeatable: true}", "}", ""),
    ] {
        let mut text = DEPLOY.replacen(from, to, 1);
        assert_ne!(text, DEPLOY, "{from}");
        if to == "files: []" {
            text = text.replace("  files: [/opt/deploy/deploy.conf]\n", "");
        }
        let flaws = declared(&text).check("deploy");
        if code.is_empty() {
            assert_eq!(flaws, [], "{from} -> {to}");
        } else {
            assert!(flaws.iter().any(|flaw| flaw.code == code), "{from} -> {to}: {flaws:?}");
        }
    }
    // Without the key anywhere, nothing recognises a second run.
    let keyless = DEPLOY.replace(", key: \"{call.key}\"", "").replace(", CALL: \"{call.key}\"", "");
    assert_eq!(declared(&keyless).check("deploy"), []);
    for (from, to, code) in
        [("class: findable", "class: consume_once", "custom.class"), (", repeatable: true}", "}", "custom.rollback")]
    {
        let flaws = declared(&keyless.replace(from, to)).check("deploy");
        assert!(flaws.iter().any(|flaw| flaw.code == code), "{from}: {flaws:?}");
    }
    let lost = DEPLOY.replace("  lookup: {command: [/opt/deploy/bin/deploy, find, \"{call.key}\"]}\n", "");
    assert!(declared(&lost).check("deploy").iter().any(|flaw| flaw.code == "custom.class"));
}

#[test]
fn a_file_declares_a_request_or_a_program_and_never_both() {
    for more in
        ["base_url: https://x.example\n", "request: {path: /x}\n", "credential: {secret: a/b}\n", "limits: {}\n"]
    {
        let why = CustomCapability::from_yaml(&format!("{DEPLOY}{more}")).unwrap_err().to_string();
        assert!(why.contains("belongs to a request"), "{more}: {why}");
    }
    let why = CustomCapability::from_yaml("summary: x\neffect: read\n").unwrap_err().to_string();
    assert!(why.contains("`program`"), "{why}");
    let why = CustomCapability::from_yaml(&DEPLOY.replace("  folder:", "  directory:")).unwrap_err().to_string();
    assert!(why.contains("directory") && why.contains("line"), "{why}");
}

#[test]
fn a_secret_in_the_environment_is_allowed_and_warned_about() {
    let deploy = declared(DEPLOY);
    let warnings = deploy.warnings();
    assert_eq!(warnings.iter().map(|flaw| flaw.code).collect::<Vec<_>>(), ["custom.secret_given"], "{warnings:?}");
    assert!(warnings[0].text.contains("deploy/token"));
    assert_eq!(deploy.program().unwrap().secrets().len(), 1);
    assert_eq!(declared(&DEPLOY.replace(", DEPLOY_TOKEN: \"secret:deploy/token\"", "")).warnings(), []);
}

#[test]
fn an_exit_code_proves_what_the_file_says_and_nothing_else() {
    let codes = declared(DEPLOY).program().unwrap().exit_codes.clone();
    for code in -1..=300 {
        let meaning = match code {
            0 => ExitMeaning::Done,
            75 => ExitMeaning::NotApplied,
            2 | 64 => ExitMeaning::Refused,
            _ => ExitMeaning::Unclear,
        };
        assert_eq!(codes.meaning_of(code), meaning, "{code}");
    }
}

/// Every value that a command line is given, and the items that the file declares around it.
fn keeps_its_structure(arguments: &[String], with_note: bool) -> bool {
    let mut declared = vec![
        ("release", false),
        ("--service=", true),
        ("v", true),
        ("", true),
        ("--", false),
        ("", true),
        ("x-", true),
    ];
    if with_note {
        declared.insert(2, ("--note=", true));
    }
    let end = declared.iter().position(|(item, _)| *item == "--").unwrap_or_default();
    arguments.len() == declared.len()
        && arguments.iter().zip(&declared).enumerate().all(|(n, (item, (written, filled)))| {
            let fits = if *filled { item.starts_with(written) } else { item == written };
            let is_option = item.starts_with('-') && n < end;
            fits && !item.contains('\0') && !item.is_empty() && (!is_option || written.starts_with('-'))
        })
}

fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,40}",
        "[-=/ '\"$`;|&<>\\\\\n\t{}*?~!#()]{0,12}",
        "-{1,3}[a-z]{0,6}(=[a-z]{0,3})?",
        Just("--".to_owned()),
        Just("{call.key}".to_owned()),
        Just("{service}".to_owned()),
    ]
}

proptest! {
    /// No argument value changes the program, adds an item or an option, or leaves its place.
    #[test]
    fn no_argument_value_changes_the_structure_of_a_command_line(
        service in hostile(), version in hostile(), note in proptest::option::of(hostile()), replicas in 0_u64..=20,
    ) {
        let deploy = declared(DEPLOY);
        let template = deploy.program().unwrap().template();
        let mut said = map(json!({"service": service, "version": version, "replicas": replicas}));
        if let Some(note) = &note {
            said.insert("note".into(), json!(note));
        }
        if let Ok(line) = deploy.fill_command(&template, &said, &key()) {
            prop_assert_eq!(&line.program, "/opt/deploy/bin/deploy");
            prop_assert!(keeps_its_structure(&line.arguments, note.is_some()), "{:?}", line.arguments);
            // Each argument stands there in full and is not interpreted.
            prop_assert_eq!(&line.arguments[1], &format!("--service={service}"));
            prop_assert_eq!(line.arguments.last().unwrap(), &format!("x-{version}"));
            prop_assert_eq!(line.input, br#"{"key":"buf_1"}"#);
        }
    }

    /// A list goes to standard input as JSON, whatever is in it.
    #[test]
    fn what_is_read_is_the_declared_json(regions in proptest::collection::vec(hostile(), 0..4)) {
        let deploy = declared(DEPLOY);
        let mut said = said();
        said.insert("regions".into(), json!(regions));
        let line = deploy.fill_command(&deploy.program().unwrap().template(), &said, &key()).unwrap();
        let read: Value = serde_json::from_slice(&line.input).unwrap();
        prop_assert_eq!(read, json!({"regions": regions, "key": "buf_1"}));
        prop_assert_eq!(line.arguments.len(), 7);
    }
}
