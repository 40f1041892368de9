//! Routes as data: what is at which address, who may use it, what it takes and what it can answer.
//!
//! The table drives the router, the access check, the API description and the test that walks every route
//! with every kind of credential.

use std::sync::Arc;

use http::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_core::Actor;
use sluice_core::ids::RequestId;
use sluice_core::refusal::{Code, Refusal};
use sluice_store::{Role, Store};

use super::METHODS;
use super::reply::Reply;
use super::routes;
pub use crate::rooms::identity::Credential;
use crate::rooms::identity::Visitor;
use crate::services::Work;
use crate::{Gateway, No};

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anyone.
    Open,
    /// Agents.
    Agent,
    /// Operators with at least this role.
    Operator(Role),
    /// Mailboxes and pollers that hand in the replies of people.
    Inbox,
    /// Agents, about themselves; operators with at least this role, about everyone.
    Either(Role),
    /// Programs with a task key, for their agent; operators with at least this role, for everyone.
    Task(Role),
    /// Agents and programs with a task key, for that agent; operators with at least this role, for everyone.
    Sessions(Role),
}

/// Which listener serves a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// The main one serves everything.
    Main,
    /// The stop lane serves what stops things and what shows them.
    Stop,
}

/// A JSON Schema, made when the description is printed.
pub type Shape = fn(&mut schemars::SchemaGenerator) -> schemars::Schema;

/// A query parameter.
#[derive(Debug, Clone, Copy)]
pub struct Param {
    /// Its name.
    pub name: &'static str,
    /// `string`, `integer` or `boolean`.
    pub kind: &'static str,
    /// What it does.
    pub about: &'static str,
}

/// One address with one method.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// The method.
    pub method: &'static str,
    /// The path, with `{name}` for its parts.
    pub path: &'static str,
    /// A name for generated clients.
    pub name: &'static str,
    /// One sentence.
    pub about: &'static str,
    /// Who.
    pub access: Access,
    /// Whether the stop lane serves it too.
    pub stops: bool,
    /// What the query takes.
    pub query: &'static [Param],
    /// The body, if it takes one.
    pub body: Option<Shape>,
    /// What it answers with: status, shape (none for a stream or an empty body).
    pub answers: &'static [(u16, Option<Shape>)],
    /// How it can refuse, beside what every route can.
    pub refusals: &'static [Code],
    /// What does the work.
    pub handler: Handler,
}

/// What does the work.
pub type Handler = fn(Visit) -> Work<'static, Result<Reply, No>>;

/// One request on its way to a handler.
#[derive(Debug)]
pub struct Visit {
    /// The gateway.
    pub gw: Arc<Gateway>,
    /// The database, asked over the connection of the listener this came by.
    pub store: Arc<Store>,
    /// Who, unless the route is open.
    pub who: Option<Visitor>,
    /// Parts of the path.
    pub params: Vec<(String, String)>,
    /// Parts of the query.
    pub query: Vec<(String, String)>,
    /// The body.
    pub body: Option<Value>,
    /// The request.
    pub request: RequestId,
    /// Where an interrupted stream left off.
    pub last_event: Option<String>,
    /// The caller's name for this request.
    pub idempotency_key: Option<String>,
    /// Which listener it came by.
    pub lane: Lane,
}

/// What every route can refuse with.
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
/// What every route that wants a credential can refuse with.
pub const KEYED: [Code; 6] = [
    Code::IdentityMissing,
    Code::IdentityUnknown,
    Code::IdentityRevoked,
    Code::IdentityExpired,
    Code::IdentityWrongKind,
    Code::IdentityNotAllowed,
];
/// What every route that takes a body can refuse with.
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

impl Access {
    /// Whether this visitor may come in.
    ///
    /// # Errors
    /// When the credential is of the wrong kind or has too small a role.
    pub fn admits(self, visitor: &Visitor) -> Result<(), No> {
        match (self.least(), visitor.credential()) {
            (Some(least), Credential::Operator(role)) if role < least => Err(No::new(Code::IdentityNotAllowed)),
            (_, credential) if self.takes(credential) => Ok(()),
            _ => Err(No::new(Code::IdentityWrongKind)),
        }
    }

    /// Whether credentials of this kind work here at all.
    #[must_use]
    pub const fn takes(self, credential: Credential) -> bool {
        match (self, credential) {
            (Self::Open, _)
            | (Self::Agent | Self::Either(_) | Self::Sessions(_), Credential::Agent)
            | (Self::Task(_) | Self::Sessions(_), Credential::Task)
            | (Self::Inbox, Credential::Inbox)
            | (Self::Operator(_) | Self::Either(_) | Self::Task(_) | Self::Sessions(_), Credential::Operator(_)) => {
                true
            }
            (Self::Agent, Credential::Task | Credential::Inbox | Credential::Operator(_))
            | (Self::Inbox, Credential::Agent | Credential::Task | Credential::Operator(_))
            | (Self::Operator(_), Credential::Agent | Credential::Task | Credential::Inbox)
            | (Self::Either(_), Credential::Task | Credential::Inbox)
            | (Self::Task(_), Credential::Agent | Credential::Inbox)
            | (Self::Sessions(_), Credential::Inbox) => false,
        }
    }

    /// The least role an operator needs here, where operators may come at all.
    #[must_use]
    pub const fn least(self) -> Option<Role> {
        match self {
            Self::Operator(least) | Self::Either(least) | Self::Task(least) | Self::Sessions(least) => Some(least),
            Self::Open | Self::Agent | Self::Inbox => None,
        }
    }
}

impl Route {
    /// Every code it can refuse with, each once, in order.
    #[must_use]
    pub fn codes(&self) -> Vec<Code> {
        let keyed: &[Code] = if self.access == Access::Open { &[] } else { &KEYED };
        let bodied: &[Code] = if self.body.is_some() { &BODIED } else { &[] };
        let mut codes: Vec<Code> = [self.refusals, &ALWAYS, keyed, bodied].concat();
        codes.sort_unstable();
        codes.dedup();
        codes
    }
}

/// The router: one tree per method.
pub struct Routes {
    trees: Vec<(Method, matchit::Router<&'static Route>)>,
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Routes")
    }
}

/// A route and the parts of the path.
#[derive(Debug)]
pub struct Matched {
    /// The route.
    pub route: &'static Route,
    /// The parts, decoded.
    pub params: Vec<(String, String)>,
}

impl Routes {
    /// The router of a lane.
    ///
    /// # Errors
    /// When two routes contradict each other.
    pub fn new(lane: Lane) -> Result<Self, No> {
        let mut trees = Vec::new();
        for method in METHODS {
            let mut tree = matchit::Router::new();
            for route in routes::all().filter(|route| route.method == method.as_str()) {
                if lane == Lane::Main || route.stops {
                    let twice = |error: matchit::InsertError| Refusal::new(Code::GatewayInternal).because(error);
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
    /// When there is nothing there, or not for this method.
    pub fn find(&self, method: &Method, path: &str) -> Result<Matched, No> {
        let mut elsewhere = false;
        for (own, tree) in &self.trees {
            let Ok(found) = tree.at(path) else { continue };
            if own != method {
                elsewhere = true;
                continue;
            }
            let params = found.params.iter().map(|(name, value)| Ok((name.to_owned(), super::decode(value)?)));
            return Ok(Matched { route: found.value, params: params.collect::<Result<_, No>>()? });
        }
        Err(No::new(if elsewhere { Code::DoorMethod } else { Code::DoorNotFound }))
    }
}

impl Visit {
    /// Who it is.
    ///
    /// # Errors
    /// On an open route, where nobody is known.
    pub fn visitor(&self) -> Result<&Visitor, No> {
        self.who.as_ref().ok_or_else(|| No::new(Code::IdentityMissing))
    }

    /// Who it is, as the record knows them.
    ///
    /// # Errors
    /// When the credential acts for nobody.
    pub fn actor(&self) -> Result<Actor, No> {
        self.visitor()?.actor().ok_or_else(|| No::new(Code::IdentityWrongKind))
    }

    /// A part of the path, in its own form.
    ///
    /// # Errors
    /// When it is not in that form.
    pub fn part<T: std::str::FromStr>(&self, name: &str) -> Result<T, No> {
        let text = self.params.iter().find(|(part, _)| part == name).map_or("", |(_, value)| value);
        text.parse().map_err(|_| No::new(Code::SchemaBadName))
    }

    /// A part of the query, in its own form.
    ///
    /// # Errors
    /// When it is given and not in that form.
    pub fn asked<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, No> {
        match self.query.iter().find(|(part, _)| part == name) {
            None => Ok(None),
            Some((_, text)) => text.parse().map(Some).map_err(|_| {
                No::saying(Code::DoorParameter, &format!("the parameter `{name}` is not in its proper form"))
            }),
        }
    }

    /// How many at most, within bounds.
    ///
    /// # Errors
    /// When it is no number, or out of bounds.
    pub fn limit(&self) -> Result<u32, No> {
        let limit = self.asked::<u32>("limit")?.unwrap_or(50);
        if (1..=500).contains(&limit) {
            return Ok(limit);
        }
        Err(No::saying(Code::DoorParameter, "limit is between 1 and 500"))
    }

    /// How long to wait, within bounds. The stop lane has no places for those who wait.
    ///
    /// # Errors
    /// When it is no number.
    pub fn wait(&self) -> Result<sluice_core::Span, No> {
        let ms = self.asked::<u64>("wait_ms")?.unwrap_or(0);
        if self.lane == Lane::Stop {
            return Ok(sluice_core::Span::ZERO);
        }
        Ok(sluice_core::Span::from_millis(ms).min(crate::rooms::hold::LONGEST_WAIT))
    }

    /// The body, as one of our own shapes.
    ///
    /// # Errors
    /// When it is another one.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<T, No> {
        super::body::read(self.body.take().unwrap_or_default())
    }
}
