//! Routes as data: the address, who may use it, what it takes and what it can answer.
//!
//! The table drives the router, the access check, the API description and the test that calls every route
//! with every kind of credential.

use std::sync::Arc;

use http::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_core::Actor;
use sluice_core::ids::RequestId;
use sluice_core::refusal::{Code, Refusal};
use sluice_gateway::Gateway;
use sluice_store::{OperatorRole, Store};

use super::reply::HttpReply;
use super::{METHODS, routes};

use sluice_core::BoxedFuture;
pub use sluice_gateway::rooms::identity::CredentialKind;
use sluice_gateway::rooms::identity::Principal;
use sluice_services::CallError;

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteAccess {
    /// Everyone, without a credential.
    Open,
    /// Only agents.
    Agent,
    /// Operators with at least this role.
    Operator(OperatorRole),
    /// Services that hand in the replies of people.
    Inbox,
    /// Agents, for themselves; operators with at least this role, for all agents.
    Either(OperatorRole),
    /// Programs with a task key, for their agent; operators with at least this role, for all agents.
    Task(OperatorRole),
    /// Agents and programs with a task key, for that agent; operators with at least this role, for all agents.
    Sessions(OperatorRole),
}

/// Which listener serves a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerLane {
    /// The main listener serves all routes.
    Main,
    /// The stop lane serves the routes that stop things and show them.
    Stop,
}

/// A JSON Schema, generated when the description is printed.
pub type SchemaBuilder = fn(&mut schemars::SchemaGenerator) -> schemars::Schema;

/// A query parameter.
#[derive(Debug, Clone, Copy)]
pub struct QueryParam {
    /// The name of the parameter.
    pub name: &'static str,
    /// `string`, `integer` or `boolean`.
    pub kind: &'static str,
    /// The description of the parameter.
    pub about: &'static str,
}

/// One address with one method.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// The HTTP method.
    pub method: &'static str,
    /// The path, with `{name}` for its parts.
    pub path: &'static str,
    /// A name for generated clients.
    pub name: &'static str,
    /// A description in one sentence.
    pub about: &'static str,
    /// Who may use the route.
    pub access: RouteAccess,
    /// Whether the stop lane serves it too.
    pub stops: bool,
    /// The query parameters.
    pub query: &'static [QueryParam],
    /// The schema of the body, if it takes one.
    pub body: Option<SchemaBuilder>,
    /// The possible answers: status and schema (none for a stream or an empty body).
    pub answers: &'static [(u16, Option<SchemaBuilder>)],
    /// The codes it can refuse with, in addition to those of every route.
    pub refusals: &'static [Code],
    /// The function that does the work.
    pub handler: RouteHandler,
}

/// The function that does the work of a route.
pub type RouteHandler = fn(RoutedRequest) -> BoxedFuture<'static, Result<HttpReply, CallError>>;

/// One request on its way to a handler.
#[derive(Debug)]
pub struct RoutedRequest {
    /// The gateway.
    pub gw: Arc<Gateway>,
    /// The database, over the connection of the listener that the request came by.
    pub store: Arc<Store>,
    /// The principal, unless the route is open.
    pub who: Option<Principal>,
    /// The parts of the path.
    pub params: Vec<(String, String)>,
    /// The parts of the query.
    pub query: Vec<(String, String)>,
    /// The body of the request, if there is one.
    pub body: Option<Value>,
    /// The id of the request.
    pub request: RequestId,
    /// The last event id, to continue an interrupted stream.
    pub last_event: Option<String>,
    /// The idempotency key of the request.
    pub idempotency_key: Option<String>,
    /// The listener that the request came by.
    pub lane: ListenerLane,
}

/// The codes that every route can refuse with.
pub const ALWAYS: [Code; 10] = [
    Code::DoorHeadTooLarge,
    Code::DoorHeaders,
    Code::DoorParameter,
    Code::DoorOrigin,
    Code::DoorOverloaded,
    Code::SchemaBadName,
    Code::SchemaWrongType,
    Code::GatewayInternal,
    Code::GatewayUnavailable,
    Code::StoreUnavailable,
];
/// The codes that every route with a credential can refuse with.
pub const KEYED: [Code; 6] = [
    Code::IdentityMissing,
    Code::IdentityUnknown,
    Code::IdentityRevoked,
    Code::IdentityExpired,
    Code::IdentityWrongKind,
    Code::IdentityNotAllowed,
];
/// The codes that every route with a body can refuse with.
pub const BODIED: [Code; 9] = [
    Code::DoorTooLarge,
    Code::DoorTooSlow,
    Code::DoorMediaType,
    Code::JsonTooLarge,
    Code::JsonTooDeep,
    Code::JsonTooManyItems,
    Code::JsonLossyNumber,
    Code::JsonDuplicateKey,
    Code::JsonSyntax,
];

impl RouteAccess {
    /// Checks whether this principal may use the route.
    ///
    /// # Errors
    /// When the credential is of the wrong kind or has too small a role.
    pub fn admits(self, principal: &Principal) -> Result<(), CallError> {
        match (self.least(), principal.credential()) {
            (Some(least), CredentialKind::Operator(role)) if role < least => {
                Err(CallError::new(Code::IdentityNotAllowed))
            }
            (_, credential) if self.takes(credential) => Ok(()),
            _ => Err(CallError::new(Code::IdentityWrongKind)),
        }
    }

    /// Whether credentials of this kind work here at all.
    #[must_use]
    pub const fn takes(self, credential: CredentialKind) -> bool {
        match (self, credential) {
            (Self::Open, _)
            | (Self::Agent | Self::Either(_) | Self::Sessions(_), CredentialKind::Agent)
            | (Self::Task(_) | Self::Sessions(_), CredentialKind::Task)
            | (Self::Inbox, CredentialKind::Inbox)
            | (Self::Operator(_) | Self::Either(_) | Self::Task(_) | Self::Sessions(_), CredentialKind::Operator(_)) => {
                true
            }
            (Self::Agent, CredentialKind::Task | CredentialKind::Inbox | CredentialKind::Operator(_))
            | (Self::Inbox, CredentialKind::Agent | CredentialKind::Task | CredentialKind::Operator(_))
            | (Self::Operator(_), CredentialKind::Agent | CredentialKind::Task | CredentialKind::Inbox)
            | (Self::Either(_), CredentialKind::Task | CredentialKind::Inbox)
            | (Self::Task(_), CredentialKind::Agent | CredentialKind::Inbox)
            | (Self::Sessions(_), CredentialKind::Inbox) => false,
        }
    }

    /// The least role that an operator needs here, if operators may use the route.
    #[must_use]
    pub const fn least(self) -> Option<OperatorRole> {
        match self {
            Self::Operator(least) | Self::Either(least) | Self::Task(least) | Self::Sessions(least) => Some(least),
            Self::Open | Self::Agent | Self::Inbox => None,
        }
    }
}

impl Route {
    /// Every code that it can refuse with, each once, in order.
    #[must_use]
    pub fn codes(&self) -> Vec<Code> {
        let keyed: &[Code] = if self.access == RouteAccess::Open { &[] } else { &KEYED };
        let bodied: &[Code] = if self.body.is_some() { &BODIED } else { &[] };
        let mut codes: Vec<Code> = [self.refusals, &ALWAYS, keyed, bodied].concat();
        codes.sort_unstable();
        codes.dedup();
        codes
    }
}

/// The router: one tree per method.
pub struct RouteTable {
    trees: Vec<(Method, matchit::Router<&'static Route>)>,
}

impl std::fmt::Debug for RouteTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Routes")
    }
}

/// A route and the parts of the path.
#[derive(Debug)]
pub struct MatchedRoute {
    /// The route.
    pub route: &'static Route,
    /// The parts, decoded.
    pub params: Vec<(String, String)>,
}

impl RouteTable {
    /// The router of a lane.
    ///
    /// # Errors
    /// When two routes conflict.
    pub fn new(lane: ListenerLane) -> Result<Self, CallError> {
        let mut trees = Vec::new();
        for method in METHODS {
            let mut tree = matchit::Router::new();
            for route in routes::all().filter(|route| route.method == method.as_str()) {
                if lane == ListenerLane::Main || route.stops {
                    let twice = |error: matchit::InsertError| Refusal::new(Code::GatewayInternal).with_source(error);
                    tree.insert(route.path, route).map_err(twice)?;
                }
            }
            trees.push((method, tree));
        }
        Ok(Self { trees })
    }

    /// The route at an address.
    ///
    /// # Errors
    /// When there is no route at this address, or not for this method.
    pub fn find(&self, method: &Method, path: &str) -> Result<MatchedRoute, CallError> {
        let mut elsewhere = false;
        for (own, tree) in &self.trees {
            let Ok(found) = tree.at(path) else { continue };
            if own != method {
                elsewhere = true;
                continue;
            }
            let params = found.params.iter().map(|(name, value)| Ok((name.to_owned(), super::decode(value)?)));
            return Ok(MatchedRoute { route: found.value, params: params.collect::<Result<_, CallError>>()? });
        }
        if elsewhere {
            return Err(CallError::new(Code::DoorMethod));
        }
        // A client whose key was refused looks for a sign-in here, and shows people the answer in place of the refusal.
        if path.starts_with(SIGN_IN_METADATA) || SIGN_IN.contains(&path) {
            return Err(CallError::with_text(Code::DoorNotFound, NO_SIGN_IN));
        }
        Err(CallError::new(Code::DoorNotFound))
    }
}

/// Where MCP clients look for an authorization server.
const SIGN_IN_METADATA: &str = "/.well-known/o";
const SIGN_IN: [&str; 3] = ["/register", "/authorize", "/token"];
const NO_SIGN_IN: &str = "this gateway has no OAuth sign-in: the client has no agent key, or a wrong one; set the key of \
                          the agent in the client's `Authorization: Bearer` header";

impl RoutedRequest {
    /// The principal of the request.
    ///
    /// # Errors
    /// On an open route, which has no principal.
    pub fn principal(&self) -> Result<&Principal, CallError> {
        self.who.as_ref().ok_or_else(|| CallError::new(Code::IdentityMissing))
    }

    /// The principal as the audit log knows it.
    ///
    /// # Errors
    /// When the credential belongs to no actor.
    pub fn actor(&self) -> Result<Actor, CallError> {
        self.principal()?.actor().ok_or_else(|| CallError::new(Code::IdentityWrongKind))
    }

    /// A part of the path, parsed.
    ///
    /// # Errors
    /// When it cannot be parsed.
    pub fn path_param<T: std::str::FromStr>(&self, name: &str) -> Result<T, CallError> {
        let text = self.params.iter().find(|(part, _)| part == name).map_or("", |(_, value)| value);
        text.parse().map_err(|_| CallError::new(Code::SchemaBadName))
    }

    /// A part of the query, parsed.
    ///
    /// # Errors
    /// When it is given and cannot be parsed.
    pub fn query_param<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, CallError> {
        match self.query.iter().find(|(part, _)| part == name) {
            None => Ok(None),
            Some((_, text)) => text.parse().map(Some).map_err(|_| {
                CallError::with_text(Code::DoorParameter, &format!("the parameter `{name}` has the wrong form"))
            }),
        }
    }

    /// The page size, within its bounds.
    ///
    /// # Errors
    /// When it is not a number, or out of bounds.
    pub fn limit(&self) -> Result<u32, CallError> {
        let limit = self.query_param::<u32>("limit")?.unwrap_or(50);
        if (1..=500).contains(&limit) {
            return Ok(limit);
        }
        Err(CallError::with_text(Code::DoorParameter, "limit is between 1 and 500"))
    }

    /// How long to wait, within its bounds. The stop lane never waits.
    ///
    /// # Errors
    /// When it is not a number.
    pub fn wait(&self) -> Result<sluice_core::Millis, CallError> {
        let ms = self.query_param::<u64>("wait_ms")?.unwrap_or(0);
        if self.lane == ListenerLane::Stop {
            return Ok(sluice_core::Millis::ZERO);
        }
        Ok(sluice_core::Millis::from_millis(ms).min(sluice_gateway::rooms::hold::LONGEST_WAIT))
    }

    /// The body as a typed value.
    ///
    /// # Errors
    /// When it has another form.
    pub fn parse_body<T: DeserializeOwned>(&mut self) -> Result<T, CallError> {
        super::body::read(self.body.take().unwrap_or_default())
    }
}
