//! A custom capability as its file declares it: one HTTP request that the gateway makes for an agent, or one
//! program that it runs.
//!
//! Takes `capabilities/<name>.yaml`; gives the declaration, the capability it adds to the catalogue, the requests it
//! makes or the command lines it runs, and everything that is wrong with it. Promise: what passes
//! [`CustomCapability::check`] names one host or one program, and no argument of a call changes the host, the method or
//! the structure of the path of a request ([`request`]), or the program and the structure of a command line
//! ([`program`]).

mod check;
pub mod program;
pub mod request;
pub mod schema;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::capability::{Capability, CapabilityParam, Effect, EffectClass, ParamKind};
use crate::ids::{CapabilityName, ServiceName};
use crate::json;
use crate::proxy::{ProxyFileError, ProxyFlaw, ProxyMethod};
use crate::target::is_prose;
use crate::tier::Tier;

use program::DeclaredProgram;

/// Longest file that is read, in bytes.
pub const MAX_BYTES: usize = 256 * 1024;
/// Longest name of a custom capability.
const LONGEST_NAME: usize = 60;
/// Longest text of an argument unless `max` says otherwise, in characters.
const TEXT: u64 = 1_000;

/// One custom capability.
#[derive(Debug, Clone, PartialEq)]
pub struct CustomCapability {
    /// What it does, in a sentence.
    pub summary: String,
    /// `read` or `write`. A read is answered at once and may be repeated; a write is held.
    pub effect: Effect,
    /// What an unclear outcome of a write allows; `opaque` (never repeated without a person) unless given.
    pub class: Option<EffectClass>,
    /// How long a write waits before it leaves, in seconds.
    pub hold_seconds: u64,
    /// The arguments of a call, by name.
    pub arguments: BTreeMap<String, CustomArgument>,
    /// Values of the answer that a rollback needs: a name, and the place in the answer (`/id`).
    pub keep: BTreeMap<String, String>,
    /// How it is carried out.
    pub way: CustomImplementation,
    /// SHA-256 of the file's content in canonical form: an approval covers this declaration alone.
    pub digest: String,
}

/// How a custom capability is carried out.
#[derive(Debug, Clone, PartialEq)]
pub enum CustomImplementation {
    /// By an HTTP request through egress.
    Request(Box<DeclaredRequest>),
    /// By a program in the sandbox.
    Program(Box<DeclaredProgram>),
}

/// The HTTP requests of a custom capability.
#[derive(Debug, Clone, PartialEq)]
pub struct DeclaredRequest {
    /// Scheme, host, port, and a path that every request starts with.
    pub base_url: String,
    /// Private addresses that the host may have, for services of one's own network.
    pub allow_addresses: Vec<String>,
    /// The secret of the vault that the gateway adds to each request.
    pub credential: Option<CustomCredential>,
    /// How often the service is asked, and how long and large an answer may be.
    pub limits: CustomLimits,
    /// The request that carries it out.
    pub request: RequestTemplate,
    /// The header in which the service takes an idempotency key, if it has one.
    pub idempotency_header: Option<String>,
    /// The request that finds out whether a write with an unclear outcome happened.
    pub lookup: Option<LookupTemplate>,
    /// The request that rolls a write back.
    pub rollback: Option<RollbackTemplate>,
}

/// A file as it is written: the keys of both ways.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CapabilityFile {
    summary: String,
    effect: Effect,
    #[serde(default)]
    class: Option<EffectClass>,
    #[serde(default = "hold_seconds")]
    hold_seconds: u64,
    #[serde(default)]
    arguments: BTreeMap<String, CustomArgument>,
    #[serde(default)]
    keep: BTreeMap<String, String>,
    #[serde(default)]
    program: Option<DeclaredProgram>,
    #[serde(default)]
    base_url: Option<String>,
    #[serde(default)]
    allow_addresses: Option<Vec<String>>,
    #[serde(default)]
    credential: Option<CustomCredential>,
    #[serde(default)]
    limits: Option<CustomLimits>,
    #[serde(default)]
    request: Option<RequestTemplate>,
    #[serde(default)]
    idempotency_header: Option<String>,
    #[serde(default)]
    lookup: Option<LookupTemplate>,
    #[serde(default)]
    rollback: Option<RollbackTemplate>,
}

impl CapabilityFile {
    /// The declaration: that of a request or that of a program, never a mixture.
    fn into_declaration(self, digest: String) -> Result<CustomCapability, ProxyFileError> {
        let of_requests = [
            ("base_url", self.base_url.is_some()),
            ("allow_addresses", self.allow_addresses.is_some()),
            ("credential", self.credential.is_some()),
            ("limits", self.limits.is_some()),
            ("request", self.request.is_some()),
            ("idempotency_header", self.idempotency_header.is_some()),
            ("lookup", self.lookup.is_some()),
            ("rollback", self.rollback.is_some()),
        ];
        let way = match (self.program, self.base_url, self.request) {
            (Some(program), ..) => {
                if let Some((key, _)) = of_requests.into_iter().find(|(_, given)| *given) {
                    let text = format!("`{key}` belongs to a request; beside `program` put it into that section");
                    return Err(ProxyFileError(text));
                }
                CustomImplementation::Program(Box::new(program))
            }
            (None, Some(base_url), Some(request)) => CustomImplementation::Request(Box::new(DeclaredRequest {
                base_url,
                allow_addresses: self.allow_addresses.unwrap_or_default(),
                credential: self.credential,
                limits: self.limits.unwrap_or_default(),
                request,
                idempotency_header: self.idempotency_header,
                lookup: self.lookup,
                rollback: self.rollback,
            })),
            (None, None, _) => {
                return Err(ProxyFileError("missing field `base_url`: or declare a `program`".to_owned()));
            }
            (None, _, None) => {
                return Err(ProxyFileError("missing field `request`: or declare a `program`".to_owned()));
            }
        };
        let Self { summary, effect, class, hold_seconds, arguments, keep, .. } = self;
        Ok(CustomCapability { summary, effect, class, hold_seconds, arguments, keep, way, digest })
    }
}

/// The secret of a custom capability.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomCredential {
    /// Its name in the vault.
    pub secret: String,
    /// Where it goes: `bearer`, `basic`, `header X-Api-Key` or `query key`.
    #[serde(default = "placement")]
    pub placement: String,
}

/// How many requests a custom capability may make, and how large an answer may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CustomLimits {
    /// Requests in a minute.
    pub per_minute: u32,
    /// Requests in an hour.
    pub per_hour: u32,
    /// Requests until a person looks at it.
    pub burn: u32,
    /// How long one request may take, in seconds.
    pub timeout_seconds: u64,
    /// Largest answer that is read, in kilobytes.
    pub answer_kb: u32,
}

impl Default for CustomLimits {
    fn default() -> Self {
        Self { per_minute: 10, per_hour: 100, burn: 200, timeout_seconds: 30, answer_kb: 512 }
    }
}

/// One argument.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomArgument {
    /// Its shape.
    #[serde(rename = "type")]
    pub kind: CustomArgumentKind,
    /// Whether a call must contain it.
    #[serde(default)]
    pub required: bool,
    /// Whether it says who, where or how much. If not given: true for every argument except switches and arguments that
    /// are prose by their names.
    #[serde(default)]
    pub target: Option<bool>,
    /// Whether it names the object that the write changes: writes to one object keep their order.
    #[serde(default)]
    pub object: bool,
    /// What it means, in a sentence, for people and models.
    #[serde(default)]
    pub about: String,
    /// Longest text in characters, largest number, most items of a list.
    #[serde(default)]
    pub max: Option<u64>,
    /// The only texts that are accepted.
    #[serde(default)]
    pub choices: Vec<String>,
}

/// The shape of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CustomArgumentKind {
    /// A text.
    Text,
    /// A whole number, not negative.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// A list of texts.
    Texts,
    /// A JSON object.
    Object,
}

/// A request with places to fill.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestTemplate {
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    #[serde(default)]
    pub method: ProxyMethod,
    /// The path after the base, with `{argument}` for whole parts of it.
    pub path: String,
    /// The query, by name; values may hold `{argument}`.
    #[serde(default)]
    pub query: BTreeMap<String, String>,
    /// Headers as they are, by name. They hold no argument of a call.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body as JSON; a text that is nothing but `{argument}` becomes its value.
    #[serde(default)]
    pub body: Option<Value>,
}

/// The request that finds out whether a write happened. Its method is `GET`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LookupTemplate {
    /// The path after the base.
    pub path: String,
    /// The query, by name.
    #[serde(default)]
    pub query: BTreeMap<String, String>,
    /// The place in the answer that holds something exactly if the write happened. Without it an answer with a status
    /// of 200 to 299 says that it happened; 404 always says that it did not.
    #[serde(default)]
    pub applied: Option<String>,
}

/// The request that rolls a write back.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RollbackTemplate {
    /// `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: ProxyMethod,
    /// The path after the base; beside arguments, `{answer.name}` stands for a value of `keep`.
    pub path: String,
    /// The query, by name.
    #[serde(default)]
    pub query: BTreeMap<String, String>,
    /// The body as JSON.
    #[serde(default)]
    pub body: Option<Value>,
    /// Whether it may be sent again when its outcome is unclear. `PUT` and `DELETE` always may.
    #[serde(default)]
    pub repeatable: bool,
}

const fn hold_seconds() -> u64 {
    30
}
fn placement() -> String {
    "bearer".into()
}

impl CustomCapability {
    /// Reads a file.
    ///
    /// # Errors
    /// When it is too large, not YAML, or has an unknown key. The error names line and column.
    pub fn from_yaml(text: &str) -> Result<Self, ProxyFileError> {
        if text.len() > MAX_BYTES {
            return Err(ProxyFileError(format!("larger than {MAX_BYTES} bytes")));
        }
        let unreadable = |error: serde_saphyr::Error| ProxyFileError(error.to_string());
        let read: CapabilityFile = serde_saphyr::from_str(text).map_err(unreadable)?;
        let value: Value = serde_saphyr::from_str(text).map_err(unreadable)?;
        let hash =
            Sha256::new_with_prefix(b"sluice custom capability 1\0").chain_update(json::to_canonical_bytes(&value));
        read.into_declaration(crate::hex::encode(&hash.finalize()))
    }

    /// Everything that is wrong with it under this name. An empty list means that it may be used.
    #[must_use]
    pub fn check(&self, name: &str) -> Vec<ProxyFlaw> {
        check::check(self, name)
    }

    /// What is allowed but worth knowing: it does not prevent the use of the declaration.
    #[must_use]
    pub fn warnings(&self) -> Vec<ProxyFlaw> {
        check::warnings(self)
    }

    /// The requests, if it is carried out by requests.
    #[must_use]
    pub fn request(&self) -> Option<&DeclaredRequest> {
        match &self.way {
            CustomImplementation::Request(request) => Some(request),
            CustomImplementation::Program(_) => None,
        }
    }

    /// The program, if it is carried out by one.
    #[must_use]
    pub fn program(&self) -> Option<&DeclaredProgram> {
        match &self.way {
            CustomImplementation::Request(_) => None,
            CustomImplementation::Program(program) => Some(program),
        }
    }

    /// Whether a write can be rolled back.
    #[must_use]
    pub fn has_rollback(&self) -> bool {
        match &self.way {
            CustomImplementation::Request(request) => request.rollback.is_some(),
            CustomImplementation::Program(program) => program.rollback.is_some(),
        }
    }

    /// The service that the capability of this name is counted and frozen under: `custom.` and its first part.
    #[must_use]
    pub fn service_name(name: &str) -> Option<ServiceName> {
        let first = name.split('.').next().unwrap_or(name);
        is_name(name).then(|| ServiceName::new(format!("custom.{first}")).ok()).flatten()
    }

    /// What it adds to the catalogue under this name.
    #[must_use]
    pub fn capability(&self, name: &str) -> Option<Capability> {
        let is_write = self.effect == Effect::Write;
        Some(Capability {
            name: CapabilityName::new(name).ok()?,
            service: Some(Self::service_name(name)?),
            effect: self.effect,
            class: is_write.then(|| self.class.unwrap_or(EffectClass::Opaque)),
            reversible: self.has_rollback(),
            delay_s: if is_write { self.hold_seconds } else { 0 },
            summary: self.summary.clone(),
            params: self.arguments.iter().map(|(name, argument)| argument.param(name)).collect(),
            usual: Some(Tier::ApprovalRequired),
            schema: Some(self.arguments_schema()),
            definition: Some(self.digest.clone()),
            title: None,
            output: None,
            open: false,
        })
    }

    /// The JSON Schema of its arguments.
    #[must_use]
    pub fn arguments_schema(&self) -> Value {
        let properties: Map<String, Value> =
            self.arguments.iter().map(|(name, argument)| (name.clone(), argument.schema())).collect();
        let required: Vec<&String> =
            self.arguments.iter().filter(|(_, argument)| argument.required).map(|(name, _)| name).collect();
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    }

    /// Whether an attempt with an unclear outcome may be repeated: the service or the program recognises it, or it
    /// changes nothing the second time.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        let is_recognised = match &self.way {
            CustomImplementation::Request(request) => request.idempotency_header.is_some(),
            CustomImplementation::Program(_) => self.class == Some(EffectClass::ConsumeOnce),
        };
        self.effect == Effect::Read || self.class == Some(EffectClass::Absolute) || is_recognised
    }
}

impl CustomArgument {
    fn param(&self, name: &str) -> CapabilityParam {
        let kind = match self.kind {
            CustomArgumentKind::Text => ParamKind::Text,
            CustomArgumentKind::Integer => ParamKind::Integer,
            CustomArgumentKind::Number => ParamKind::Number,
            CustomArgumentKind::Boolean => ParamKind::Boolean,
            CustomArgumentKind::Texts => ParamKind::Texts,
            CustomArgumentKind::Object => ParamKind::Object,
        };
        let found = self.kind != CustomArgumentKind::Boolean && !is_prose(name);
        CapabilityParam {
            required: self.required,
            target: self.target.unwrap_or(found),
            object: self.object,
            about: self.about.clone(),
            choices: self.choices.clone(),
            ..CapabilityParam::new(name, kind)
        }
    }

    fn schema(&self) -> Value {
        let number = self.max.unwrap_or(u64::from(u32::MAX));
        let mut schema = match self.kind {
            CustomArgumentKind::Text if !self.choices.is_empty() => json!({"enum": self.choices}),
            CustomArgumentKind::Text => json!({"type": "string", "maxLength": self.max.unwrap_or(TEXT)}),
            CustomArgumentKind::Integer => json!({"type": "integer", "minimum": 0, "maximum": number}),
            CustomArgumentKind::Number => json!({"type": "number", "maximum": number}),
            CustomArgumentKind::Boolean => json!({"type": "boolean"}),
            CustomArgumentKind::Texts => {
                let item = json!({"type": "string", "maxLength": TEXT});
                json!({"type": "array", "items": item, "maxItems": self.max.unwrap_or(100)})
            }
            CustomArgumentKind::Object => json!({"type": "object"}),
        };
        if let (false, Some(fields)) = (self.about.is_empty(), schema.as_object_mut()) {
            fields.insert("description".into(), self.about.as_str().into());
        }
        schema
    }

    /// Whether a value is allowed.
    #[must_use]
    pub fn allows(&self, value: &Value) -> bool {
        let short = |text: &str, most: u64| text.chars().count() as u64 <= most;
        let number = self.max.unwrap_or(u64::from(u32::MAX));
        match (self.kind, value) {
            (CustomArgumentKind::Text, Value::String(text)) if !self.choices.is_empty() => self.choices.contains(text),
            (CustomArgumentKind::Text, Value::String(text)) => short(text, self.max.unwrap_or(TEXT)),
            (CustomArgumentKind::Integer, Value::Number(given)) => given.as_u64().is_some_and(|given| given <= number),
            (CustomArgumentKind::Number, Value::Number(given)) => {
                given.as_f64().is_some_and(|given| given.is_finite() && given <= number as f64)
            }
            (CustomArgumentKind::Boolean, Value::Bool(_)) => true,
            (CustomArgumentKind::Texts, Value::Array(items)) => {
                items.len() as u64 <= self.max.unwrap_or(100)
                    && items.iter().all(|item| item.as_str().is_some_and(|text| short(text, TEXT)))
            }
            (CustomArgumentKind::Object, Value::Object(_)) => true,
            _ => false,
        }
    }
}

impl RollbackTemplate {
    /// As an ordinary request.
    #[must_use]
    pub fn template(&self) -> RequestTemplate {
        let Self { method, path, query, body, repeatable: _ } = self.clone();
        RequestTemplate { method, path, query, headers: BTreeMap::new(), body }
    }
}

impl LookupTemplate {
    /// As an ordinary request.
    #[must_use]
    pub fn template(&self) -> RequestTemplate {
        let (path, query) = (self.path.clone(), self.query.clone());
        RequestTemplate { method: ProxyMethod::Get, path, query, headers: BTreeMap::new(), body: None }
    }
}

/// Whether a text can name a custom capability: one or two parts of small letters, digits, `-` and `_`.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase())
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b))
    };
    text.len() <= LONGEST_NAME && text.split('.').count() <= 2 && text.split('.').all(part)
}

#[cfg(test)]
mod tests;
