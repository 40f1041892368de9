//! The event stream: entries of the audit log as they are written, for commands that wait for a change.

use std::time::Duration;

use reqwest::Response;
use sluice_core::Millis;

use super::{ApiRequest, GatewayClient, problem, read};
use crate::failure::CliError;

/// Largest incomplete event that is kept.
const LONGEST: usize = 16 << 20;

/// One event of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StreamEvent {
    /// The id to resume after.
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) data: String,
}

/// The result of waiting for an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EventStreamPoll {
    Event(StreamEvent),
    /// No event arrived in the time given.
    Nothing,
    /// The gateway ended the stream.
    End,
}

/// An open event stream.
#[derive(Debug)]
pub(crate) struct EventStream<'c> {
    client: &'c GatewayClient,
    response: Response,
    base: String,
    parts: EventStreamParser,
}

impl GatewayClient {
    /// Opens the event stream.
    pub(crate) fn listen(&self, types: Option<&str>, after: Option<&str>) -> Result<EventStream<'_>, CliError> {
        // A stream has no end; the gateway sends something every few seconds.
        let ask = ApiRequest::get("/v1/events")
            .with("types", types)
            .with("after", after)
            .with_wait(Millis::from_hours(24 * 365));
        let (response, base) = self.runtime.block_on(async {
            let (response, base) = self.send_to_lane(&ask).await?;
            if response.status().is_success() {
                return Ok((response, base));
            }
            match read(response, &base).await {
                Ok(_) => Err(problem::not_a_gateway_error(&base, "it does not stream events")),
                Err(failure) => Err(failure),
            }
        })?;
        Ok(EventStream { client: self, response, base, parts: EventStreamParser::default() })
    }

    /// Sleeps, for a command without an event stream.
    pub(crate) fn pause(&self, span: Duration) {
        self.runtime.block_on(async {
            let _elapsed = tokio::time::timeout(span, std::future::pending::<()>()).await;
        });
    }
}

impl EventStream<'_> {
    /// The next event, waited for at most this long; without a limit if no time is given.
    pub(crate) fn next(&mut self, patience: Option<Duration>) -> Result<EventStreamPoll, CliError> {
        let Self { client, response, base, parts } = self;
        client.runtime.block_on(async {
            let heard = async {
                loop {
                    if let Some(event) = parts.next() {
                        return Ok(EventStreamPoll::Event(event));
                    }
                    match response.chunk().await {
                        Ok(Some(chunk)) => parts.push(&chunk),
                        Ok(None) => return Ok(EventStreamPoll::End),
                        Err(error) => return Err(problem::unreachable(base, &error)),
                    }
                    if parts.waiting.len() > LONGEST {
                        return Err(problem::not_a_gateway_error(base, "an event is too large"));
                    }
                }
            };
            match patience {
                Some(patience) => tokio::time::timeout(patience, heard).await.unwrap_or(Ok(EventStreamPoll::Nothing)),
                None => heard.await,
            }
        })
    }
}

/// Bytes that become events.
#[derive(Debug, Default)]
struct EventStreamParser {
    waiting: Vec<u8>,
    event: StreamEvent,
}

impl EventStreamParser {
    fn push(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
    }

    /// The next complete event; comments are skipped.
    fn next(&mut self) -> Option<StreamEvent> {
        while let Some(end) = self.waiting.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.waiting.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if line.is_empty() {
                let event = std::mem::take(&mut self.event);
                if !event.data.is_empty() {
                    return Some(event);
                }
                continue;
            }
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "id" => self.event.id = value.to_owned(),
                "event" => self.event.kind = value.to_owned(),
                "data" => {
                    if !self.event.data.is_empty() {
                        self.event.data.push('\n');
                    }
                    self.event.data.push_str(value);
                }
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_whatever_the_pieces_they_come_in() {
        let whole =
            b": listening\n\nid: a:1\nevent: hold.held\ndata: {\"x\":1}\n\n: alive\n\nid: a:2\ndata: 1\ndata: 2\n\n";
        for size in 1..whole.len() {
            let mut parts = EventStreamParser::default();
            let mut events = Vec::new();
            for piece in whole.chunks(size) {
                parts.push(piece);
                events.extend(std::iter::from_fn(|| parts.next()));
            }
            let made =
                |id: &str, kind: &str, data: &str| StreamEvent { id: id.into(), kind: kind.into(), data: data.into() };
            assert_eq!(events, [made("a:1", "hold.held", "{\"x\":1}"), made("a:2", "", "1\n2")], "{size}");
        }
    }
}
