//! Tickets: what a worker holds instead of a credential.
//!
//! Takes the scope of one job; gives a text that egress understands for as long as the job may last. Promise: a
//! ticket is good for its connection, hosts, operations and job alone, for at most two hours, in this process only:
//! it is never written down, and only its hash is kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::Method;
use sha2::{Digest as _, Sha256};
use sluice_core::ids::{ConnectionName, JobId, SecretName};
use sluice_core::{Actor, Entropy, Span};
use zeroize::Zeroizing;

use super::address::Target;
use super::allow::{Connection, PathPattern};
use super::credential::Credential;
use super::no::EgressNo;

/// The longest a ticket is good for.
pub const LONGEST: Span = Span::from_hours(2);
/// What every ticket begins with.
const PREFIX: &str = "sgt_";

/// The right to make some requests.
#[derive(PartialEq, Eq)]
pub struct Ticket(Zeroizing<String>);

impl Ticket {
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

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ticket")
    }
}

/// One kind of request a ticket is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The method.
    pub method: Method,
    /// Paths it may ask for.
    pub path: PathPattern,
}

/// What a ticket is asked for.
#[derive(Debug, Clone)]
pub struct Scope {
    /// The job it is for.
    pub job: JobId,
    /// The capability the job carries out: what the credential's own scope is checked against.
    pub capability: String,
    /// Hosts it may reach, each by name.
    pub hosts: Vec<String>,
    /// What it may do; nothing named: what the connection may.
    pub operations: Vec<Operation>,
    /// On whose behalf.
    pub by: Actor,
    /// How long; never more than [`LONGEST`].
    pub lasts: Span,
}

/// What a ticket stands for.
pub(super) struct Grant {
    pub connection: Arc<Connection>,
    pub credential: Option<Arc<Credential>>,
    pub secret: Option<SecretName>,
    scope: Scope,
    until: Span,
}

impl Grant {
    pub(super) fn new(
        connection: Arc<Connection>,
        credential: Option<(SecretName, Credential)>,
        scope: Scope,
        now: Span,
    ) -> Self {
        let until = now + scope.lasts.min(LONGEST);
        let (secret, credential) = credential.map(|(name, own)| (name, Arc::new(own))).unzip();
        Self { connection, credential, secret, scope, until }
    }

    /// Whether a request is within it.
    pub(super) fn admit(&self, method: &Method, target: &Target) -> Result<(), EgressNo> {
        let host = self.scope.hosts.iter().any(|host| host == target.host());
        let fits = |one: &Operation| one.method == *method && one.path.matches(target.path());
        let operation = self.scope.operations.is_empty() || self.scope.operations.iter().any(fits);
        if host && operation { Ok(()) } else { Err(EgressNo::Ticket) }
    }
}

/// All tickets of this process.
#[derive(Default)]
pub(super) struct Tickets {
    grants: Mutex<HashMap<[u8; 32], Arc<Grant>>>,
}

impl Tickets {
    pub(super) fn issue(&self, grant: Grant, entropy: &dyn Entropy, now: Span) -> Ticket {
        let mut random = Zeroizing::new([0; 32]);
        entropy.fill(random.as_mut_slice());
        let ticket = Ticket(Zeroizing::new(format!("{PREFIX}{}", sluice_core::hex::encode(random.as_slice()))));
        let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        grants.retain(|_, grant| now < grant.until);
        grants.insert(ticket.hash(), Arc::new(grant));
        ticket
    }

    pub(super) fn find(&self, ticket: &Ticket, now: Span) -> Result<Arc<Grant>, EgressNo> {
        let grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        let grant = grants.get(&ticket.hash()).filter(|grant| now < grant.until);
        grant.map(Arc::clone).ok_or(EgressNo::Ticket)
    }

    /// Takes back what a job holds.
    pub(super) fn end(&self, job: JobId) {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, grant| grant.scope.job != job);
    }

    /// Takes back what goes through a connection.
    pub(super) fn of_connection(&self, name: &ConnectionName) {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, grant| grant.connection.name != *name);
    }

    /// Takes back what carries one of these secrets.
    pub(super) fn without(&self, gone: impl Fn(&SecretName) -> bool) {
        let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        grants.retain(|_, grant| !grant.secret.as_ref().is_some_and(&gone));
    }

    pub(super) fn len(&self) -> usize {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
