//! The API description (OpenAPI 3.1), printed from the table of routes.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use hyper::body::Bytes;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use sluice_core::refusal::Code;

use super::reply::Reply;
use super::route::{Access, Route, Visit};
use super::routes;
use super::views::{Problem, role_word};
use crate::No;
use crate::value::{at, put};

/// `GET /openapi.json`. It needs no credential, so it costs nothing: the bytes are made once and shared by all answers.
pub(super) async fn show(_: Visit) -> Result<Reply, No> {
    static BYTES: OnceLock<Bytes> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| serde_json::to_vec(&document()).unwrap_or_default().into());
    Ok(Reply::bytes(200, "application/json", bytes.clone()))
}

/// The whole description.
#[must_use]
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut schemas = settings.into_generator();
    let problem = schemas.subschema_for::<Problem>();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in routes::all() {
        let operation = operation(route, &mut schemas, problem.as_value());
        paths.entry(route.path).or_default().insert(route.method.to_lowercase(), operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sluicegate",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "A gate between AI agents and everything they can affect.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:7420"}],
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": {
                "agent": {"type": "http", "scheme": "bearer", "description": "An agent key, sga_…"},
                "operator": {"type": "http", "scheme": "bearer", "description": "An operator token, sgo_…"},
                "inbox": {"type": "http", "scheme": "bearer", "description": "An inbox key, sgi_…"},
                "task": {"type": "http", "scheme": "bearer", "description": "A task key, sgt_…"},
            },
        },
    })
}

fn operation(route: &Route, schemas: &mut SchemaGenerator, problem: &Value) -> Value {
    let mut parameters: Vec<Value> = path_parts(route.path)
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    parameters.extend(route.query.iter().map(
        |param| json!({"name": param.name, "in": "query", "description": param.about, "schema": {"type": param.kind}}),
    ));
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.about,
        "parameters": parameters,
        "responses": responses(route, schemas, problem),
        "security": security(route.access),
    });
    if let Some(role) = route.access.least() {
        put(&mut operation, "x-sluice-role", role_word(role));
    }
    if let Some(shape) = route.body {
        let schema = shape(schemas);
        put(
            &mut operation,
            "requestBody",
            json!({"required": true, "content": {"application/json": {"schema": schema.as_value()}}}),
        );
    }
    operation
}

fn path_parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn responses(route: &Route, schemas: &mut SchemaGenerator, problem: &Value) -> Value {
    let mut responses: BTreeMap<String, Value> = BTreeMap::new();
    for (status, shape) in route.answers {
        let mut response = json!({"description": "The answer."});
        match shape {
            Some(shape) => {
                let schema = shape(schemas);
                put(&mut response, "content", json!({"application/json": {"schema": schema.as_value()}}));
            }
            None if route.path == "/v1/events" => {
                put(&mut response, "content", json!({"text/event-stream": {"schema": {"type": "string"}}}));
            }
            None if *status == 200 => {
                put(&mut response, "content", json!({"text/plain": {"schema": {"type": "string"}}}));
            }
            None => {}
        }
        responses.insert(status.to_string(), response);
    }
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in route.codes() {
        by_status.entry(code.status()).or_default().push(code);
    }
    for (status, codes) in by_status {
        let lines: Vec<String> = codes.iter().map(|code| format!("`{code}`: {}", code.meaning())).collect();
        let response = responses.entry(status.to_string()).or_insert_with(|| json!({"description": ""}));
        put(response, "description", lines.join("; "));
        let mut content = at(response, "/content").clone();
        put(&mut content, "application/problem+json", json!({"schema": problem}));
        put(response, "content", content);
    }
    json!(responses)
}

fn security(access: Access) -> Value {
    match access {
        Access::Open => json!([]),
        Access::Agent => json!([{"agent": []}]),
        Access::Inbox => json!([{"inbox": []}]),
        Access::Operator(_) => json!([{"operator": []}]),
        Access::Either(_) => json!([{"agent": []}, {"operator": []}]),
        Access::Task(_) => json!([{"task": []}, {"operator": []}]),
        Access::Sessions(_) => json!([{"agent": []}, {"task": []}, {"operator": []}]),
    }
}
