//! Credentials: added to requests and removed from answers.
//!
//! Takes a secret and its placement; gives the header or query pair that carries it, and removes it from answers that
//! repeat it: in every usual spelling, decoded and folded ([`LiveSecrets::scrub`]). Promise: an agent or worker sees no
//! spelling of it.

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use http::{HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_encode};
use sluice_config::network::CredentialPlacement;
use sluice_content::leak::LiveSecrets;
use zeroize::Zeroizing;

use super::error::EgressError;
use super::headers::is_ours;
use crate::vault::{SecretValue, VaultError};

/// The text that replaces a credential.
const REMOVED: &[u8] = b"[credential removed]";

/// Escapes all but the characters that never need it (RFC 3986, 2.3).
const OUTSIDE_NAMES: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// Escapes what would end a value of a query or change an address.
const OUTSIDE_ADDRESSES: AsciiSet = CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}')
    .add(b'&')
    .add(b'=')
    .add(b'+')
    .add(b'/');
const EVERY_BYTE: AsciiSet = AsciiSet::EMPTY.complement();

/// A secret that is about to be sent, with every form in which it could come back.
#[allow(missing_debug_implementations, reason = "it holds a secret")]
pub struct OutgoingCredential {
    placement: CredentialPlacement,
    secret: SecretValue,
    needles: AhoCorasick,
    /// The same secret, to be found in escaped form and with invisible characters in between.
    live: LiveSecrets,
}

/// The part of a request that carries the credential.
#[allow(missing_debug_implementations, reason = "it holds a secret")]
pub(super) enum InjectedCredential {
    /// A header.
    Header(HeaderName, HeaderValue),
    /// A pair of the query.
    Pair(String, Zeroizing<String>),
}

impl OutgoingCredential {
    /// Prepares a secret for sending.
    ///
    /// # Errors
    /// When it cannot be placed there.
    pub fn new(secret: SecretValue, placement: CredentialPlacement) -> Result<Self, EgressError> {
        // SECURITY: an agent may choose where its secret goes, but not a place where it changes the request itself.
        if let CredentialPlacement::Header { name, .. } = &placement
            && is_ours(name)
        {
            return Err(EgressError::Header(format!("the header `{name}` can be set only by the gateway")));
        }
        let needles = needles(&secret, &placement)?;
        let live = parts(&secret, &placement).into_iter().map(|part| ("credential", part));
        let live = LiveSecrets::new(live).map_err(|_| too_long())?;
        Ok(Self { placement, secret, needles, live })
    }

    pub(super) fn added(&self) -> Result<InjectedCredential, EgressError> {
        let unfit =
            || EgressError::Vault(VaultError::Wrong("the secret has characters not allowed in a header".into()));
        let value = |prefix: &str, secret: &[u8]| {
            let whole = Zeroizing::new([prefix.as_bytes(), secret].concat());
            let mut value = HeaderValue::from_bytes(&whole).map_err(|_| unfit())?;
            value.set_sensitive(true);
            Ok::<_, EgressError>(value)
        };
        Ok(match &self.placement {
            CredentialPlacement::Bearer => {
                InjectedCredential::Header(http::header::AUTHORIZATION, value("Bearer ", self.secret.expose())?)
            }
            CredentialPlacement::Basic => {
                let encoded = Zeroizing::new(STANDARD.encode(self.secret.expose()));
                InjectedCredential::Header(http::header::AUTHORIZATION, value("Basic ", encoded.as_bytes())?)
            }
            CredentialPlacement::Header { name, prefix } => {
                InjectedCredential::Header(name.clone(), value(prefix, self.secret.expose())?)
            }
            CredentialPlacement::Query { name } => {
                let text = std::str::from_utf8(self.secret.expose()).map_err(|_| unfit())?;
                InjectedCredential::Pair(name.clone(), Zeroizing::new(text.to_owned()))
            }
        })
    }

    /// The header that it uses, so that nothing else sets it.
    #[must_use]
    pub fn header(&self) -> Option<HeaderName> {
        match &self.placement {
            CredentialPlacement::Bearer | CredentialPlacement::Basic => Some(http::header::AUTHORIZATION),
            CredentialPlacement::Header { name, .. } => Some(name.clone()),
            CredentialPlacement::Query { .. } => None,
        }
    }

    /// Removes every spelling of the secret. Returns nothing if none was found.
    #[must_use]
    pub fn scrub(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        match self.replaced(bytes) {
            Some(clean) => Some(self.live.scrub(&clean).unwrap_or(clean)),
            None => self.live.scrub(bytes),
        }
    }

    /// Replaces the spellings that can be searched for directly.
    fn replaced(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        if !self.needles.is_match(bytes) {
            return None;
        }
        let mut clean = Vec::with_capacity(bytes.len());
        self.needles.replace_all_with_bytes(bytes, &mut clean, |_, _, out| {
            out.extend_from_slice(REMOVED);
            true
        });
        Some(clean)
    }
}

/// All spellings: raw, base64 (three alignments, both alphabets), hex, percent, JSON, UTF-16.
fn needles(secret: &SecretValue, placement: &CredentialPlacement) -> Result<AhoCorasick, EgressError> {
    let mut all: Vec<Zeroizing<Vec<u8>>> = Vec::new();
    let mut add = |spelling: Vec<u8>| {
        // A spelling this short would be found everywhere; the vault accepts no secret this short.
        if spelling.len() >= 6 {
            all.push(Zeroizing::new(spelling));
        }
    };
    let parts = parts(secret, placement);
    for part in parts.iter().map(|part| part.as_slice()) {
        add(part.to_vec());
        for shift in 0..3 {
            add(aligned(part, shift, &STANDARD_NO_PAD));
            add(aligned(part, shift, &URL_SAFE_NO_PAD));
        }
        let hex = sluice_core::hex::encode(part);
        add(hex.to_uppercase().into_bytes());
        add(hex.into_bytes());
        for upper in [true, false] {
            for escaped in [&OUTSIDE_NAMES, &OUTSIDE_ADDRESSES, &EVERY_BYTE] {
                add(percent(part, upper, escaped));
            }
        }
        if let Ok(text) = std::str::from_utf8(part) {
            let json = serde_json::Value::from(text).to_string();
            let inner = json.trim_matches('"').to_owned();
            add(inner.replace('/', "\\/").into_bytes());
            add(inner.into_bytes());
            add(text.encode_utf16().flat_map(u16::to_le_bytes).collect());
            add(text.encode_utf16().flat_map(u16::to_be_bytes).collect());
            add(text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").into_bytes());
        }
    }
    let spellings: Vec<&[u8]> = all.iter().map(|spelling| spelling.as_slice()).collect();
    let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(spellings);
    built.map_err(|_| too_long())
}

fn too_long() -> EgressError {
    EgressError::Vault(VaultError::Wrong("the secret is too long to be sent".into()))
}

/// The parts that must not come back: the secret; for a pair also the password, and the base64 text that is sent, so
/// that base64 of that text is found too.
fn parts(secret: &SecretValue, placement: &CredentialPlacement) -> Vec<Zeroizing<Vec<u8>>> {
    let raw = secret.expose();
    let mut parts = vec![Zeroizing::new(raw.to_vec())];
    if *placement == CredentialPlacement::Basic {
        parts.extend(raw.splitn(2, |b| *b == b':').nth(1).map(|password| Zeroizing::new(password.to_vec())));
        parts.push(Zeroizing::new(STANDARD.encode(raw).into_bytes()));
    }
    parts
}

/// The base64 text of these bytes after `shift` other bytes: only the characters that depend on these bytes alone.
fn aligned(bytes: &[u8], shift: usize, alphabet: &base64::engine::GeneralPurpose) -> Vec<u8> {
    let padded = Zeroizing::new([vec![0; shift], bytes.to_vec()].concat());
    let encoded = alphabet.encode(padded.as_slice()).into_bytes();
    let skip = if shift == 0 { 0 } else { shift + 1 };
    let bits = padded.len() * 8;
    let whole = bits / 6;
    encoded.get(skip..whole).map(<[u8]>::to_vec).unwrap_or_default()
}

fn percent(bytes: &[u8], upper: bool, escaped: &'static AsciiSet) -> Vec<u8> {
    let pieces = percent_encode(bytes, escaped);
    // All three sets have the percent sign, so a piece with one is an escape.
    let spelt =
        |piece: &str| if upper || !piece.starts_with('%') { piece.to_owned() } else { piece.to_ascii_lowercase() };
    pieces.map(spelt).collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn credential(secret: &str, placement: CredentialPlacement) -> OutgoingCredential {
        OutgoingCredential::new(SecretValue::new(secret.into()), placement).unwrap_or_else(|no| panic!("{no}"))
    }

    #[test]
    fn every_spelling_of_a_reflected_secret_is_removed() {
        let secret = "s3cr\"t/Va+lue&=key:ü";
        let own = credential(secret, CredentialPlacement::Bearer);
        let json = serde_json::json!({"echo": secret}).to_string();
        for reflected in [
            secret.to_owned(),
            format!("Bearer {secret}"),
            json.clone(),
            json.replace('/', "\\/"),
            STANDARD.encode(secret),
            STANDARD.encode(format!("x{secret}y")),
            STANDARD.encode(format!("xy{secret}z")),
            URL_SAFE_NO_PAD.encode(format!("abc{secret}")),
            sluice_core::hex::encode(secret.as_bytes()),
            sluice_core::hex::encode(secret.as_bytes()).to_uppercase(),
            url::form_urlencoded::byte_serialize(secret.as_bytes()).collect(),
            secret.bytes().map(|b| format!("%{b:02x}")).collect(),
        ] {
            let clean =
                own.scrub(format!("before {reflected} after").as_bytes()).unwrap_or_else(|| panic!("{reflected}"));
            let clean = String::from_utf8_lossy(&clean).into_owned();
            assert!(clean.contains("[credential removed]") && !clean.contains("s3cr"), "{reflected}: {clean}");
        }
        assert!(own.scrub(b"nothing of it").is_none());
    }

    #[test]
    fn the_password_of_a_pair_is_removed_too() {
        let own = credential("ana:correct-horse", CredentialPlacement::Basic);
        assert!(own.scrub(b"password=correct-horse").is_some());
        assert!(own.scrub(STANDARD.encode("ana:correct-horse").as_bytes()).is_some());
    }

    #[test]
    fn a_secret_with_a_line_break_is_not_sent() {
        assert!(credential("line\r\nbreak-here", CredentialPlacement::Bearer).added().is_err());
    }

    proptest! {
        #[test]
        fn base64_of_a_text_around_it_is_found(before in "[a-z]{0,5}", after in "[a-z]{0,5}", secret in "[!-~]{12,40}") {
            let own = credential(&secret, CredentialPlacement::Bearer);
            let reflected = STANDARD.encode([before, secret, after].concat());
            prop_assert!(own.scrub(reflected.as_bytes()).is_some());
        }
    }
}
