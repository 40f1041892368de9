//! Progress of the copy of a service, while a person waits for it at a terminal.
//!
//! Takes the progress of the gateway; draws one line. Promise: the copy is the gateway's, so that ending this command,
//! or a gateway that does not answer, changes nothing.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use sluice_core::ServiceName;

use super::path;
use crate::client::{ApiRequest, GatewayClient, text_field};
use crate::console::{CommandConsole, TaskProgress};
use crate::failure::CliError;

/// How often the gateway is asked how far it is.
const EVERY: Duration = Duration::from_millis(500);

/// Does something during which the gateway may copy a service, and shows how far the copy is.
pub(super) fn show_during<T>(
    client: &GatewayClient,
    screen: &CommandConsole,
    name: &ServiceName,
    work: impl FnOnce() -> Result<T, CliError>,
) -> Result<T, CliError> {
    if !screen.draws_progress() {
        return work();
    }
    let progress = screen.progress("copying", None);
    thread::scope(|scope| {
        let (over, ended) = channel::<()>();
        let shown = &progress;
        scope.spawn(move || {
            // Ends when the sender is dropped. A gateway that cannot say how far it is delays nothing.
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                if let Ok(service) = client.send(&ApiRequest::get(path(name, ""))) {
                    show(&service, shown);
                }
            }
        });
        let done = work();
        drop(over);
        done
    })
}

/// Shows how far the first copy is, until it is complete. Where nobody looks it returns at once.
pub(super) fn follow(client: &GatewayClient, screen: &CommandConsole, name: &ServiceName) -> Result<(), CliError> {
    if !screen.draws_progress() {
        return Ok(());
    }
    screen.note("Ctrl-C stops only this display; the copy goes on");
    let progress = screen.progress("copying", None);
    loop {
        let service = client.send(&ApiRequest::get(path(name, "")))?;
        if service.get("error").is_some_and(Value::is_string) || is_complete(&service) {
            return Ok(());
        }
        show(&service, &progress);
        client.pause(EVERY);
    }
}

/// Whether the first copy is over.
fn is_complete(service: &Value) -> bool {
    let waits = ["connecting", "syncing"].contains(&text_field(service, "state"));
    !waits || service.get("complete") == Some(&Value::Bool(true))
}

fn show(service: &Value, progress: &TaskProgress) {
    let Some(copied) = service.get("progress") else { return };
    let number = |field: &str| copied.get(field).and_then(Value::as_u64);
    if let Some(done) = number("done") {
        progress.reached(done, number("total"));
    }
}
