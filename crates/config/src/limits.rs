//! Request limits: how much of the gateway one client can use.

use sluice_core::Millis;

use super::section::section;
use super::size::ByteSize;

section! {
    /// How much of the gateway clients can use before they are told to wait.
    Limits at "limits" {
        /// Most connections at once.
        connections: u32 = 512; within 1..=100_000,
        /// Most connections at once from one peer: an IPv4 address, or a /64 network of IPv6. The peer is the address
        /// that connects to the gateway, so behind a reverse proxy set it as high as `connections`.
        connections_per_peer: u32 = 384; within 1..=100_000,
        /// Largest body of a request.
        body: ByteSize = ByteSize::from_kib(1024); within ByteSize::from_kib(1)..=ByteSize::from_kib(64 * 1024),
        /// Largest head of a request: its line and headers.
        head: ByteSize = ByteSize::from_kib(32); within ByteSize::from_kib(8)..=ByteSize::from_kib(1024),
        /// Most headers of a request.
        headers: u32 = 64; within 8..=1024,
        /// How long the head of a request may take to arrive.
        head_timeout: Millis = Millis::from_secs(10); within Millis::from_millis(100)..=Millis::from_mins(5),
        /// How long a connection may stay open between two requests, for example while a person thinks.
        idle_timeout: Millis = Millis::from_mins(20); within Millis::from_millis(100)..=Millis::from_hours(24),
        /// How long the body of a request may take to arrive.
        body_timeout: Millis = Millis::from_secs(30); within Millis::from_millis(100)..=Millis::from_mins(10),
        /// How long a client may take to receive data that was written for it. Then its connection is closed.
        write_timeout: Millis = Millis::from_secs(20); within Millis::from_millis(100)..=Millis::from_mins(10),
        /// How long a request may take in total. Time spent waiting for a person does not count.
        request_timeout: Millis = Millis::from_secs(60); within Millis::from_secs(1)..=Millis::from_hours(1),
        /// How long writes under way may take to end after the gateway was told to stop. The gateway ends as soon as no
        /// write is under way; a write that has not ended by then is looked up after the next start.
        stop_grace: Millis = Millis::from_secs(10); within Millis::ZERO..=Millis::from_mins(10),
        /// Most event streams at once.
        streams: u32 = 1000; within 1..=100_000,
        /// Most event streams at once for one key.
        streams_per_key: u32 = 4; within 1..=1000,
    }
}
