//! Which fields of an answer are always there: the API description against the source of every response type.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use sluice_api::http::openapi;

/// A struct of the source: each field under its name in JSON, and whether it is left out when it is empty.
type ResponseStructFields = BTreeMap<String, bool>;

fn sources(dir: &Path, into: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            into.push(std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// The value of `key = "..."` in an attribute.
fn named<'a>(attributes: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = attributes.split_once(&format!("{key} = \""))?;
    rest.split_once('"').map(|(value, _)| value)
}

/// Every struct with named fields that is written as JSON and described, by its name. A name that several structs share is
/// left to the check by schema alone, unless they have the same fields.
fn structs() -> BTreeMap<String, Vec<ResponseStructFields>> {
    let mut texts = Vec::new();
    for name in ["core", "services", "gateway", "api"] {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src"), &mut texts);
    }
    let mut found: BTreeMap<String, Vec<ResponseStructFields>> = BTreeMap::new();
    for text in &texts {
        let mut attributes = String::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let line = line.trim();
            if line.starts_with("#[") || line.starts_with("//") {
                attributes += if line.starts_with("#[") { line } else { "" };
                continue;
            }
            let head = line.split_once("struct ").filter(|(before, _)| before.is_empty() || before.starts_with("pub"));
            if let (Some((_, rest)), true) = (head, line.ends_with('{'))
                && attributes.contains("Serialize")
                && attributes.contains("JsonSchema")
            {
                let name: String = rest.chars().take_while(|char| char.is_alphanumeric()).collect();
                found.entry(name).or_default().push(fields(&mut lines));
            }
            attributes.clear();
        }
    }
    found
}

fn fields<'a>(lines: &mut impl Iterator<Item = &'a str>) -> ResponseStructFields {
    let mut fields = ResponseStructFields::new();
    let mut attributes = String::new();
    for line in lines.by_ref().map(str::trim).take_while(|line| *line != "}") {
        if line.starts_with("#[") {
            attributes += line;
        } else if let (false, Some((name, _))) = (line.starts_with("//"), line.split_once(": ")) {
            let name = name.rsplit(' ').next().unwrap().trim_start_matches("r#");
            let shown = named(&attributes, "rename").unwrap_or(name);
            if !attributes.contains("flatten") && !attributes.contains("serde(skip)") {
                fields.insert(shown.to_owned(), attributes.contains("skip_serializing_if"));
            }
            attributes.clear();
        }
    }
    fields
}

/// The names of the schemas that an answer can contain.
fn answered(document: &Value) -> BTreeSet<String> {
    fn refer(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                if let Some(name) = map.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next()) {
                    into.push(name.to_owned());
                }
                map.values().for_each(|value| refer(value, into));
            }
            Value::Array(items) => items.iter().for_each(|value| refer(value, into)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut open = Vec::new();
    for operation in document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap().values())
    {
        refer(&operation["responses"], &mut open);
    }
    let mut seen = BTreeSet::new();
    while let Some(name) = open.pop() {
        if seen.insert(name.clone()) {
            refer(&document["components"]["schemas"][&name], &mut open);
        }
    }
    seen
}

#[test]
fn an_answer_requires_exactly_the_fields_that_are_always_written() {
    let document = openapi::document();
    let structs = structs();
    let (mut wrong, mut looked_at, mut left_out) = (Vec::new(), 0, 0);
    for name in answered(&document) {
        let schema = &document["components"]["schemas"][&name];
        let Some(properties) = schema["properties"].as_object() else { continue };
        let required: BTreeSet<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        // Several structs of one name (`View`): the description numbers them, so the one with these fields is meant.
        let bare = name.trim_end_matches(|char: char| char.is_ascii_digit());
        let same = structs.get(&name).into_iter().chain(structs.get(bare)).flatten();
        let Some(fields) = same.into_iter().find(|fields| fields.keys().all(|field| properties.contains_key(field)))
        else {
            wrong.push(format!("{name} is described, and this test does not find its source"));
            continue;
        };
        for (field, may_be_left_out) in fields {
            looked_at += 1;
            left_out += usize::from(*may_be_left_out);
            if required.contains(field.as_str()) == *may_be_left_out {
                wrong.push(format!("{name}.{field}: required is {}", !may_be_left_out));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {looked_at} fields:\n{}", wrong.len(), wrong.join("\n"));
    assert!(
        looked_at > 500 && left_out > 50,
        "the walk sees {looked_at} fields, {left_out} of them sometimes left out"
    );
}

#[test]
fn no_type_is_described_in_one_way_as_a_body_and_in_another_as_an_answer() {
    assert_eq!(openapi::described_twice(), Vec::<String>::new());
}
