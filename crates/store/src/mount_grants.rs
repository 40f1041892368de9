//! Access that people granted to mounted servers: with whom, as which client, and for what.
//!
//! Promise: there is at most one grant for a mount; it is kept and removed in one transaction with the audit entry that
//! says who did it. No token and no secret is here: those are in the vault.

use sluice_core::audit::AuditFact;
use sluice_core::{Actor, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

const OF_MOUNT: &str = "SELECT mount, url, resource, issuer, authorize, token, revoke, client_id, client_origin, \
     client_auth, requested, granted, ends_at, granted_by, granted_at FROM mount_grants WHERE mount = ?1";
const KEEP: &str = "INSERT INTO mount_grants (mount, url, resource, issuer, authorize, token, revoke, client_id, \
     client_origin, client_auth, requested, granted, ends_at, granted_by, granted_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15) \
     ON CONFLICT (mount) DO UPDATE SET url = excluded.url, resource = excluded.resource, issuer = excluded.issuer, \
     authorize = excluded.authorize, token = excluded.token, revoke = excluded.revoke, client_id = excluded.client_id, \
     client_origin = excluded.client_origin, client_auth = excluded.client_auth, requested = excluded.requested, \
     granted = excluded.granted, ends_at = excluded.ends_at, granted_by = excluded.granted_by, \
     granted_at = excluded.granted_at";
const DROP: &str = "DELETE FROM mount_grants WHERE mount = ?1";

/// The access that a person granted to a mounted server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountGrant {
    /// The mount.
    pub mount: String,
    /// The address of the server when the access was granted.
    pub url: String,
    /// The server's identifier, as published.
    pub resource: String,
    /// The authorization server, as published.
    pub issuer: String,
    /// Where people grant access.
    pub authorize: String,
    /// Where tokens are issued.
    pub token: String,
    /// Where tokens are revoked.
    pub revoke: Option<String>,
    /// The client id of the gateway there.
    pub client_id: String,
    /// How the client came to be known: `document`, `registered` or `dynamic`.
    pub client_origin: String,
    /// How the client proves who it is, as the standard names it.
    pub client_auth: String,
    /// The scopes that were asked for.
    pub requested: Vec<String>,
    /// The scopes that were granted.
    pub granted: Vec<String>,
    /// When it ends, if it cannot be renewed.
    pub ends_at: Option<UtcMillis>,
    /// Who granted it.
    pub by: String,
    /// When it was granted.
    pub at: UtcMillis,
}

struct KeepMountGrant {
    grant: MountGrant,
    by: Actor,
}

impl UseCase for KeepMountGrant {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let MountGrant { mount, url, resource, issuer, authorize, token, revoke, .. } = &self.grant;
        let MountGrant { client_id, client_origin, client_auth, requested, granted, ends_at, .. } = &self.grant;
        let (requested, granted, now) = (requested.join(" "), granted.join(" "), unit.now);
        let fact = AuditFact::new("mount.connected", self.by.clone()).with("mount", mount).with("issuer", issuer);
        let fact = fact.with("client", client_origin).with("scopes", self.grant.granted.len());
        unit.write_one(
            KEEP,
            params![
                mount.as_str(),
                url.as_str(),
                resource.as_str(),
                issuer.as_str(),
                authorize.as_str(),
                token.as_str(),
                revoke.as_deref(),
                client_id.as_str(),
                client_origin.as_str(),
                client_auth.as_str(),
                requested,
                granted,
                *ends_at,
                self.by.to_string(),
                now
            ],
        );
        unit.record(fact);
        Ok(())
    }
}

struct DropMountGrant {
    mount: String,
    told: String,
    by: Actor,
}

impl UseCase for DropMountGrant {
    type Out = bool;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<bool, StoreError> {
        if unit.row(OF_MOUNT, params![self.mount.as_str()]).await?.is_none() {
            return Ok(false);
        }
        unit.write_one(DROP, params![self.mount.as_str()]);
        let fact = AuditFact::new("mount.disconnected", self.by.clone()).with("mount", &self.mount);
        unit.record(fact.with("grant", &self.told));
        Ok(true)
    }
}

struct FindMountGrant(String);

impl StoreQuery for FindMountGrant {
    type Out = Option<MountGrant>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<MountGrant>, StoreError> {
        tx.rows(OF_MOUNT, &params![self.0.as_str()]).await?.into_iter().next().map(decode).transpose()
    }
}

fn decode(row: SqlRow) -> Result<MountGrant, StoreError> {
    let mut row = row.of("mount_grants");
    let words = |text: String| text.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>();
    Ok(MountGrant {
        mount: row.text()?,
        url: row.text()?,
        resource: row.text()?,
        issuer: row.text()?,
        authorize: row.text()?,
        token: row.text()?,
        revoke: row.maybe_text()?,
        client_id: row.text()?,
        client_origin: row.text()?,
        client_auth: row.text()?,
        requested: words(row.text()?),
        granted: words(row.text()?),
        ends_at: row.maybe_time()?,
        by: row.text()?,
        at: row.time()?,
    })
}

impl Store {
    /// Keeps the access that a person granted, in place of an earlier one. Who granted it and when is taken from `by`
    /// and from the transaction.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn keep_mount_grant(&self, grant: MountGrant, by: Actor) -> Result<(), StoreError> {
        self.submit(KeepMountGrant { grant, by }).await
    }

    /// Removes the access to a mount, with what its authorization server said about that. False if there is none.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn drop_mount_grant(&self, mount: &str, told: &str, by: Actor) -> Result<bool, StoreError> {
        self.submit(DropMountGrant { mount: mount.into(), told: told.into(), by }).await
    }

    /// The access to a mount, if a person granted it.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn mount_grant(&self, mount: &str) -> Result<Option<MountGrant>, StoreError> {
        self.ask(FindMountGrant(mount.into())).await
    }
}
