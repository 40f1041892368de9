//! Google's own description of the API, for checking requests.
//!
//! Read from the file that `SLUICE_TEST_GMAIL_DISCOVERY` names: `gmail.v1.json` out of the Python package
//! `google-api-python-client` (`googleapiclient/discovery_cache/documents/`). It is not part of this repository.

use std::io::Write as _;

use serde_json::Value;
use sluice_adapters::net::NetRequest;

use super::super::form;

pub struct GmailApiDescription(Value);

impl GmailApiDescription {
    /// The description; `None` if it is not available, with a message.
    #[expect(clippy::disallowed_methods, reason = "a test: where its counterpart is comes from outside")]
    pub fn read() -> Option<Self> {
        match std::env::var("SLUICE_TEST_GMAIL_DISCOVERY") {
            Ok(path) => Some(Self(serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())),
            Err(_) => {
                assert!(std::env::var("SLUICE_TEST_STRICT").is_err(), "SLUICE_TEST_GMAIL_DISCOVERY is not set");
                drop(writeln!(std::io::stderr(), "skipped: SLUICE_TEST_GMAIL_DISCOVERY is not set"));
                None
            }
        }
    }

    /// Whether a request is one of the described methods, with valid parameters and body.
    pub fn check(&self, request: &NetRequest) -> Result<(), String> {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let mut methods = Vec::new();
        collect(&self.0["resources"], &mut methods);
        let method = methods
            .into_iter()
            .find(|m| m["httpMethod"] == request.method.as_str() && fits(m["path"].as_str().unwrap_or(""), path))
            .ok_or("no such method")?;
        let known = |name: &str| {
            let own = &method["parameters"][name];
            if own.is_null() { &self.0["parameters"][name] } else { own }
        };
        for (name, value) in form(query) {
            let parameter = known(&name);
            if parameter.is_null() {
                return Err(format!("no parameter `{name}`"));
            }
            if let Some(allowed) = parameter["enum"].as_array()
                && !allowed.iter().any(|one| *one == value.as_str())
            {
                return Err(format!("`{name}` does not take `{value}`"));
            }
            let fine = match parameter["type"].as_str() {
                Some("integer") => value.parse::<u64>().is_ok(),
                Some("boolean") => ["true", "false"].contains(&value.as_str()),
                _ => true,
            };
            if !fine {
                return Err(format!("`{name}` is of another type"));
            }
        }
        match method["request"]["$ref"].as_str() {
            None if request.body.is_empty() => Ok(()),
            None => Err("it takes no body".into()),
            Some(_) if request.body.is_empty() => Err("it needs a body".into()),
            Some(schema) => {
                let body: Value = serde_json::from_slice(&request.body).map_err(|error| error.to_string())?;
                self.shape(schema, &body)
            }
        }
    }

    fn shape(&self, schema: &str, value: &Value) -> Result<(), String> {
        let properties = &self.0["schemas"][schema]["properties"];
        for (name, value) in value.as_object().ok_or("no object")? {
            let property = &properties[name];
            if property.is_null() {
                return Err(format!("{schema} has no `{name}`"));
            }
            match (property["$ref"].as_str(), property["type"].as_str()) {
                (Some(inner), _) => self.shape(inner, value)?,
                (None, Some("string")) if value.is_string() => {}
                (None, Some("array")) if value.is_array() => {}
                (None, other) => return Err(format!("{schema}.{name} is {other:?}")),
            }
        }
        Ok(())
    }
}

fn collect<'d>(resources: &'d Value, found: &mut Vec<&'d Value>) {
    for resource in resources.as_object().into_iter().flat_map(|map| map.values()) {
        found.extend(resource["methods"].as_object().into_iter().flat_map(|map| map.values()));
        collect(&resource["resources"], found);
    }
}

fn fits(template: &str, path: &str) -> bool {
    let (mut want, mut have) = (template.split('/'), path.trim_start_matches('/').split('/'));
    loop {
        match (want.next(), have.next()) {
            (None, None) => return true,
            (Some(want), Some(have)) if want.starts_with('{') && !have.is_empty() => {}
            (Some(want), Some(have)) if want == have => {}
            _ => return false,
        }
    }
}
