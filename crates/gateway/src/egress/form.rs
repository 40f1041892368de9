//! A form for a provider: what only it may see, and nothing else.
//!
//! Takes an address and fields; gives them as a body. Promise: the body is wiped from where it was put together.

use url::form_urlencoded::byte_serialize;
use zeroize::Zeroizing;

/// Fields for one address. Their values may be secrets.
#[derive(Clone, Copy)]
pub struct Form<'a> {
    /// Where to.
    pub url: &'a str,
    /// Names and values.
    pub fields: &'a [(&'a str, &'a [u8])],
}

impl std::fmt::Debug for Form<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Form").field("fields", &self.fields.len()).finish_non_exhaustive()
    }
}

impl Form<'_> {
    /// As `application/x-www-form-urlencoded`.
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
        let form = Form { url: "", fields: &[("code", b"4/0A&x=1"), ("redirect_uri", b"http://127.0.0.1:1/ \xff")] };
        assert_eq!(form.encoded().as_str(), "code=4%2F0A%26x%3D1&redirect_uri=http%3A%2F%2F127.0.0.1%3A1%2F+%FF");
        assert!(!format!("{form:?}").contains("4/0A"));
    }
}
