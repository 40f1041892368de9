//! Secret values in memory.
//!
//! Promise: a secret cannot be printed, copied, compared or serialized by accident; it is wiped when it is dropped.

use zeroize::Zeroizing;

/// The shortest value, in bytes.
pub const SHORTEST: usize = 8;
/// The longest value, in bytes.
pub const LONGEST: usize = 64 * 1024;

/// A credential in memory.
///
/// ```compile_fail
/// fn prints<T: std::fmt::Debug>() {}
/// prints::<crate::vault::Secret>();
/// ```
/// ```compile_fail
/// fn copies<T: Clone>() {}
/// copies::<crate::vault::Secret>();
/// ```
/// ```compile_fail
/// fn writes<T: serde::Serialize>() {}
/// writes::<crate::vault::Secret>();
/// ```
#[allow(missing_debug_implementations, reason = "a secret that can be printed will be")]
pub struct SecretValue(Zeroizing<Vec<u8>>);

impl SecretValue {
    /// Wraps a value.
    #[must_use]
    pub fn new(value: Vec<u8>) -> Self {
        Self(Zeroizing::new(value))
    }

    /// The value itself, for code that has to send it.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the value is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
