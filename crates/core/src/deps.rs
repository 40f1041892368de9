//! What the environment provides: the clock, ids, randomness and the release, passed in so that tests control them.
//!
//! Promise: no crate reads a clock or draws a random number in any other way.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::clock::Clock;
use crate::ids::{Entropy, Ids};

/// A future that can be stored, as trait objects return it.
pub type BoxedFuture<'a, Out> = Pin<Box<dyn Future<Output = Out> + Send + 'a>>;

/// The outside world, passed in so that tests control it.
#[derive(Clone)]
pub struct GatewayDeps {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of ids.
    pub ids: Arc<dyn Ids>,
    /// The source of randomness.
    pub entropy: Arc<dyn Entropy>,
    /// The release of the gateway.
    pub release: &'static str,
}

impl fmt::Debug for GatewayDeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayDeps").field("release", &self.release).finish_non_exhaustive()
    }
}
