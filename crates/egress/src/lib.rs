//! Egress: the only way out to the network.
//!
//! Takes a request and the right to make it; gives the answer, or an error that says how far the request came. All
//! checks of a request are in `Egress::send`, as straight-line calls. Promise: nothing leaves to a host, port, path or
//! address that configuration does not open; credentials are added here and removed from answers; a request that may
//! have left is not retried.

pub mod credential;
pub mod error;
mod exchange;
mod form;
mod headers;
pub mod leak;
mod limiter;
pub mod oauth;
mod pool;
mod response;
mod secret_versions;
pub mod ticket;
pub mod transport;
pub mod vault;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use parking_lot::RwLock;
use sluice_config::network::{CredentialPlacement, EgressConnection, EgressUrl, is_read};
use sluice_content::leak::{LeakScope, LiveSecrets};
use sluice_core::ids::{ConnectionName, JobId, SecretName};
use sluice_core::{Actor, AgentName, Clock, Entropy, GatewayDeps, Millis};
use sluice_store::{EgressState, Store, StoreError};
use tokio::time::{Instant, timeout_at};

use crate::leak::{LeakScanner, OutgoingRequest};
use crate::vault::{SecretUse, Vault, VaultError};

pub use credential::OutgoingCredential;
pub use error::{EgressError, ExchangeFailure, ExchangeFault, ExchangePhase};
pub use form::ProviderForm;
pub use ticket::{EgressTicket, TicketOperation, TicketScope};

use exchange::{ExchangeRequest, HttpExchange};
use limiter::Limiter;
use pool::SenderPool;
use secret_versions::SecretVersionTracker;
use ticket::{TicketGrant, TicketTable};
use transport::EgressTransport;

/// The largest body of a request, in bytes.
const LARGEST_BODY: usize = 32 << 20;

/// An outgoing request.
#[derive(Clone)]
pub struct EgressRequest {
    /// The method.
    pub method: Method,
    /// The URL as the caller wrote it.
    pub url: String,
    /// The headers that the caller sets.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// Whether redirects of a read are followed.
    pub follow: bool,
    /// The timeout, if shorter than that of the connection.
    pub timeout: Option<Millis>,
}

impl EgressRequest {
    /// A plain GET request.
    #[must_use]
    pub fn get(url: &str) -> Self {
        let (url, headers, body) = (url.to_owned(), Vec::new(), Bytes::new());
        Self { method: Method::GET, url, headers, body, follow: true, timeout: None }
    }
}

impl std::fmt::Debug for EgressRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("method", &self.method).field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

/// An answer without credentials, not yet screened.
#[derive(Clone, PartialEq, Eq)]
pub struct EgressResponse {
    /// The status.
    pub status: u16,
    /// The headers that describe it.
    pub headers: Vec<(String, String)>,
    /// The body, decompressed.
    pub body: Bytes,
    /// The URL that it came from, after redirects.
    pub url: String,
}

impl std::fmt::Debug for EgressResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").field("status", &self.status).field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

/// The connection, credential and grant of one request.
struct RequestAuthorization<'a> {
    connection: &'a EgressConnection,
    credential: Option<&'a OutgoingCredential>,
    grant: Option<&'a TicketGrant>,
    /// A body that the leak scan does not read, in place of the request's own.
    sealed: Option<Bytes>,
}

/// The egress of one gateway.
pub struct Egress {
    connections: RwLock<HashMap<ConnectionName, Arc<EgressConnection>>>,
    wire: EgressTransport,
    pool: SenderPool,
    limiter: Limiter,
    tickets: TicketTable,
    versions: SecretVersionTracker,
    store: Arc<Store>,
    vault: Arc<Vault>,
    scan: Arc<dyn LeakScanner>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl std::fmt::Debug for Egress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Egress").field("tickets", &self.tickets.len()).finish_non_exhaustive()
    }
}

impl Egress {
    /// An egress over this wire.
    #[must_use]
    pub fn new(
        store: Arc<Store>,
        vault: Arc<Vault>,
        scan: Arc<dyn LeakScanner>,
        wire: EgressTransport,
        world: &GatewayDeps,
    ) -> Self {
        let GatewayDeps { clock, ids, entropy, .. } = world;
        let limiter = Limiter::new(Arc::clone(&store), Arc::clone(clock), Arc::clone(ids), Arc::clone(entropy));
        Self {
            connections: RwLock::default(),
            wire,
            pool: SenderPool::default(),
            limiter,
            tickets: TicketTable::default(),
            versions: SecretVersionTracker::default(),
            store,
            vault,
            scan,
            clock: Arc::clone(clock),
            entropy: Arc::clone(entropy),
        }
    }

    /// Opens a connection, or replaces one.
    pub fn open(&self, connection: EgressConnection) {
        self.pool.drop_connection(&connection.name);
        let mut all = self.connections.write();
        all.insert(connection.name.clone(), Arc::new(connection));
    }

    /// Closes a connection. Its tickets become invalid.
    pub fn close(&self, name: &ConnectionName) {
        self.pool.drop_connection(name);
        self.connections.write().remove(name);
        self.tickets.revoke_for_connection(name);
    }

    /// Removes a connection for new requests. Tickets that were issued stay valid until they end.
    pub fn retire(&self, name: &ConnectionName) {
        self.pool.drop_connection(name);
        self.connections.write().remove(name);
    }

    /// Whether a text holds content that must not leave.
    pub fn contains_blocked_content(&self, text: &str, scope: LeakScope) -> bool {
        let outgoing = OutgoingRequest { url: "", headers: &[], body: text.as_bytes(), scope };
        !self.scan.blocking_pattern_ids(&outgoing).is_empty()
    }

    /// The secrets of the vault that are searched for in outgoing content and removed from incoming content.
    pub fn secrets(&self) -> Arc<LiveSecrets> {
        self.scan.live_secrets()
    }

    /// The connection with this name.
    #[must_use]
    pub fn connection(&self, name: &ConnectionName) -> Option<Arc<EgressConnection>> {
        self.connections.read().get(name).cloned()
    }

    /// All connections, sorted by name.
    #[must_use]
    pub fn connections(&self) -> Vec<Arc<EgressConnection>> {
        let all = self.connections.read();
        let mut list: Vec<_> = all.values().cloned().collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    }

    /// The connection for an agent's own request: the first, by name, that is open to the agent and admits the request.
    ///
    /// # Errors
    /// The refusal of the last connection to this host, or that there is none.
    pub fn route(
        &self,
        agent: &AgentName,
        method: &Method,
        target: &EgressUrl,
    ) -> Result<Arc<EgressConnection>, EgressError> {
        let mut why = EgressError::NotAllowed("no connection of this agent reaches this host".into());
        for connection in self.connections() {
            if !connection.agents.as_ref().is_some_and(|agents| agents.contains(agent)) {
                continue;
            }
            match connection.admit(method, target) {
                Ok(()) => return Ok(connection),
                Err(no) if connection.hosts.iter().any(|host| host.matches(target.host())) => {
                    why = EgressError::NotAllowed(no)
                }
                Err(_) => {}
            }
        }
        Err(why)
    }

    /// Issues a ticket: the right of a worker to make some requests.
    ///
    /// # Errors
    /// When the connection does not exist, reaches none of these hosts, or its credential is not bound to them.
    pub async fn issue(&self, connection: &ConnectionName, scope: TicketScope) -> Result<EgressTicket, EgressError> {
        let no = || EgressError::NotAllowed("there is no such connection".into());
        let connection = self.connection(connection).ok_or_else(no)?;
        let reached = |host: &String| connection.hosts.iter().any(|pattern| pattern.matches(host));
        if scope.hosts.is_empty() || !scope.hosts.iter().all(reached) {
            return Err(EgressError::NotAllowed("the connection does not reach these hosts".into()));
        }
        let credential = match &connection.credential {
            None => None,
            Some((name, placement)) => {
                // Later changes are compared with the versions read here.
                self.refresh().await?;
                let wanted = SecretUse {
                    capability: &scope.capability,
                    connection: &connection.name,
                    hosts: &scope.hosts,
                    by: scope.by.clone(),
                };
                Some((name.clone(), self.lend(name, placement, &wanted).await?))
            }
        };
        let now = self.clock.since_boot();
        Ok(self.tickets.issue(TicketGrant::new(connection, credential, scope, now), self.entropy.as_ref(), now))
    }

    async fn lend(
        &self,
        name: &SecretName,
        placement: &CredentialPlacement,
        wanted: &SecretUse<'_>,
    ) -> Result<OutgoingCredential, EgressError> {
        OutgoingCredential::new(self.vault.take(name, wanted).await?, placement.clone())
    }

    /// Sends one request of a worker.
    ///
    /// # Errors
    /// When the ticket is not valid for it, and as `Egress::send`.
    pub async fn exchange(&self, ticket: &EgressTicket, request: EgressRequest) -> Result<EgressResponse, EgressError> {
        let grant = self.tickets.find(ticket, self.clock.since_boot())?;
        let credential = grant.credential.as_deref();
        self.send(
            RequestAuthorization { connection: &grant.connection, credential, grant: Some(&grant), sealed: None },
            request,
        )
        .await
    }

    /// Invalidates the tickets of a job that has ended.
    pub fn end_job(&self, job: JobId) {
        self.tickets.revoke_for_job(job);
    }

    /// Sends one request of an agent, without a ticket and with the connection's own credential, if it has one.
    ///
    /// # Errors
    /// As `Egress::send`.
    pub async fn request(
        &self,
        connection: &EgressConnection,
        capability: &str,
        by: Actor,
        request: EgressRequest,
    ) -> Result<EgressResponse, EgressError> {
        let own = connection.credential.clone();
        self.request_with(connection, own, (capability, by), request).await
    }

    /// Sends one request of an agent with a secret that it named.
    ///
    /// # Errors
    /// When the secret is not bound to this capability and host, and as `Egress::send`.
    pub async fn request_with(
        &self,
        connection: &EgressConnection,
        credential: Option<(SecretName, CredentialPlacement)>,
        (capability, by): (&str, Actor),
        request: EgressRequest,
    ) -> Result<EgressResponse, EgressError> {
        let target = EgressUrl::parse(&request.url).map_err(EgressError::Url)?;
        connection.admit(&request.method, &target).map_err(EgressError::NotAllowed)?;
        let credential = match &credential {
            None => None,
            Some((name, placement)) => {
                // The answer is searched for every secret that is live now.
                self.refresh().await?;
                let hosts = [target.host().to_owned()];
                let wanted = SecretUse { capability, connection: &connection.name, hosts: &hosts, by };
                Some(self.lend(name, placement, &wanted).await?)
            }
        };
        self.send(
            RequestAuthorization { connection, credential: credential.as_ref(), grant: None, sealed: None },
            request,
        )
        .await
    }

    /// Sends one request of the gateway itself to an OAuth provider. The answer keeps every credential but the one that
    /// was sent in a header: it may be a credential itself, and goes to the vault.
    ///
    /// SECURITY: the leak scan does not read the body, because it consists of secrets: the operator's client secret and
    /// the provider's own codes and tokens, on their way to that provider. It holds nothing from an agent.
    ///
    /// # Errors
    /// As `Egress::send`.
    pub async fn submit(
        &self,
        connection: &EgressConnection,
        form: ProviderForm<'_>,
    ) -> Result<EgressResponse, EgressError> {
        let sealed = Some(Bytes::copy_from_slice(form.encoded().as_bytes()));
        let kind = ("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned());
        let headers = vec![kind, ("accept".to_owned(), "application/json".to_owned())];
        let (url, body) = (form.url.to_owned(), Bytes::new());
        let request = EgressRequest { method: Method::POST, url, headers, body, follow: false, timeout: None };
        let credential = form.credential()?;
        self.send(RequestAuthorization { connection, credential: credential.as_ref(), grant: None, sealed }, request)
            .await
    }

    /// All checks of a request, in order; repeated for each redirect of a read.
    async fn send(
        &self,
        pass: RequestAuthorization<'_>,
        request: EgressRequest,
    ) -> Result<EgressResponse, EgressError> {
        let EgressRequest { method, url, headers, body, follow, timeout: wanted } = request;
        let connection = pass.connection;
        let is_read = is_read(&method);
        if body.len() > LARGEST_BODY || (is_read && !body.is_empty()) {
            return Err(EgressError::NotAllowed("the body is too large, or a read has a body".into()));
        }
        let first = EgressUrl::parse(&url).map_err(EgressError::Url)?;
        let mut target = first.clone();
        let mut left = if follow && is_read { connection.redirects } else { 0 };
        let allowed = wanted.map_or(connection.timeout, |span| span.min(connection.timeout));
        let deadline = Instant::now() + allowed.as_duration();
        loop {
            connection.admit(&method, &target).map_err(EgressError::NotAllowed)?;
            pass.grant.map_or(Ok(()), |grant| grant.admit(&method, &target))?;
            // A credential goes only to the host it was issued for, never along with a redirect to another host.
            let credential = pass.credential.filter(|_| target.same_origin(&first));
            let taken = pass.credential.and_then(OutgoingCredential::header);
            let sent = headers::outgoing(&headers, taken.as_ref())?;
            // SECURITY: before the name is looked up, because a host name can carry data out, too.
            let outgoing =
                OutgoingRequest { url: target.as_str(), headers: &headers, body: &body, scope: connection.scope() };
            let found = self.scan.blocking_pattern_ids(&outgoing);
            if !found.is_empty() {
                return Err(EgressError::Leak(found));
            }
            self.limiter.take(connection).await?;
            let trip = HttpExchange::new(connection, &target, is_read);
            let body = pass.sealed.clone().unwrap_or_else(|| body.clone());
            let load = ExchangeRequest { method: &method, headers: sent, body, credential };
            let walked = timeout_at(deadline, trip.walk(self, load)).await;
            let answered = walked.unwrap_or_else(|_| Err(trip.too_slow().into()));
            let heard = answered.as_ref().ok().map(|reply| (reply.status, &reply.headers));
            if let Err(no) = self.limiter.record_response((&connection.name, connection.breaker), heard).await {
                // The request has left, so its answer must not be lost because of this error. The next request is
                // counted or refused.
                tracing::warn!(code = no.code().as_str(), "could not note what {} answered", connection.name);
            }
            let reply = answered?;
            match reply.leads_to(&target) {
                Some(next) if left > 0 => {
                    left -= 1;
                    target = next.map_err(|_| ExchangeFailure {
                        phase: ExchangePhase::Reply,
                        what: ExchangeFault::Redirect,
                        sent: true,
                    })?;
                }
                Some(_) | None => return Ok(reply.scrubbed(&target, pass.credential)),
            }
        }
    }

    /// The state of every connection that was ever used.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn states(&self) -> Result<Vec<EgressState>, StoreError> {
        self.store.egress_states(self.clock.now()).await
    }

    /// Resets a connection after a person has looked at it.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn reset(&self, connection: &ConnectionName, by: Actor) -> Result<(), StoreError> {
        self.limiter.reset(connection, by).await
    }

    /// Revokes tickets whose secret was changed or revoked on any node, and closes idle lines.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        self.pool.sweep(self.clock.since_boot());
        if let Some(changed) = self.versions.changed(&self.store).await? {
            self.tickets.revoke_for_secrets(|name| changed.contains(name));
            if let Err(error) = self.learn().await {
                self.versions.mark_unseen();
                tracing::error!("the leak scan cannot load the secrets to look for: {error}");
            }
        }
        Ok(())
    }

    /// Gives the leak scan the values that are live now. A value that cannot be decrypted cannot be searched for;
    /// people are told when something wants to use it.
    async fn learn(&self) -> Result<(), VaultError> {
        let live = self.vault.live().await?;
        let values = live.iter().map(|(name, secret)| (name.to_string(), secret.expose()));
        match LiveSecrets::new(values) {
            Ok(secrets) => self.scan.replace_live_secrets(secrets),
            Err(_) => tracing::error!("there are too many secrets to look for in what leaves"),
        }
        Ok(())
    }
}
