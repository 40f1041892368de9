//! Grants of connections: tells OAuth the provider of each connection.
//!
//! Takes the name of a connection; gives nothing. Promise: a connection that cannot be used does not stop the others.

use sluice_core::ServiceName;
use sluice_core::refusal::Code;
use sluice_egress::oauth::{OauthError, OauthProvider};

use crate::CallError;
use crate::ServiceContext;

/// Sets the provider of a connection, as it was connected. A connection without a client has no provider.
///
/// # Errors
/// When the connection does not exist, or its addresses cannot be used.
pub async fn take_up(context: &ServiceContext, name: &ServiceName) -> Result<(), CallError> {
    let endpoints = context.connections.endpoints(name).await?;
    if endpoints.client_id.is_none() {
        return Ok(());
    }
    let adapter = context.connections.show(name).await?.adapter;
    let mut provider = OauthProvider::of(&adapter, &endpoints).map_err(OauthError::refusal)?;
    // The adapter knows its scope best; if it cannot be asked, the built-in scope is used.
    match context.connections.access_scope(name).await {
        Ok(scope) => (provider.capabilities, provider.api_hosts) = (scope.capabilities, scope.hosts),
        Err(_) if !provider.capabilities.is_empty() && !provider.api_hosts.is_empty() => {}
        Err(no) => return Err(no),
    }
    context.oauth.configure(name.clone(), provider).map_err(OauthError::refusal)?;
    Ok(())
}

/// Sets the providers of all connections. A connection that cannot be used is logged; the others continue.
pub async fn take_up_all(context: &ServiceContext) {
    let names = match context.store.connections().await {
        Ok(rows) => rows.into_iter().filter(|row| row.state.has_readable_copy()).map(|row| row.name),
        Err(error) => return tracing::error!(code = error.code(), "connections cannot be read: {error}"),
    };
    for name in names {
        match take_up(context, &name).await {
            Ok(()) => {}
            Err(no) if no.refusal.code() == Code::StoreNotFound => {}
            Err(no) => tracing::error!(connection = %name, "the access to {name} is not renewed: {}", no.refusal),
        }
    }
}
