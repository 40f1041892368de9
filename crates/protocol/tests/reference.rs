//! The reference of the frame protocol for third-party adapters, generated from the types of this crate.
//!
//! `UPDATE_DOCS=1 cargo test -p sluice-protocol --test reference` writes `docs/adapter-protocol.md` and
//! `docs/adapter-protocol.schema.json`; without it, the test fails if they are stale.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test: what cannot be described should fail at that line"
)]

use std::fmt::Write as _;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use sluice_core::CapabilityName;
use sluice_protocol::frame::{MAX_BLOBS, MAX_FRAME, MAX_HEAD};
use sluice_protocol::message::{FRAME_EXCHANGE, FRAME_JOB, FRAME_PROGRESS, FRAME_REPLY, FRAME_REPORT};
use sluice_protocol::{
    AdapterDescribeTask, AdapterJobRequest, AdapterRunTask, ExchangePhase, ExchangeReply, MessageToGateway,
    MessageToWorker, ServiceWrite, ThirdPartyDescription, WireAdapterAnswer, WireWriteDone, WorkerExchange,
    WorkerFrameDecoder, WorkerJob, WorkerJobOutcome, WorkerProgress, WorkerReport, WorkerTaskPayload,
};

/// One kind of frame that an adapter meets.
struct FrameEntry {
    kind: u8,
    name: &'static str,
    sent_by: &'static str,
    head: &'static str,
    blobs: &'static str,
}

const FRAMES: [FrameEntry; 5] = [
    FrameEntry {
        kind: FRAME_JOB,
        name: "job",
        sent_by: "gateway, first",
        head: "WorkerJob",
        blobs: "files of a write, in the order of `blobs`",
    },
    FrameEntry {
        kind: FRAME_EXCHANGE,
        name: "exchange",
        sent_by: "adapter",
        head: "WorkerExchange",
        blobs: "the body, always one",
    },
    FrameEntry {
        kind: FRAME_REPLY,
        name: "reply",
        sent_by: "gateway, to each exchange",
        head: "ExchangeReply",
        blobs: "the body of an answer; none with a refusal",
    },
    FrameEntry {
        kind: FRAME_PROGRESS,
        name: "progress",
        sent_by: "adapter, optional",
        head: "WorkerProgress",
        blobs: "",
    },
    FrameEntry { kind: FRAME_REPORT, name: "report", sent_by: "adapter, last", head: "WorkerReport", blobs: "" },
];

/// The types in the order in which a reader meets them; further types follow by name.
const ORDER: [&str; 10] = [
    "WorkerJob",
    "AdapterDescribeTask",
    "ThirdPartyDescription",
    "AdapterRunTask",
    "AdapterJobRequest",
    "WireAdapterAnswer",
    "WorkerExchange",
    "ExchangeReply",
    "WorkerProgress",
    "WorkerReport",
];

/// All types by name. A job and a reply are described as they are written; everything else as it is read.
fn definitions() -> Map<String, Value> {
    fn add<T: JsonSchema>(generator: &mut SchemaGenerator) {
        let _reference = generator.subschema_for::<T>();
    }
    let mut written = SchemaSettings::draft2020_12().for_serialize().into_generator();
    add::<WorkerJob>(&mut written);
    add::<AdapterDescribeTask>(&mut written);
    add::<AdapterRunTask>(&mut written);
    add::<ExchangeReply>(&mut written);
    let mut read = SchemaSettings::draft2020_12().for_deserialize().into_generator();
    add::<ThirdPartyDescription>(&mut read);
    add::<WireAdapterAnswer>(&mut read);
    add::<WorkerExchange>(&mut read);
    add::<WorkerProgress>(&mut read);
    add::<WorkerReport>(&mut read);
    let mut all = written.take_definitions(true);
    for (name, schema) in read.take_definitions(true) {
        assert!(all.insert(name.clone(), schema).is_none(), "{name} is both read and written");
    }
    all
}

fn schema() -> Value {
    let definitions = definitions();
    let link = |name: &str| {
        assert!(definitions.contains_key(name), "{name} is not described");
        json!({"$ref": format!("#/$defs/{name}")})
    };
    let frames: Vec<Value> = FRAMES
        .iter()
        .map(
            |frame| json!({"kind": frame.kind, "name": frame.name, "sent_by": frame.sent_by, "head": link(frame.head)}),
        )
        .collect();
    let jobs = json!({
        AdapterDescribeTask::KIND: {"payload": link("AdapterDescribeTask"), "done": link("ThirdPartyDescription")},
        AdapterRunTask::KIND: {"payload": link("AdapterRunTask"), "done": link("WireAdapterAnswer")},
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Frames of a third-party adapter",
        "description": "The heads of the frames between the gateway and a third-party adapter. `x-frames` names the head of \
                        each kind of frame, `x-jobs` the payload of each kind of job and the value of `done` in its report.",
        "anyOf": FRAMES.iter().map(|frame| link(frame.head)).collect::<Vec<_>>(),
        "x-frames": frames,
        "x-jobs": jobs,
        "$defs": definitions,
    })
}

/// A description on one line, with links to items of the code as plain names.
fn words(schema: &Value) -> String {
    let text = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}

/// The type of a value, in words.
fn kind(schema: &Value) -> String {
    if let Some(link) = schema.get("$ref").and_then(Value::as_str) {
        let name = link.rsplit('/').next().unwrap_or_default();
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(constant) = schema.get("const") {
        return format!("`{constant}`");
    }
    if let Some(list) = schema.get("enum").and_then(Value::as_array) {
        return list.iter().map(|one| format!("`{one}`")).collect::<Vec<_>>().join(", ");
    }
    if let Some(list) = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array) {
        return list.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    if schema.get("type").and_then(Value::as_str) == Some("array") {
        if let Some(parts) = schema.get("prefixItems").and_then(Value::as_array) {
            return format!("[{}]", parts.iter().map(kind).collect::<Vec<_>>().join(", "));
        }
        let items = schema.get("items").map_or_else(|| "any JSON".to_owned(), kind);
        return format!("list of {items}");
    }
    match schema.get("type") {
        Some(Value::String(name)) => name.clone(),
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => "any JSON".to_owned(),
    }
}

/// The keys of an object as a table.
fn table(out: &mut String, schema: &Value) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object).filter(|map| !map.is_empty()) else {
        return;
    };
    let required = |name: &str| {
        let list = schema.get("required").and_then(Value::as_array);
        list.is_some_and(|list| list.iter().any(|one| one == name))
    };
    out.push_str("| key | type | always | meaning |\n|---|---|---|---|\n");
    for (name, value) in properties {
        let always = if required(name) { "yes" } else { "" };
        writeln!(out, "| `{name}` | {} | {always} | {} |", kind(value), words(value)).unwrap();
    }
    out.push('\n');
    for (name, value) in properties {
        let inner = value.get("items").filter(|items| items.get("properties").is_some());
        if let Some(items) = inner {
            writeln!(out, "Each of `{name}`:\n").unwrap();
            table(out, items);
        }
    }
}

/// The variants of an enumeration: words as a table, objects one by one.
fn variants(out: &mut String, list: &[Value]) {
    let is_word = |one: &&Value| one.get("const").is_some() || one.get("enum").is_some();
    let words_only: Vec<&Value> = list.iter().filter(is_word).collect();
    if !words_only.is_empty() {
        out.push_str("| value | meaning |\n|---|---|\n");
        for one in words_only {
            writeln!(out, "| {} | {} |", kind(one), words(one)).unwrap();
        }
        out.push('\n');
    }
    for one in list.iter().filter(|one| !is_word(one)) {
        let properties = one["properties"].as_object().unwrap();
        // A variant is named by its tag, or by its only key.
        let tag = properties.iter().find(|(_, value)| value.get("const").is_some());
        let title = match (tag, properties.iter().next()) {
            (Some((key, value)), _) => format!("{{\"{key}\": {}}}", value["const"]),
            (None, Some((key, _))) => format!("{{\"{key}\": …}}"),
            (None, None) => panic!("a variant without a name"),
        };
        writeln!(out, "**`{title}`** {}\n", words(one)).unwrap();
        match (tag, properties.iter().next()) {
            (None, Some((_, value))) if value.get("properties").is_some() => table(out, value),
            (None, Some((key, value))) => {
                writeln!(out, "The value of `{key}`: {}.\n", kind(value)).unwrap();
            }
            (Some((tag, _)), _) => {
                let mut rest = one.clone();
                rest["properties"].as_object_mut().unwrap().remove(tag);
                table(out, &rest);
            }
            (None, None) => {}
        }
    }
}

fn section(out: &mut String, name: &str, schema: &Value) {
    writeln!(out, "### {name}\n\n{}\n", words(schema)).unwrap();
    match schema.get("oneOf").or_else(|| schema.get("anyOf")).and_then(Value::as_array) {
        Some(list) => variants(out, list),
        None if schema.get("properties").is_some() => table(out, schema),
        None => writeln!(out, "{}.\n", kind(schema)).unwrap(),
    }
}

fn head(bytes: &[u8]) -> String {
    let mut decoder = WorkerFrameDecoder::default();
    decoder.feed(bytes);
    String::from_utf8(decoder.next_frame().unwrap().unwrap().head).unwrap()
}

/// A write from its job to its report: the heads as they are sent.
fn example() -> Vec<(&'static str, String)> {
    let write = ServiceWrite {
        op: "buf_1".into(),
        capability: CapabilityName::new("todo.add").unwrap(),
        arguments: json!({"title": "Milk"}).as_object().unwrap().clone(),
        at: 1_767_225_600_000,
        blobs: Vec::new(),
    };
    let task = AdapterRunTask {
        adapter: "todo".into(),
        account: "ana".into(),
        ticket: "tk_1".into(),
        base_path: "/v1".into(),
        job: AdapterJobRequest::Perform { write, handle: None },
    };
    let exchange = WorkerExchange {
        ticket: "tk_1".into(),
        method: "POST".into(),
        path: "/v1/items".into(),
        headers: vec![("content-type".into(), "application/json".into())],
        body: br#"{"title":"Milk","mark":"buf_1"}"#.to_vec(),
    };
    let reply = ExchangeReply::Answer {
        status: 201,
        headers: vec![("content-type".into(), "application/json".into())],
        body: br#"{"id":7}"#.to_vec(),
    };
    let refused = ExchangeReply::Refused {
        code: ExchangePhase::BeforeFirstByte.code().as_str().to_owned(),
        text: "the service hung up (before_first_byte)".into(),
        not_sent: false,
    };
    let done = WireWriteDone { receipt: "item 7".into(), result: json!({"id": 7}), after: None, undo_until: None };
    let report = WorkerReport {
        outcome: WorkerJobOutcome::Done(serde_json::to_value(WireAdapterAnswer::Done(done)).unwrap()),
        attachments: Vec::new(),
    };
    let progress = MessageToGateway::Progress(WorkerProgress { done: 3, of: Some(10) });
    vec![
        ("job", head(&MessageToWorker::Job(WorkerJob::of(&task, Vec::new())).encode().unwrap())),
        ("exchange", head(&MessageToGateway::Exchange(exchange).encode().unwrap())),
        ("reply", head(&MessageToWorker::Reply(reply).encode().unwrap())),
        ("reply, if no answer came", head(&MessageToWorker::Reply(refused).encode().unwrap())),
        ("progress", head(&progress.encode().unwrap())),
        ("report", head(&MessageToGateway::Report(report).encode().unwrap())),
    ]
}

fn markdown() -> String {
    let definitions = definitions();
    let mut out = String::from(
        "# The frame protocol of third-party adapters\n\n\
         This page is generated from the types of `crates/protocol`. [adapters.md](adapters.md#third-party-adapters) explains how \
         an adapter is started, locked in and checked. [adapter-protocol.schema.json](adapter-protocol.schema.json) is the same \
         as a JSON Schema.\n\n## Frames\n\n",
    );
    writeln!(
        out,
        "Numbers are little-endian. A frame is: `u32` length of the rest, `u8` kind, `u8` number of blobs, `u32` length of the \
         head, one `u32` length per blob, the head (JSON), the blobs. At most {} MB, a head of {} MB, {MAX_BLOBS} blobs.\n",
        MAX_FRAME >> 20,
        MAX_HEAD >> 20
    )
    .unwrap();
    out.push_str("| kind | name | sent by | head | blobs |\n|--:|---|---|---|---|\n");
    for FrameEntry { kind, name, sent_by, head, blobs } in &FRAMES {
        writeln!(out, "| {kind} | {name} | {sent_by} | [{head}](#{}) | {blobs} |", head.to_lowercase()).unwrap();
    }
    writeln!(
        out,
        "\n| kind of job | payload | `done` of its report |\n|---|---|---|\n\
         | `{}` | [AdapterDescribeTask](#adapterdescribetask) | [ThirdPartyDescription](#thirdpartydescription) |\n\
         | `{}` | [AdapterRunTask](#adapterruntask) | [WireAdapterAnswer](#wireadapteranswer) |\n",
        AdapterDescribeTask::KIND,
        AdapterRunTask::KIND
    )
    .unwrap();
    out.push_str("## Example\n\nThe heads of the frames of one write:\n\n");
    for (name, head) in example() {
        writeln!(out, "{name}:\n\n```json\n{head}\n```\n").unwrap();
    }
    out.push_str(
        "## Phases of a failed exchange\n\n`not_sent` of a refusal says whether it is certain that the service received nothing. \
         The code says in which phase the exchange failed. `egress.too_large` means that the answer was larger than allowed; the request had \
         its effect. Any other code is a refusal of the gateway itself.\n\n\
         | phase | code | proves that nothing was sent |\n|---|---|---|\n",
    );
    for phase in ExchangePhase::ALL {
        let proof = if phase.proves_nothing_sent() { "yes" } else { "no" };
        writeln!(out, "| `{}` | `{}` | {proof} |", phase.as_str(), phase.code()).unwrap();
    }
    out.push_str("\n## Types\n\nA key that is not always there may be left out or `null`.\n\n");
    let rest = definitions.keys().map(String::as_str).filter(|name| !ORDER.contains(name));
    for name in ORDER.into_iter().chain(rest) {
        section(&mut out, name, &definitions[name]);
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

#[test]
fn the_reference_of_the_frame_protocol_is_what_the_types_say() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    #[expect(clippy::disallowed_methods, reason = "the switch of this test is its edge; nothing else reads it")]
    let update = std::env::var("UPDATE_DOCS").is_ok_and(|value| value == "1");
    let schema = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    for (name, text) in [("adapter-protocol.md", markdown()), ("adapter-protocol.schema.json", schema)] {
        let path = folder.join(name);
        if update {
            std::fs::write(&path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == text, "docs/{name} is stale: run this test with UPDATE_DOCS=1");
    }
}

#[test]
fn every_head_of_the_example_has_the_keys_that_its_type_promises() {
    let definitions = definitions();
    for (name, head) in example() {
        let name = name.split(',').next().unwrap();
        let frame = FRAMES.iter().find(|frame| frame.name == name).unwrap();
        let (head, schema) = (serde_json::from_str::<Value>(&head).unwrap(), &definitions[frame.head]);
        for key in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            assert!(head.get(key.as_str().unwrap()).is_some(), "{name}: {key}");
        }
    }
}
