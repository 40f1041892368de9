//! How much of the gateway one client can take.

use sluice_core::Span;

use super::section::section;
use super::size::Size;

section! {
    /// How much of the gateway clients can take before they are told to wait.
    Limits at "limits" {
        /// Connections at once.
        connections: u32 = 512; within 1..=100_000,
        /// Connections at once of one peer: an IPv4 address, or a /64 network of IPv6. The peer is whoever connects to the
        /// gateway, so behind a reverse proxy set it as high as `connections`.
        connections_per_peer: u32 = 384; within 1..=100_000,
        /// Largest body of a request.
        body: Size = Size::from_kib(1024); within Size::from_kib(1)..=Size::from_kib(64 * 1024),
        /// Largest head of a request: its line and headers.
        head: Size = Size::from_kib(32); within Size::from_kib(8)..=Size::from_kib(1024),
        /// Most headers of a request.
        headers: u32 = 64; within 8..=1024,
        /// How long the head of a request may take to arrive.
        head_timeout: Span = Span::from_secs(10); within Span::from_millis(100)..=Span::from_mins(5),
        /// How long a connection may stay open between two requests, or before a person who has to think has thought.
        idle_timeout: Span = Span::from_mins(20); within Span::from_millis(100)..=Span::from_hours(24),
        /// How long the body of a request may take to arrive.
        body_timeout: Span = Span::from_secs(30); within Span::from_millis(100)..=Span::from_mins(10),
        /// How long a client may take to receive what was written for it. Then its connection is closed.
        write_timeout: Span = Span::from_secs(20); within Span::from_millis(100)..=Span::from_mins(10),
        /// How long a request may take altogether. Waiting for a person is not part of it.
        request_timeout: Span = Span::from_secs(60); within Span::from_secs(1)..=Span::from_hours(1),
        /// How long writes under way may take to end after the gateway was told to stop. It ends as soon as nothing is under
        /// way; what has not ended by then is looked up after the next start.
        stop_grace: Span = Span::from_secs(10); within Span::ZERO..=Span::from_mins(10),
        /// Streams of events at once.
        streams: u32 = 1000; within 1..=100_000,
        /// Streams of events at once for one key.
        streams_per_key: u32 = 4; within 1..=1000,
    }
}
