//! Connections that another node on the same database connected, changed or ended.
//!
//! Takes the rows of the database; gives a node that stands as they say. Promise: what is ended elsewhere answers nothing
//! here and leaves no copy here; what cannot be taken up here is named once, tried again every minute, and not offered.

use std::sync::PoisonError;

use sluice_core::connection::ConnectionState;
use sluice_core::{ServiceName, Span};
use sluice_store::Connection as Row;

use super::{Connections, Line};
use crate::{No, oauth};

/// How long a connection that could not be taken up is left alone.
const AGAIN_AFTER: Span = Span::from_mins(1);

impl Connections {
    /// Takes up what other nodes changed since the last look. A database of its own is changed by nobody else.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn follow(&self) -> Result<(), No> {
        if !self.ground.store.is_shared() {
            return Ok(());
        }
        // Somebody connects or ends one here right now: the next look comes soon.
        let Ok(_turn) = self.changing.try_lock() else { return Ok(()) };
        let rows = self.ground.store.connections().await?;
        // Those that ended first: another one may stand behind the same service by now.
        for row in rows.iter().filter(|row| row.state == ConnectionState::Disconnected) {
            if let Err(no) = self.ended_elsewhere(row).await {
                tracing::error!(connection = %row.name, "what is left of {} cannot be removed: {}", row.name, no.refusal);
            }
        }
        for row in rows.iter().filter(|row| row.state.answers()) {
            if self.is_left_alone(&row.name, row.version) {
                continue;
            }
            if let Err(no) = self.changed_elsewhere(row).await {
                self.leave_alone(&row.name, row.version);
                tracing::error!(connection = %row.name, "the connection {} cannot be taken up: {}", row.name, no.refusal);
            }
        }
        Ok(())
    }

    async fn ended_elsewhere(&self, row: &Row) -> Result<(), No> {
        let Some(line) = self.known(&row.name).filter(|line| line.row().version < row.version) else { return Ok(()) };
        let service = line.row().service;
        line.keep(row.clone());
        self.gateway()?.withdraw(&service).await;
        self.ground.egress.close(&Line::way(&row.name)?);
        let destroyed = self.destroy(&line).await;
        self.lines.write().unwrap_or_else(PoisonError::into_inner).remove(&row.name);
        tracing::info!(connection = %row.name, "the connection {} was ended on another node", row.name);
        destroyed.map(|_| ())
    }

    async fn changed_elsewhere(&self, row: &Row) -> Result<(), No> {
        let gw = self.gateway()?;
        match self.known(&row.name) {
            Some(line) if line.row().version >= row.version => {}
            Some(line) if is_same_place(&line.row(), row) => line.keep(row.clone()),
            // Where it is reached, or what it is, is another now.
            Some(line) => {
                gw.withdraw(&line.row().service).await;
                self.ground.egress.close(&Line::way(&row.name)?);
                self.lines.write().unwrap_or_else(PoisonError::into_inner).remove(&row.name);
            }
            None => {}
        }
        if gw.services.for_service(&row.service).is_ok() {
            return Ok(());
        }
        // Whoever renews its credential has to be known before it is used.
        oauth::take_up(&gw, &row.name).await?;
        let line = self.line(&row.name).await?;
        self.stand(&line).await?;
        self.want(&line);
        tracing::info!(connection = %row.name, "the connection {} was taken up: another node connected it", row.name);
        Ok(())
    }

    fn is_left_alone(&self, name: &ServiceName, version: u64) -> bool {
        let now = self.ground.clock.since_boot().as_millis();
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed
            .get(name)
            .is_some_and(|(of, at)| *of == version && now.saturating_sub(at.as_millis()) < AGAIN_AFTER.as_millis())
    }

    fn leave_alone(&self, name: &ServiceName, version: u64) {
        let at = self.ground.clock.since_boot();
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), (version, at));
    }
}

fn is_same_place(one: &Row, other: &Row) -> bool {
    one.endpoints == other.endpoints && one.adapter == other.adapter && one.service == other.service
}
