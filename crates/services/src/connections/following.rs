//! Follows connections that another node on the same database began, changed or ended.
//!
//! Takes the rows of the database; gives a node that matches them. Promise: a connection that ended elsewhere answers
//! nothing here and leaves no replica here; a connection that cannot be applied here is reported once, tried again
//! every minute, and not offered.

use sluice_core::connection::ConnectionState;
use sluice_core::{Millis, ServiceName};
use sluice_store::ServiceConnection as Row;

use super::{ConnectionHandle, ServiceConnections};
use crate::CallError;

/// How long to wait after a connection could not be applied.
const AGAIN_AFTER: Millis = Millis::from_mins(1);

impl ServiceConnections {
    /// Applies what other nodes changed since the last look. A node with its own database has nothing to follow.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn follow(&self) -> Result<(), CallError> {
        if !self.deps.store.is_shared() {
            return Ok(());
        }
        // A connection begins or ends here right now: the next look comes soon.
        let Ok(_turn) = self.changing.try_lock() else { return Ok(()) };
        let rows = self.deps.store.connections().await?;
        // Ended connections first: another connection may use the same service by now.
        for row in rows.iter().filter(|row| row.state == ConnectionState::Disconnected) {
            if let Err(no) = self.ended_elsewhere(row).await {
                tracing::error!(connection = %row.name, "leftovers of {} cannot be removed: {}", row.name, no.refusal);
            }
        }
        for row in rows.iter().filter(|row| row.state.has_readable_copy()) {
            if self.is_left_alone(&row.name, row.version) {
                continue;
            }
            if let Err(no) = self.changed_elsewhere(row).await {
                self.leave_alone(&row.name, row.version);
                tracing::error!(connection = %row.name, "connection {} cannot be applied: {}", row.name, no.refusal);
            }
        }
        Ok(())
    }

    async fn ended_elsewhere(&self, row: &Row) -> Result<(), CallError> {
        let Some(line) = self.known(&row.name).filter(|line| line.row().version < row.version) else { return Ok(()) };
        let service = line.row().service;
        line.keep(row.clone());
        self.context()?.withdraw(&service).await;
        self.deps.egress.close(&ConnectionHandle::egress_connection_name(&row.name)?);
        let destroyed = self.destroy(&line).await;
        self.lines.write().remove(&row.name);
        tracing::info!(connection = %row.name, "the connection {} was ended on another node", row.name);
        destroyed.map(|_| ())
    }

    async fn changed_elsewhere(&self, row: &Row) -> Result<(), CallError> {
        let context = self.context()?;
        match self.known(&row.name) {
            Some(line) if line.row().version >= row.version => {}
            Some(line) if is_same_place(&line.row(), row) => line.keep(row.clone()),
            // Its address or its adapter has changed.
            Some(line) => {
                context.withdraw(&line.row().service).await;
                self.deps.egress.close(&ConnectionHandle::egress_connection_name(&row.name)?);
                self.lines.write().remove(&row.name);
            }
            None => {}
        }
        if context.services.for_service(&row.service).is_ok() {
            return Ok(());
        }
        // Its credential must be registered for renewal before it is used.
        super::grants::take_up(&context, &row.name).await?;
        let line = self.find_or_open(&row.name).await?;
        self.offer_service(&line).await?;
        self.request_sync(&line);
        tracing::info!(connection = %row.name, "the connection {} was applied: another node connected it", row.name);
        Ok(())
    }

    fn is_left_alone(&self, name: &ServiceName, version: u64) -> bool {
        let now = self.deps.clock.since_boot().as_millis();
        let failed = self.failed.lock();
        failed
            .get(name)
            .is_some_and(|(of, at)| *of == version && now.saturating_sub(at.as_millis()) < AGAIN_AFTER.as_millis())
    }

    fn leave_alone(&self, name: &ServiceName, version: u64) {
        let at = self.deps.clock.since_boot();
        self.failed.lock().insert(name.clone(), (version, at));
    }
}

fn is_same_place(one: &Row, other: &Row) -> bool {
    one.endpoints == other.endpoints && one.adapter == other.adapter && one.service == other.service
}
