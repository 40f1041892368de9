//! The API description (OpenAPI 3.1), generated from the table of routes.
//!
//! Bodies are described as they are read and answers as they are written: a field that an answer omits when it is
//! empty is not required there, and a field with a default is required only where it is always written.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use hyper::body::Bytes;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use sluice_core::refusal::Code;
use sluice_services::CallError;
use sluice_services::value::{at, put};

use super::reply::HttpReply;
use super::route::{Route, RouteAccess, RoutedRequest};
use super::routes;
use super::views::{ProblemDetails, role_word};

/// `GET /openapi.json`. It needs no credential, so it must be cheap: the bytes are made once and shared by all answers.
pub(super) async fn show(_: RoutedRequest) -> Result<HttpReply, CallError> {
    static BYTES: OnceLock<Bytes> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| serde_json::to_vec(&document()).unwrap_or_default().into());
    Ok(HttpReply::bytes(200, "application/json", bytes.clone()))
}

/// The schemas of request bodies and of answers.
struct OpenApiSchemas {
    bodies: SchemaGenerator,
    answers: SchemaGenerator,
}

impl OpenApiSchemas {
    fn new() -> OpenApiSchemas {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        OpenApiSchemas {
            bodies: settings.clone().for_deserialize().into_generator(),
            answers: settings.for_serialize().into_generator(),
        }
    }

    /// All definitions. A type that is both read and written must have one schema: a test checks that
    /// ([`described_twice`]).
    fn definitions(mut self) -> Map<String, Value> {
        let mut all = self.bodies.take_definitions(true);
        all.extend(self.answers.take_definitions(true));
        all
    }
}

/// Types that have one schema as a body and another as an answer, under the same name. There must be none.
#[must_use]
pub fn described_twice() -> Vec<String> {
    let mut schemas = OpenApiSchemas::new();
    paths(&mut schemas);
    let answers = schemas.answers.take_definitions(true);
    let bodies = schemas.bodies.take_definitions(true);
    bodies
        .into_iter()
        .filter(|(name, body)| answers.get(name).is_some_and(|answer| answer != body))
        .map(|(name, _)| name)
        .collect()
}

/// The complete description.
#[must_use]
pub fn document() -> Value {
    let mut schemas = OpenApiSchemas::new();
    let paths = paths(&mut schemas);
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
            "schemas": schemas.definitions(),
            "securitySchemes": {
                "agent": {"type": "http", "scheme": "bearer", "description": "An agent key, sga_…"},
                "operator": {"type": "http", "scheme": "bearer", "description": "An operator token, sgo_…"},
                "inbox": {"type": "http", "scheme": "bearer", "description": "An inbox key, sgi_…"},
                "task": {"type": "http", "scheme": "bearer", "description": "A task key, sgt_…"},
            },
        },
    })
}

fn paths(schemas: &mut OpenApiSchemas) -> BTreeMap<&'static str, Map<String, Value>> {
    let problem = schemas.answers.subschema_for::<ProblemDetails>();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in routes::all() {
        let operation = operation(route, schemas, problem.as_value());
        paths.entry(route.path).or_default().insert(route.method.to_lowercase(), operation);
    }
    paths
}

fn operation(route: &Route, schemas: &mut OpenApiSchemas, problem: &Value) -> Value {
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
        "responses": responses(route, &mut schemas.answers, problem),
        "security": security(route.access),
    });
    if let Some(role) = route.access.least() {
        put(&mut operation, "x-sluice-role", role_word(role));
    }
    if let Some(shape) = route.body {
        let schema = shape(&mut schemas.bodies);
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

fn security(access: RouteAccess) -> Value {
    match access {
        RouteAccess::Open => json!([]),
        RouteAccess::Agent => json!([{"agent": []}]),
        RouteAccess::Inbox => json!([{"inbox": []}]),
        RouteAccess::Operator(_) => json!([{"operator": []}]),
        RouteAccess::Either(_) => json!([{"agent": []}, {"operator": []}]),
        RouteAccess::Task(_) => json!([{"task": []}, {"operator": []}]),
        RouteAccess::Sessions(_) => json!([{"agent": []}, {"task": []}, {"operator": []}]),
    }
}
