//! Tickets: what a worker holds instead of a credential.
//!
//! Takes the scope of one job; gives a text that egress accepts for as long as the job may last. Promise: a ticket is
//! valid only for its connection, hosts, operations and job, for at most two hours, in this process only: it is never
//! written down, and only its hash is kept.

use std::collections::HashMap;
use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use sluice_config::network::{EgressConnection, EgressUrl, PathPattern};
use sluice_core::ids::{ConnectionName, JobId, SecretName};
use sluice_core::{Actor, Entropy, Millis};
use zeroize::Zeroizing;

use super::credential::OutgoingCredential;
use super::error::EgressError;

/// The longest lifetime of a ticket.
pub const LONGEST: Millis = Millis::from_hours(2);
/// The prefix of every ticket.
const PREFIX: &str = "sgt_";

/// The right to make some requests.
#[derive(PartialEq, Eq)]
pub struct EgressTicket(Zeroizing<String>);

impl EgressTicket {
    /// A ticket as a worker presents it.
    #[must_use]
    pub fn presented(text: &str) -> Self {
        Self(Zeroizing::new(text.to_owned()))
    }

    /// The text, for the worker's job.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

impl std::fmt::Debug for EgressTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ticket")
    }
}

/// One kind of request that a ticket is valid for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketOperation {
    /// The method.
    pub method: Method,
    /// The paths it may request.
    pub path: PathPattern,
}

/// The scope that a ticket is requested for.
#[derive(Debug, Clone)]
pub struct TicketScope {
    /// The job.
    pub job: JobId,
    /// The capability that the job carries out: the credential's own scope is checked against it.
    pub capability: String,
    /// The hosts it may reach, each by name.
    pub hosts: Vec<String>,
    /// The operations it may carry out; an empty list means all operations of the connection.
    pub operations: Vec<TicketOperation>,
    /// The actor on whose behalf it acts.
    pub by: Actor,
    /// Its lifetime; never more than [`LONGEST`].
    pub lasts: Millis,
}

/// The rights behind a ticket.
pub(super) struct TicketGrant {
    pub connection: Arc<EgressConnection>,
    pub credential: Option<Arc<OutgoingCredential>>,
    pub secret: Option<SecretName>,
    scope: TicketScope,
    until: Millis,
}

impl TicketGrant {
    pub(super) fn new(
        connection: Arc<EgressConnection>,
        credential: Option<(SecretName, OutgoingCredential)>,
        scope: TicketScope,
        now: Millis,
    ) -> Self {
        let until = now + scope.lasts.min(LONGEST);
        let (secret, credential) = credential.map(|(name, own)| (name, Arc::new(own))).unzip();
        Self { connection, credential, secret, scope, until }
    }

    /// Checks whether a request is within the grant.
    pub(super) fn admit(&self, method: &Method, target: &EgressUrl) -> Result<(), EgressError> {
        let host = self.scope.hosts.iter().any(|host| host == target.host());
        let fits = |one: &TicketOperation| one.method == *method && one.path.matches(target.path());
        let operation = self.scope.operations.is_empty() || self.scope.operations.iter().any(fits);
        if host && operation { Ok(()) } else { Err(EgressError::Ticket) }
    }
}

/// All tickets of this process.
#[derive(Default)]
pub(super) struct TicketTable {
    grants: Mutex<HashMap<[u8; 32], Arc<TicketGrant>>>,
}

impl TicketTable {
    pub(super) fn issue(&self, grant: TicketGrant, entropy: &dyn Entropy, now: Millis) -> EgressTicket {
        let mut random = Zeroizing::new([0; 32]);
        entropy.fill(random.as_mut_slice());
        let ticket = EgressTicket(Zeroizing::new(format!("{PREFIX}{}", sluice_core::hex::encode(random.as_slice()))));
        let mut grants = self.grants.lock();
        grants.retain(|_, grant| now < grant.until);
        grants.insert(ticket.hash(), Arc::new(grant));
        ticket
    }

    pub(super) fn find(&self, ticket: &EgressTicket, now: Millis) -> Result<Arc<TicketGrant>, EgressError> {
        let grants = self.grants.lock();
        let grant = grants.get(&ticket.hash()).filter(|grant| now < grant.until);
        grant.map(Arc::clone).ok_or(EgressError::Ticket)
    }

    /// Revokes the tickets of a job.
    pub(super) fn revoke_for_job(&self, job: JobId) {
        self.grants.lock().retain(|_, grant| grant.scope.job != job);
    }

    /// Revokes the tickets of a connection.
    pub(super) fn revoke_for_connection(&self, name: &ConnectionName) {
        self.grants.lock().retain(|_, grant| grant.connection.name != *name);
    }

    /// Revokes the tickets that carry one of these secrets.
    pub(super) fn revoke_for_secrets(&self, gone: impl Fn(&SecretName) -> bool) {
        let mut grants = self.grants.lock();
        grants.retain(|_, grant| !grant.secret.as_ref().is_some_and(&gone));
    }

    pub(super) fn len(&self) -> usize {
        self.grants.lock().len()
    }
}
