//! Declarations: valid, flawed and hostile ones.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::request::TemplateContext;
use super::*;

const DEPLOY: &str = r#"
summary: Deploys a release.
effect: write
class: findable
hold_seconds: 60
base_url: https://deploy.example.com/v1
credential: {secret: deploy/token}
arguments:
  service: {type: text, required: true, max: 60}
  version: {type: text, required: true, max: 40}
  note: {type: text, max: 200}
  replicas: {type: integer, max: 20}
  regions: {type: texts}
request:
  method: POST
  path: /services/{service}/releases
  query: {trace: "{call.key}", note: "{note}"}
  headers: {accept: application/json}
  body: {version: "{version}", replicas: "{replicas}", regions: "{regions}", title: "release {version}"}
keep: {release: /id}
lookup: {path: "/services/{service}/releases", query: {key: "{call.key}"}, applied: /items/0/id}
rollback: {method: DELETE, path: "/services/{service}/releases/{answer.release}"}
"#;

fn deploy() -> CustomCapability {
    CustomCapability::from_yaml(DEPLOY).unwrap()
}

fn request(declared: &CustomCapability) -> &DeclaredRequest {
    declared.request().unwrap()
}

fn first(declared: &CustomCapability) -> (&DeclaredRequest, &RequestTemplate) {
    (request(declared), &request(declared).request)
}

fn map(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { panic!() };
    map
}

#[test]
fn the_example_is_whole_and_becomes_a_capability_that_is_asked_about() {
    let declared = deploy();
    assert_eq!(declared.check("deploy"), []);
    let spec = declared.capability("deploy").unwrap();
    assert_eq!((spec.service().as_str(), spec.usual), ("custom.deploy", Some(Tier::ApprovalRequired)));
    assert!(spec.reversible && spec.definition.is_some());
    let targets: Vec<&str> = spec.params.iter().filter(|p| p.target).map(|p| p.name.as_str()).collect();
    assert_eq!(targets, ["regions", "replicas", "service", "version"], "all but the text for people");
    assert_eq!(spec.prose_params().count(), 0, "cards show every argument whole");
}

#[test]
fn a_request_is_what_the_file_says_with_its_places_filled() {
    let said = map(json!({"service": "web shop", "version": "1.2", "note": "a&b=c", "regions": ["eu", "us"]}));
    let declared = deploy();
    let beside = TemplateContext { key: Some("buf_1"), ..TemplateContext::default() };
    let filled = declared.fill_request(first(&declared), &said, &beside).unwrap();
    let url = "https://deploy.example.com/v1/services/web%20shop/releases?note=a%26b%3Dc&trace=buf_1";
    assert_eq!((filled.method, filled.url.as_str()), (ProxyMethod::Post, url));
    let body: Value = serde_json::from_slice(&filled.body.unwrap()).unwrap();
    assert_eq!(body, json!({"version": "1.2", "regions": ["eu", "us"], "title": "release 1.2"}));
    let kept = declared.extract_kept_values(&json!({"id": "r-17"}));
    let back = request(&declared).rollback.as_ref().unwrap().template();
    let filled =
        declared.fill_request((request(&declared), &back), &said, &TemplateContext { key: None, kept }).unwrap();
    assert_eq!(filled.url, "https://deploy.example.com/v1/services/web%20shop/releases/r-17");
}

#[test]
fn an_answer_is_kept_only_in_a_form_that_leads_nowhere_else() {
    for odd in [json!("../admin"), json!("a/b"), json!("a b"), json!(""), json!({"x": 1}), json!(null), json!("ü")] {
        assert!(deploy().extract_kept_values(&json!({"id": odd})).is_empty(), "{odd}");
    }
    assert_eq!(deploy().extract_kept_values(&json!({"id": 7})).len(), 1);
}

#[test]
fn arguments_of_another_shape_are_refused() {
    let declared = deploy();
    for bad in [
        json!({"service": "a"}),
        json!({"service": "a", "version": 1}),
        json!({"service": "a", "version": "1", "host": "evil.example"}),
        json!({"service": "a", "version": "1", "replicas": 21}),
        json!({"service": "a", "version": "1", "regions": [1]}),
        json!({"service": "..", "version": "1"}),
        json!({"service": "a/b", "version": "1"}),
        json!({"service": "a\\b", "version": "1"}),
        json!({"service": "", "version": "1"}),
    ] {
        let key = TemplateContext { key: Some("k"), ..TemplateContext::default() };
        assert!(declared.fill_request(first(&declared), &map(bad.clone()), &key).is_err(), "{bad}");
    }
}

/// One change of the example, and the code of the flaw that it must cause.
#[test]
fn every_flaw_is_found() {
    for (from, to, code) in [
        ("https://deploy.example.com/v1", "http://deploy.example.com/v1", "custom.not_https"),
        ("https://deploy.example.com/v1", "https://{service}.example.com", "custom.base_url"),
        ("https://deploy.example.com/v1", "https://user@deploy.example.com", "custom.base_url"),
        ("path: /services/{service}/releases", "path: /services/x{service}/releases", "custom.path"),
        ("path: /services/{service}/releases", "path: /services/{note}/releases", "custom.path"),
        ("path: /services/{service}/releases", "path: /services/{regions}/releases", "custom.path"),
        ("path: /services/{service}/releases", "path: /../{service}/releases", "custom.path"),
        ("{accept: application/json}", "{x-user: \"{service}\"}", "custom.header"),
        ("{accept: application/json}", "{authorization: Bearer abc}", "custom.secret"),
        ("note: \"{note}\"", "note: \"{notes}\"", "custom.unknown_argument"),
        ("note: \"{note}\"", "note: x", "custom.unused_argument"),
        ("{type: text, required: true, max: 40}", "{type: text, required: true}", "custom.endless_argument"),
        ("effect: write", "effect: read", "custom.effect"),
        ("class: findable", "class: consume_once", "custom.class"),
        ("lookup:", "limits: {per_minute: 0}\n#", "custom.limits"),
        ("rollback: {method: DELETE", "rollback: {method: POST", "custom.rollback"),
        ("{answer.release}", "{answer.other}", "custom.unknown_argument"),
        ("keep: {release: /id}", "keep: {release: id}", "custom.pointer"),
        ("hold_seconds: 60", "hold_seconds: 999999", "custom.limits"),
    ] {
        let text = DEPLOY.replacen(from, to, 1);
        assert_ne!(text, DEPLOY, "{from}");
        let flaws = CustomCapability::from_yaml(&text).unwrap().check("deploy");
        assert!(flaws.iter().any(|flaw| flaw.code == code), "{from} -> {to}: {flaws:?}");
    }
    for name in ["Deploy", "a.b.c", "", "email.purge", "proxy", "custom.x", "a b", "../x", ".x"] {
        assert!(deploy().check(name).iter().any(|flaw| flaw.code == "custom.name"), "{name}");
    }
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_column() {
    let text = DEPLOY.replace("hold_seconds: 60", "hold_second: 60");
    let why = CustomCapability::from_yaml(&text).unwrap_err().to_string();
    assert!(why.contains("hold_second") && why.contains("line 5"), "{why}");
}

#[test]
fn the_digest_follows_the_meaning_and_not_the_spelling() {
    let respelt = DEPLOY.replace("hold_seconds: 60", "hold_seconds:   60 # a minute");
    assert_eq!(CustomCapability::from_yaml(&respelt).unwrap().digest, deploy().digest);
    let other = DEPLOY.replace("/services/{service}/releases", "/services/{service}/previews");
    assert_ne!(CustomCapability::from_yaml(&other).unwrap().digest, deploy().digest);
}

#[test]
fn the_schema_of_the_docs_names_the_keys_that_are_read() {
    let schema = schema::schema();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/capability.schema.json");
    #[expect(clippy::disallowed_methods, reason = "the switch of this test is its edge; nothing else reads it")]
    let update = std::env::var("UPDATE_DOCS").is_ok_and(|value| value == "1");
    let printed = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
    if update {
        std::fs::write(&path, &printed).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == printed, "docs/capability.schema.json is stale: run this test with UPDATE_DOCS=1");
    // What serde says about a key that does not exist lists those that do.
    for (place, text) in [
        ("", "nothing: 1".to_owned()),
        ("/properties/request", "request: {nothing: 1}".to_owned()),
        ("/properties/lookup", "lookup: {nothing: 1}".to_owned()),
        ("/properties/rollback", "rollback: {nothing: 1}".to_owned()),
        ("/properties/limits", "limits: {nothing: 1}".to_owned()),
        ("/properties/credential", "credential: {nothing: 1}".to_owned()),
        ("/properties/arguments/additionalProperties", "arguments: {a: {nothing: 1}}".to_owned()),
        ("/properties/program", "program: {nothing: 1}".to_owned()),
        ("/properties/program/properties/limits", "program: {limits: {nothing: 1}}".to_owned()),
        ("/properties/program/properties/exit_codes", "program: {exit_codes: {nothing: 1}}".to_owned()),
        ("/properties/program/properties/lookup", "program: {lookup: {nothing: 1}}".to_owned()),
        ("/properties/program/properties/rollback", "program: {rollback: {nothing: 1}}".to_owned()),
    ] {
        let why = CustomCapability::from_yaml(&text).unwrap_err().to_string();
        let properties = schema.pointer(&format!("{place}/properties")).unwrap().as_object().unwrap();
        for key in properties.keys() {
            let with = text.replace("nothing", key);
            let said = CustomCapability::from_yaml(&with).map(|_| String::new()).unwrap_or_else(|no| no.to_string());
            assert!(!said.contains("unknown field"), "{place} {key}: {said}");
        }
        assert!(why.contains("unknown field"), "{place}: {why}");
    }
}

proptest! {
    /// No argument value changes host, method or path structure, and the body stays the declared one.
    #[test]
    fn no_argument_value_changes_host_method_or_path_structure(
        service in ".{1,60}", version in ".{0,40}", note in ".{0,200}", key in "[a-z0-9_]{1,40}",
    ) {
        let declared = deploy();
        let said = map(json!({"service": service, "version": version, "note": note}));
        let beside = TemplateContext { key: Some(&key), ..TemplateContext::default() };
        if let Ok(filled) = declared.fill_request(first(&declared), &said, &beside) {
            prop_assert_eq!(filled.method, ProxyMethod::Post);
            let rest = filled.url.strip_prefix("https://deploy.example.com/v1/services/").expect("the declared base");
            let (path, query) = rest.split_once('?').expect("the declared query");
            let part = path.strip_suffix("/releases").expect("the declared path");
            prop_assert!(!part.is_empty() && !part.contains(['/', '\\', '#', '@', ':', '?']) && part != "." && part != "..");
            let names: Vec<&str> = query.split('&').map(|pair| pair.split_once('=').unwrap().0).collect();
            prop_assert_eq!(names, ["note", "trace"]);
            prop_assert_eq!(&filled.headers[0], &("accept".to_owned(), "application/json".to_owned()));
            let body: Value = serde_json::from_slice(&filled.body.unwrap()).unwrap();
            prop_assert_eq!(body, json!({"version": version.clone(), "title": format!("release {version}")}));
        }
    }
}
