//! Forms for an OAuth provider, which may hold secrets.
//!
//! Takes an address and fields; gives the encoded body. Promise: the buffer of the body is wiped after use.

use url::form_urlencoded::byte_serialize;
use zeroize::Zeroizing;

/// Fields for one address. Their values may be secrets.
#[derive(Clone, Copy)]
pub struct ProviderForm<'a> {
    /// The address.
    pub url: &'a str,
    /// The names and values.
    pub fields: &'a [(&'a str, &'a [u8])],
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_cannot_become_fields() {
        let form =
            ProviderForm { url: "", fields: &[("code", b"4/0A&x=1"), ("redirect_uri", b"http://127.0.0.1:1/ \xff")] };
        assert_eq!(form.encoded().as_str(), "code=4%2F0A%26x%3D1&redirect_uri=http%3A%2F%2F127.0.0.1%3A1%2F+%FF");
        assert!(!format!("{form:?}").contains("4/0A"));
    }
}
