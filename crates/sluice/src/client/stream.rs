//! The stream of events: the record as it is written, for whoever waits for a change.

use std::time::Duration;

use reqwest::Response;
use sluice_core::Span;

use super::{Ask, Client, problem, read};
use crate::failure::Failure;

/// Longest piece of the stream that is kept while it is not complete.
const LONGEST: usize = 16 << 20;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Event {
    /// Where to go on from after it.
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) data: String,
}

/// What came of listening.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Event(Event),
    /// Nothing for as long as was asked.
    Nothing,
    /// The gateway ended the stream.
    End,
}

/// A stream that is being listened to.
#[derive(Debug)]
pub(crate) struct Listening<'c> {
    client: &'c Client,
    response: Response,
    base: String,
    parts: Parts,
}

impl Client {
    /// Listens to the record.
    pub(crate) fn listen(&self, types: Option<&str>, after: Option<&str>) -> Result<Listening<'_>, Failure> {
        // A stream has no end; silence is broken by the gateway every few seconds.
        let ask = Ask::get("/v1/events").with("types", types).with("after", after).waits(Span::from_hours(24 * 365));
        let (response, base) = self.runtime.block_on(async {
            let (response, base) = self.reach(&ask).await?;
            if response.status().is_success() {
                return Ok((response, base));
            }
            match read(response, &base).await {
                Ok(_) => Err(problem::stranger(&base, "it does not stream events")),
                Err(failure) => Err(failure),
            }
        })?;
        Ok(Listening { client: self, response, base, parts: Parts::default() })
    }

    /// Lets time pass where there is nothing to listen to.
    pub(crate) fn pause(&self, span: Duration) {
        self.runtime.block_on(async {
            let _elapsed = tokio::time::timeout(span, std::future::pending::<()>()).await;
        });
    }
}

impl Listening<'_> {
    /// The next event, waited for at most this long; for ever if nothing is said.
    pub(crate) fn next(&mut self, patience: Option<Duration>) -> Result<Heard, Failure> {
        let Self { client, response, base, parts } = self;
        client.runtime.block_on(async {
            let heard = async {
                loop {
                    if let Some(event) = parts.next() {
                        return Ok(Heard::Event(event));
                    }
                    match response.chunk().await {
                        Ok(Some(chunk)) => parts.push(&chunk),
                        Ok(None) => return Ok(Heard::End),
                        Err(error) => return Err(problem::unreachable(base, &error)),
                    }
                    if parts.waiting.len() > LONGEST {
                        return Err(problem::stranger(base, "an event is too large"));
                    }
                }
            };
            match patience {
                Some(patience) => tokio::time::timeout(patience, heard).await.unwrap_or(Ok(Heard::Nothing)),
                None => heard.await,
            }
        })
    }
}

/// Bytes on their way to becoming events.
#[derive(Debug, Default)]
struct Parts {
    waiting: Vec<u8>,
    event: Event,
}

impl Parts {
    fn push(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
    }

    /// The next whole event; comments are passed over.
    fn next(&mut self) -> Option<Event> {
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
            let mut parts = Parts::default();
            let mut events = Vec::new();
            for piece in whole.chunks(size) {
                parts.push(piece);
                events.extend(std::iter::from_fn(|| parts.next()));
            }
            let made = |id: &str, kind: &str, data: &str| Event { id: id.into(), kind: kind.into(), data: data.into() };
            assert_eq!(events, [made("a:1", "hold.held", "{\"x\":1}"), made("a:2", "", "1\n2")], "{size}");
        }
    }
}
