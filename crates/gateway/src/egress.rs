//! Egress: the only way out.
//!
//! Takes a request and the right to make it; gives the answer, or why not and how far it came. Everything a request
//! must pass is in `Egress::send`, as straight-line calls. Promise: nothing leaves to a host, port, path or address
//! that configuration does not open; credentials are added here and removed from what comes back; nothing is retried
//! that may have left.

pub mod address;
pub mod allow;
pub mod credential;
mod form;
mod headers;
mod limiter;
pub mod no;
mod pool;
mod reply;
pub mod ssrf;
mod state;
pub mod ticket;
mod trip;
pub mod wire;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use http::Method;
use sluice_content::leak::{LiveSecrets, Scope as LeakScope};
use sluice_core::ids::{ConnectionName, JobId, SecretName};
use sluice_core::{Actor, AgentName, Clock, Entropy, Span};
use sluice_store::{EgressState, Store, StoreError};
use tokio::time::{Instant, timeout_at};

use crate::open::World;
use crate::rooms::leak::{Outgoing, Scan};
use crate::vault::{Use, Vault, VaultError};

pub use address::Target;
pub use allow::{Connection, HostPattern, PathPattern, is_read};
pub use credential::{Credential, Placement};
pub use form::Form;
pub use no::{EgressNo, Failed, Phase, What};
pub use ticket::{Operation, Scope, Ticket};

use limiter::Limiter;
use pool::Pool;
use state::Versions;
use ticket::{Grant, Tickets};
use trip::{Load, Trip};
use wire::Wire;

/// The largest body of a request.
const LARGEST_BODY: usize = 32 << 20;

/// A request on its way out.
#[derive(Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Where to, as it was written.
    pub url: String,
    /// Headers the caller wants.
    pub headers: Vec<(String, String)>,
    /// What it carries.
    pub body: Bytes,
    /// Whether redirects of a read are followed.
    pub follow: bool,
    /// How long it may take, if shorter than the connection allows.
    pub timeout: Option<Span>,
}

impl Request {
    /// A plain read.
    #[must_use]
    pub fn get(url: &str) -> Self {
        let (url, headers, body) = (url.to_owned(), Vec::new(), Bytes::new());
        Self { method: Method::GET, url, headers, body, follow: true, timeout: None }
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("method", &self.method).field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

/// An answer, free of credentials, not yet looked at by anyone.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Headers that describe it.
    pub headers: Vec<(String, String)>,
    /// Its bytes, inflated.
    pub body: Bytes,
    /// Where it came from in the end.
    pub url: String,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").field("status", &self.status).field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

/// What a request is made with.
struct Pass<'a> {
    connection: &'a Connection,
    credential: Option<&'a Credential>,
    grant: Option<&'a Grant>,
    /// A body nobody looks through, in the place of the request's own.
    sealed: Option<Bytes>,
}

/// The way out of one gateway.
pub struct Egress {
    connections: RwLock<HashMap<ConnectionName, Arc<Connection>>>,
    wire: Wire,
    pool: Pool,
    limiter: Limiter,
    tickets: Tickets,
    versions: Versions,
    store: Arc<Store>,
    vault: Arc<Vault>,
    scan: Arc<dyn Scan>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl std::fmt::Debug for Egress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Egress").field("tickets", &self.tickets.len()).finish_non_exhaustive()
    }
}

impl Egress {
    /// A way out over this wire.
    #[must_use]
    pub fn new(store: Arc<Store>, vault: Arc<Vault>, scan: Arc<dyn Scan>, wire: Wire, world: &World) -> Self {
        let World { clock, ids, entropy, .. } = world;
        let limiter = Limiter::new(Arc::clone(&store), Arc::clone(clock), Arc::clone(ids), Arc::clone(entropy));
        Self {
            connections: RwLock::default(),
            wire,
            pool: Pool::default(),
            limiter,
            tickets: Tickets::default(),
            versions: Versions::default(),
            store,
            vault,
            scan,
            clock: Arc::clone(clock),
            entropy: Arc::clone(entropy),
        }
    }

    /// Opens a connection, or changes one.
    pub fn open(&self, connection: Connection) {
        self.pool.let_go(&connection.name);
        let mut all = self.connections.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(connection.name.clone(), Arc::new(connection));
    }

    /// Closes a connection. Its tickets are good for nothing from now on.
    pub fn close(&self, name: &ConnectionName) {
        self.pool.let_go(name);
        self.connections.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        self.tickets.of_connection(name);
    }

    /// Takes a connection away from whoever comes next. Tickets that were lent stay good to their end.
    pub(crate) fn retire(&self, name: &ConnectionName) {
        self.pool.let_go(name);
        self.connections.write().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Whether a text holds what would not be let out.
    pub(crate) fn must_stay(&self, text: &str, scope: LeakScope) -> bool {
        let outgoing = Outgoing { url: "", headers: &[], body: text.as_bytes(), scope };
        !self.scan.outgoing(&outgoing).is_empty()
    }

    /// The secrets of the vault, as far as they are looked for in what leaves and taken out of what comes in.
    pub(crate) fn secrets(&self) -> Arc<LiveSecrets> {
        self.scan.live()
    }

    /// The connection of this name.
    #[must_use]
    pub fn connection(&self, name: &ConnectionName) -> Option<Arc<Connection>> {
        self.connections.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// All connections, by name.
    #[must_use]
    pub fn connections(&self) -> Vec<Arc<Connection>> {
        let all = self.connections.read().unwrap_or_else(PoisonError::into_inner);
        let mut list: Vec<_> = all.values().cloned().collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    }

    /// The connection an agent's own request takes: the first, by name, that is open to it and admits the request.
    ///
    /// # Errors
    /// Why the last one that could have been meant does not.
    pub fn route(&self, agent: &AgentName, method: &Method, target: &Target) -> Result<Arc<Connection>, EgressNo> {
        let mut why = EgressNo::NotAllowed("no connection of this agent reaches this host".into());
        for connection in self.connections() {
            if !connection.agents.as_ref().is_some_and(|agents| agents.contains(agent)) {
                continue;
            }
            match connection.admit(method, target) {
                Ok(()) => return Ok(connection),
                Err(no) if connection.hosts.iter().any(|host| host.matches(target.host())) => why = no,
                Err(_) => {}
            }
        }
        Err(why)
    }

    /// Lends a worker the right to make some requests.
    ///
    /// # Errors
    /// When there is no such connection, it reaches none of these hosts, or its credential is not for them.
    pub async fn issue(&self, connection: &ConnectionName, scope: Scope) -> Result<Ticket, EgressNo> {
        let no = || EgressNo::NotAllowed("there is no such connection".into());
        let connection = self.connection(connection).ok_or_else(no)?;
        let reached = |host: &String| connection.hosts.iter().any(|pattern| pattern.matches(host));
        if scope.hosts.is_empty() || !scope.hosts.iter().all(reached) {
            return Err(EgressNo::NotAllowed("the connection does not reach these hosts".into()));
        }
        let credential = match &connection.credential {
            None => None,
            Some((name, placement)) => {
                // What is known from here on is what a later change is compared with.
                self.refresh().await?;
                let wanted = Use {
                    capability: &scope.capability,
                    connection: &connection.name,
                    hosts: &scope.hosts,
                    by: scope.by.clone(),
                };
                Some((name.clone(), self.lend(name, placement, &wanted).await?))
            }
        };
        let now = self.clock.since_boot();
        Ok(self.tickets.issue(Grant::new(connection, credential, scope, now), self.entropy.as_ref(), now))
    }

    async fn lend(&self, name: &SecretName, placement: &Placement, wanted: &Use<'_>) -> Result<Credential, EgressNo> {
        Credential::new(self.vault.take(name, wanted).await?, placement.clone())
    }

    /// One exchange of a worker.
    ///
    /// # Errors
    /// When the ticket is not good for it, and as `Egress::send`.
    pub async fn exchange(&self, ticket: &Ticket, request: Request) -> Result<Answer, EgressNo> {
        let grant = self.tickets.find(ticket, self.clock.since_boot())?;
        let credential = grant.credential.as_deref();
        self.send(Pass { connection: &grant.connection, credential, grant: Some(&grant), sealed: None }, request).await
    }

    /// A job has ended: its tickets are good for nothing.
    pub fn end_job(&self, job: JobId) {
        self.tickets.end(job);
    }

    /// One exchange of an agent, without a ticket and with the connection's own credential, if it has one.
    ///
    /// # Errors
    /// As `Egress::send`.
    pub async fn request(
        &self,
        connection: &Connection,
        capability: &str,
        by: Actor,
        request: Request,
    ) -> Result<Answer, EgressNo> {
        let own = connection.credential.clone();
        self.request_with(connection, own, (capability, by), request).await
    }

    /// One exchange of an agent with a credential it named.
    ///
    /// # Errors
    /// When the secret is not for this capability and host, and as `Egress::send`.
    pub async fn request_with(
        &self,
        connection: &Connection,
        credential: Option<(SecretName, Placement)>,
        (capability, by): (&str, Actor),
        request: Request,
    ) -> Result<Answer, EgressNo> {
        let target = Target::parse(&request.url).map_err(EgressNo::Url)?;
        connection.admit(&request.method, &target)?;
        let credential = match &credential {
            None => None,
            Some((name, placement)) => {
                // What comes back is looked through for every secret that lives now.
                self.refresh().await?;
                let hosts = [target.host().to_owned()];
                let wanted = Use { capability, connection: &connection.name, hosts: &hosts, by };
                Some(self.lend(name, placement, &wanted).await?)
            }
        };
        self.send(Pass { connection, credential: credential.as_ref(), grant: None, sealed: None }, request).await
    }

    /// One exchange of the gateway itself with a provider that grants access. The answer is as it came: it may be a
    /// credential, and goes to the vault.
    ///
    /// SECURITY: the body is not looked through for what must not leave, because it is nothing else: the operator's
    /// client and the provider's own codes and tokens, on their way to that provider. Nothing of an agent is in it.
    ///
    /// # Errors
    /// As `Egress::send`.
    pub(crate) async fn submit(&self, connection: &Connection, form: Form<'_>) -> Result<Answer, EgressNo> {
        let sealed = Some(Bytes::copy_from_slice(form.encoded().as_bytes()));
        let kind = ("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned());
        let headers = vec![kind, ("accept".to_owned(), "application/json".to_owned())];
        let (url, body) = (form.url.to_owned(), Bytes::new());
        let request = Request { method: Method::POST, url, headers, body, follow: false, timeout: None };
        self.send(Pass { connection, credential: None, grant: None, sealed }, request).await
    }

    /// Everything a request must pass, in order; once more for each redirect of a read.
    async fn send(&self, pass: Pass<'_>, request: Request) -> Result<Answer, EgressNo> {
        let Request { method, url, headers, body, follow, timeout: wanted } = request;
        let connection = pass.connection;
        let is_read = is_read(&method);
        if body.len() > LARGEST_BODY || (is_read && !body.is_empty()) {
            return Err(EgressNo::NotAllowed("a read has no body, and no body is that large".into()));
        }
        let first = Target::parse(&url).map_err(EgressNo::Url)?;
        let mut target = first.clone();
        let mut left = if follow && is_read { connection.redirects } else { 0 };
        let allowed = wanted.map_or(connection.timeout, |span| span.min(connection.timeout));
        let deadline = Instant::now() + allowed.as_duration();
        loop {
            connection.admit(&method, &target)?;
            pass.grant.map_or(Ok(()), |grant| grant.admit(&method, &target))?;
            // A credential goes to the host it was lent for, and not along with a redirect to another.
            let credential = pass.credential.filter(|_| target.same_origin(&first));
            let taken = pass.credential.and_then(Credential::header);
            let sent = headers::outgoing(&headers, taken.as_ref())?;
            // SECURITY: before the name is looked up: a name can carry something out, too.
            let outgoing = Outgoing { url: target.as_str(), headers: &headers, body: &body, scope: connection.scope() };
            let found = self.scan.outgoing(&outgoing);
            if !found.is_empty() {
                return Err(EgressNo::Leak(found));
            }
            self.limiter.take(connection).await?;
            let trip = Trip::new(connection, &target, is_read);
            let body = pass.sealed.clone().unwrap_or_else(|| body.clone());
            let load = Load { method: &method, headers: sent, body, credential };
            let walked = timeout_at(deadline, trip.walk(self, load)).await;
            let answered = walked.unwrap_or_else(|_| Err(trip.too_slow().into()));
            let heard = answered.as_ref().ok().map(|reply| (reply.status, &reply.headers));
            if let Err(no) = self.limiter.heard((&connection.name, connection.breaker), heard).await {
                // The request has left: what it gave must not be lost over this. The next one is counted or refused.
                tracing::warn!(code = no.code().as_str(), "could not note what {} answered", connection.name);
            }
            let reply = answered?;
            match reply.leads_to(&target) {
                Some(next) if left > 0 => {
                    left -= 1;
                    target = next.map_err(|_| Failed { phase: Phase::Reply, what: What::Redirect, sent: true })?;
                }
                Some(_) | None => return Ok(reply.scrubbed(&target, pass.credential)),
            }
        }
    }

    /// How every connection stands that was ever used.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn states(&self) -> Result<Vec<EgressState>, StoreError> {
        self.store.egress_states(self.clock.now()).await
    }

    /// A person has looked: a connection starts over.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn reset(&self, connection: &ConnectionName, by: Actor) -> Result<(), StoreError> {
        self.limiter.reset(connection, by).await
    }

    /// Takes back tickets whose secret was changed or revoked, on whatever node, and lets idle lines go.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        self.pool.sweep(self.clock.since_boot());
        if let Some(changed) = self.versions.changed(&self.store).await? {
            self.tickets.without(|name| changed.contains(name));
            if let Err(error) = self.learn().await {
                self.versions.once_more();
                tracing::error!("secrets cannot be looked for in what leaves: {error}");
            }
        }
        Ok(())
    }

    /// Tells the leak scan which values live now. What cannot be opened cannot be looked for; people are told so by
    /// whoever wants to use it.
    async fn learn(&self) -> Result<(), VaultError> {
        let live = self.vault.live().await?;
        let values = live.iter().map(|(name, secret)| (name.to_string(), secret.expose()));
        match LiveSecrets::new(values) {
            Ok(secrets) => self.scan.now_live(secrets),
            Err(_) => tracing::error!("there are too many secrets to look for in what leaves"),
        }
        Ok(())
    }
}
