//! The client of a running gateway: one request, one answer, over HTTP and JSON.
//!
//! Takes the gateway's address and a credential ([`find`]); gives JSON, or a failure that people can read
//! ([`problem`]). Promise: the credential goes to that address and nowhere else (no proxy, no redirect), never
//! comes from the command line, and is never printed; requests that stop something go to the stop lane first.

mod find;
mod ids;
mod problem;
mod stream;

use std::path::Path;
use std::time::Duration;

use clap::Args;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Response};
use serde_json::Value;
use sluice_core::Millis;

use crate::failure::{CliError, CommandExit};
use crate::settings::ConfigFileArgs;

pub(crate) use find::{ClientCredentialKind, address_of, create_private_file};
pub(crate) use ids::ListedIdKind;
pub(crate) use stream::{EventStreamPoll, StreamEvent};

/// Timeout for connecting.
const CONNECT: Duration = Duration::from_secs(5);
/// Timeout for a response, in addition to the wait that was requested.
const ANSWER: Millis = Millis::from_secs(60);
/// Largest response that is read.
const LARGEST: usize = 256 << 20;
/// Entries per page of a list.
const PAGE: usize = 500;

/// Options that select the gateway.
#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    /// Address of the gateway; default: $SLUICE_URL, then the address in the configuration
    #[arg(long, global = true, value_name = "URL", help_heading = crate::GLOBAL_OPTIONS)]
    url: Option<String>,
    #[command(flatten)]
    which: ConfigFileArgs,
}

/// A client for one gateway.
#[derive(Debug)]
pub(crate) struct GatewayClient {
    runtime: tokio::runtime::Runtime,
    http: reqwest::Client,
    /// Main address, without a slash at the end.
    main: String,
    stop: Option<String>,
    credential: HeaderValue,
}

/// The raw HTTP connection to a gateway, for requests outside its JSON API.
#[derive(Debug)]
pub(crate) struct RawGatewayClient {
    http: reqwest::Client,
    main: String,
    credential: HeaderValue,
}

impl RawGatewayClient {
    /// The address, without a slash at the end.
    pub(crate) fn address(&self) -> &str {
        &self.main
    }

    /// A request that carries the credential. It has no timeout, because a stream may stay open.
    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.main)).header(AUTHORIZATION, self.credential.clone())
    }
}

/// One API request.
#[derive(Debug, Clone)]
pub(crate) struct ApiRequest {
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    body: Option<Value>,
    /// Whether the stop lane is tried first.
    stops: bool,
    /// How long the gateway is asked to wait.
    wait: Millis,
}

impl GatewayArgs {
    /// The configuration in use.
    pub(crate) fn which(&self) -> &ConfigFileArgs {
        &self.which
    }

    /// Whether a gateway was named, on the command line or by a variable.
    pub(crate) fn has_named_gateway(&self) -> Result<bool, CliError> {
        Ok(self.url.is_some() || crate::settings::variable("SLUICE_URL")?.is_some())
    }

    /// Opens a client with the operator's credential.
    pub(crate) fn open_operator_client(&self) -> Result<GatewayClient, CliError> {
        self.open_client(ClientCredentialKind::Operator)
    }

    /// Opens a client.
    pub(crate) fn open_client(&self, whose: ClientCredentialKind) -> Result<GatewayClient, CliError> {
        GatewayClient::open(find::find(self.url.clone(), &self.which, whose)?)
    }
}

impl GatewayClient {
    /// The main address, without a slash at the end.
    pub(crate) fn address(&self) -> &str {
        &self.main
    }

    /// A client for one address with the credential from one file; variables and configuration are ignored.
    pub(crate) fn with_key_file(url: &str, key_file: &Path) -> Result<Self, CliError> {
        Self::open(find::with_key_file(url, key_file)?)
    }

    fn open(found: find::GatewayClientParts) -> Result<Self, CliError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
            CliError::new(CommandExit::Failed, "the HTTP client cannot be set up").why(error.to_string())
        })?;
        Ok(Self { runtime, http: found.http, main: found.main, stop: found.stop, credential: found.credential })
    }
}

impl ApiRequest {
    fn new(method: Method, path: String) -> Self {
        Self { method, path, query: Vec::new(), body: None, stops: false, wait: Millis::ZERO }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path.into())
    }

    pub(crate) fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path.into())
    }

    pub(crate) fn put(path: impl Into<String>) -> Self {
        Self::new(Method::PUT, path.into())
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path.into())
    }

    /// Adds a query parameter if there is a value.
    pub(crate) fn with(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    pub(crate) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Tries the stop lane first.
    pub(crate) fn via_stop_lane(mut self) -> Self {
        self.stops = true;
        self
    }

    /// Asks the gateway to respond on a change, or after this long.
    pub(crate) fn with_wait(mut self, wait: Millis) -> Self {
        self.wait = wait;
        self
    }

    fn target(&self) -> String {
        let pairs = self.query.iter().map(|(name, value)| format!("{name}={}", encode(value)));
        let query = pairs.collect::<Vec<_>>().join("&");
        if query.is_empty() { self.path.clone() } else { format!("{}?{query}", self.path) }
    }
}

impl GatewayClient {
    /// The raw connection and the runtime it runs on.
    pub(crate) fn into_wire(self) -> (tokio::runtime::Runtime, RawGatewayClient) {
        (self.runtime, RawGatewayClient { http: self.http, main: self.main, credential: self.credential })
    }

    /// Sends a request and gives the JSON of the response, or null if it is empty. A problem document is a
    /// failure; any other JSON is a response, whatever its status (a blocked call is one).
    pub(crate) fn send(&self, ask: &ApiRequest) -> Result<Value, CliError> {
        self.runtime.block_on(async {
            let (response, base) = self.send_to_lane(ask).await?;
            match read(response, &base).await {
                // The stop lane refused the connection: nothing was done, so the main address may be tried.
                Err(failure) if base != self.main && is_full(&failure) => {
                    let sent = self.request(&self.main, ask).send().await;
                    read(sent.map_err(|error| problem::unreachable(&self.main, &error))?, &self.main).await
                }
                other => other,
            }
        })
    }

    /// A list: pages joined into one, up to `limit` entries.
    pub(crate) fn list(&self, ask: &ApiRequest, limit: usize) -> Result<Value, CliError> {
        let mut joined: Option<Value> = None;
        let mut cursor: Option<String> = None;
        loop {
            let had = joined.as_ref().map_or(0, |list| entries(list).len());
            let page = limit.saturating_sub(had).clamp(1, PAGE);
            let next = self.send(&ask.clone().with("limit", Some(page)).with("cursor", cursor.take()))?;
            cursor = next.get("next_cursor").and_then(Value::as_str).map(str::to_owned);
            let whole = match joined.take() {
                None => next,
                Some(mut before) => {
                    append(&mut before, next);
                    before
                }
            };
            if cursor.is_none() || entries(&whole).len() >= limit {
                return Ok(whole);
            }
            joined = Some(whole);
        }
    }

    /// A list without pages.
    pub(crate) fn get_all(&self, path: &str) -> Result<Value, CliError> {
        self.send(&ApiRequest::get(path))
    }

    /// Sends to the stop lane if it is wanted and reachable, otherwise to the main address.
    async fn send_to_lane(&self, ask: &ApiRequest) -> Result<(Response, String), CliError> {
        if let Some(stop) = self.stop.as_ref().filter(|_| ask.stops) {
            match self.request(stop, ask).send().await {
                Ok(response) => return Ok((response, stop.clone())),
                // Nothing was sent yet, so the main address may be tried.
                Err(error) if error.is_connect() => {}
                Err(error) => return Err(problem::unreachable(stop, &error)),
            }
        }
        let sent = self.request(&self.main, ask).send().await;
        let response = sent.map_err(|error| problem::unreachable(&self.main, &error))?;
        Ok((response, self.main.clone()))
    }

    fn request(&self, base: &str, ask: &ApiRequest) -> reqwest::RequestBuilder {
        let request = self
            .http
            .request(ask.method.clone(), format!("{base}{}", ask.target()))
            .header(AUTHORIZATION, self.credential.clone())
            .timeout((ANSWER + ask.wait).as_duration());
        match &ask.body {
            Some(body) => request.header(CONTENT_TYPE, "application/json").body(body.to_string()),
            None => request,
        }
    }
}

/// Whether a listener refused because it was overloaded.
fn is_full(failure: &CliError) -> bool {
    failure.problem.as_deref().is_some_and(|problem| text_field(problem, "code") == "door.overloaded")
}

/// The entries of a list.
pub(crate) fn entries(list: &Value) -> &[Value] {
    list.get("data").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A field as text; empty if there is none.
pub(crate) fn text_field<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A field in any form, as one line.
pub(crate) fn display_field(value: &Value, name: &str) -> String {
    value.get(name).map_or_else(|| "-".into(), crate::escape::value)
}

fn append(list: &mut Value, next: Value) {
    let Value::Object(mut next) = next else { return };
    if let (Some(all), Some(Value::Array(more))) =
        (list.get_mut("data").and_then(Value::as_array_mut), next.remove("data"))
    {
        all.extend(more);
    }
    if let Some(list) = list.as_object_mut() {
        list.extend(next);
    }
}

/// Reads a response within limits.
async fn read(mut response: Response, base: &str) -> Result<Value, CliError> {
    let status = response.status().as_u16();
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| problem::unreachable(base, &error))? {
        if bytes.len() + chunk.len() > LARGEST {
            return Err(problem::not_a_gateway_error(base, "its response is too large"));
        }
        bytes.extend_from_slice(&chunk);
    }
    if bytes.is_empty() && response.status().is_success() {
        return Ok(Value::Null);
    }
    let body: Value = serde_json::from_slice(&bytes)
        .map_err(|_| problem::not_a_gateway_error(base, &format!("it responded {status} without JSON")))?;
    match kind.split(';').next().unwrap_or_default() {
        "application/json" => Ok(body),
        "application/problem+json" => Err(problem::failure(&body)),
        other => Err(problem::not_a_gateway_error(
            base,
            &format!("it responded {status} with content type `{}`", crate::escape::escape_line(other)),
        )),
    }
}

/// A value as part of a query or path.
pub(crate) fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_encoded_in_addresses() {
        let ask = ApiRequest::get("/v1/holds")
            .with("state", Some("held,done&x=ü"))
            .with("agent", None::<String>)
            .with("limit", Some(5));
        assert_eq!(ask.target(), "/v1/holds?state=held%2Cdone%26x%3D%C3%BC&limit=5");
    }

    #[test]
    fn pages_are_joined_and_end_where_the_last_one_ends() {
        let mut list = json!({"data": [1, 2], "next_cursor": "b", "has_more": true});
        append(&mut list, json!({"data": [3], "next_cursor": null, "has_more": false}));
        assert_eq!(list, json!({"data": [1, 2, 3], "next_cursor": null, "has_more": false}));
    }
}
