//! Forms for an OAuth provider, which may hold secrets.
//!
//! Takes an address and fields; gives the encoded body. Promise: the buffer of the body is wiped after use.

use sluice_config::network::CredentialPlacement;
use url::form_urlencoded::byte_serialize;
use zeroize::Zeroizing;

use crate::credential::OutgoingCredential;
use crate::error::EgressError;
use crate::vault::SecretValue;

/// Fields for one address. Their values may be secrets.
#[derive(Clone, Copy)]
pub struct ProviderForm<'a> {
    /// The address.
    pub url: &'a str,
    /// The names and values.
    pub fields: &'a [(&'a str, &'a [u8])],
    /// The id and the secret that are sent in the `Authorization` header, if they are sent there.
    pub client: Option<(&'a str, &'a SecretValue)>,
}

impl std::fmt::Debug for ProviderForm<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Form").field("fields", &self.fields.len()).finish_non_exhaustive()
    }
}

impl ProviderForm<'_> {
    /// The fields as `application/x-www-form-urlencoded`.
    pub(super) fn encoded(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(4096));
        for (name, value) in self.fields {
            if !text.is_empty() {
                text.push('&');
            }
            text.extend(byte_serialize(name.as_bytes()));
            text.push('=');
            text.extend(byte_serialize(value));
        }
        text
    }

    /// The credential for the `Authorization` header.
    ///
    /// # Errors
    /// When it is too long to be sent.
    pub(super) fn credential(&self) -> Result<Option<OutgoingCredential>, EgressError> {
        let Some((id, secret)) = self.client else { return Ok(None) };
        // RFC 6749, 2.3.1: both are encoded as in a form before they become one text.
        let mut pair = Zeroizing::new(String::with_capacity(256));
        pair.extend(byte_serialize(id.as_bytes()));
        pair.push(':');
        pair.extend(byte_serialize(secret.expose()));
        let pair = SecretValue::new(pair.as_bytes().to_vec());
        OutgoingCredential::new(pair, CredentialPlacement::Basic).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_cannot_become_fields() {
        let fields: &[(&str, &[u8])] = &[("code", b"4/0A&x=1"), ("redirect_uri", b"http://127.0.0.1:1/ \xff")];
        let form = ProviderForm { url: "", fields, client: None };
        assert_eq!(form.encoded().as_str(), "code=4%2F0A%26x%3D1&redirect_uri=http%3A%2F%2F127.0.0.1%3A1%2F+%FF");
        assert!(!format!("{form:?}").contains("4/0A"));
    }
}
