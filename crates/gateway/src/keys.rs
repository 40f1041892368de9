//! Keys of agents, operators, inboxes and stated tasks: the token texts, and the hashes that are kept.
//!
//! Takes randomness; gives a token that is shown once, and the hash that is stored. Promise: the token
//! cannot be printed, copied or serialized by accident and is wiped when dropped; a text that does not have
//! the form of a token is refused before any lookup.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use sluice_core::Entropy;
use zeroize::Zeroizing;

/// Random bytes in a token.
const BYTES: usize = 32;
/// Characters after the prefix.
const CHARACTERS: usize = 43;
/// Length of a client's label, in hex digits.
const LABEL: usize = 12;

/// The kind of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// The key of an agent.
    Agent,
    /// The key of an operator.
    Operator,
    /// The key of a mailbox that hands in replies.
    Inbox,
    /// The key of a program that states what an agent's user asked for.
    Task,
}

impl TokenKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Agent, Self::Operator, Self::Inbox, Self::Task];

    /// The prefix of every token of this kind.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Agent => "sga_",
            Self::Operator => "sgo_",
            Self::Inbox => "sgi_",
            Self::Task => "sgt_",
        }
    }
}

/// The text of a key, shown once and not stored.
#[expect(missing_debug_implementations, reason = "a secret must not end up in a log by way of its owner")]
pub struct KeyToken {
    kind: TokenKind,
    text: Zeroizing<String>,
}

impl KeyToken {
    /// Makes a new token.
    #[must_use]
    pub fn generate(kind: TokenKind, entropy: &dyn Entropy) -> Self {
        let mut bytes = Zeroizing::new([0; BYTES]);
        entropy.fill(&mut *bytes);
        // Allocated in its final length, so that no shorter copy is left behind in memory.
        let mut text = Zeroizing::new(String::with_capacity(kind.prefix().len() + CHARACTERS));
        text.push_str(kind.prefix());
        URL_SAFE_NO_PAD.encode_string(bytes.as_slice(), &mut text);
        Self { kind, text }
    }

    /// The kind of the key.
    #[must_use]
    pub const fn kind(&self) -> TokenKind {
        self.kind
    }

    /// The text, to be shown or sent once.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// The hash that is stored.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.text.as_bytes()).into()
    }
}

/// The kind and hash of a token text; nothing if the text is not a token.
#[must_use]
pub fn hash_of(text: &str) -> Option<(TokenKind, [u8; 32])> {
    let (kind, rest) = TokenKind::ALL.into_iter().find_map(|kind| Some((kind, text.strip_prefix(kind.prefix())?)))?;
    // Decoding checks the alphabet, the length and the unused bits of the last character: each key has exactly one
    // text.
    let bytes = Zeroizing::new((rest.len() == CHARACTERS).then(|| URL_SAFE_NO_PAD.decode(rest).ok())??);
    (bytes.len() == BYTES).then(|| (kind, Sha256::digest(text.as_bytes()).into()))
}

/// A label for the holder of a key: the first 12 hex digits of the key's SHA-256. It identifies a key and grants
/// nothing.
#[must_use]
pub fn client_id(text: &str) -> String {
    label(&Sha256::digest(text.as_bytes()).into())
}

/// The same label, from the stored hash.
#[must_use]
pub fn label(hash: &[u8; 32]) -> String {
    let mut hex = sluice_core::hex::encode(hash);
    hex.truncate(LABEL);
    hex
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Fixed(u8);

    impl Entropy for Fixed {
        fn fill(&self, buffer: &mut [u8]) {
            buffer.fill(self.0);
        }
    }

    #[test]
    fn a_key_says_whose_it_is_and_is_known_by_its_hash() {
        for kind in TokenKind::ALL {
            let token = KeyToken::generate(kind, &Fixed(0xa5));
            assert_eq!(token.expose().len(), 47);
            assert!(token.expose().starts_with(kind.prefix()));
            assert_eq!(hash_of(token.expose()), Some((kind, token.hash())));
        }
        assert_eq!(KeyToken::generate(TokenKind::Agent, &Fixed(0)).expose(), format!("sga_{}", "A".repeat(43)));
    }

    #[test]
    fn the_hash_is_of_the_whole_text() {
        let text = format!("sga_{}", "A".repeat(43));
        let (_, hash) = hash_of(&text).unwrap();
        assert_eq!(hash, <[u8; 32]>::from(Sha256::digest(text.as_bytes())));
        assert_ne!(hash, hash_of(&format!("sgo_{}", "A".repeat(43))).unwrap().1);
        assert_eq!(client_id(&text), sluice_core::hex::encode(&hash)[..12]);
        assert_eq!(client_id("hello"), "2cf24dba5fb0");
    }

    #[test]
    fn a_text_that_is_no_key_is_refused() {
        let body = "A".repeat(43);
        for bad in [
            String::new(),
            "sga_".into(),
            body.clone(),
            format!("sgx_{body}"),
            format!("SGA_{body}"),
            format!("sga_{body}A"),
            format!("sga_{}", "A".repeat(42)),
            format!("sga_{}=", "A".repeat(42)),
            format!("sga_{}+", "A".repeat(42)),
            format!("sga_{}B", "A".repeat(42)),
            format!(" sga_{body}"),
            format!("sga_{body}\n"),
            format!("sga_{}é", "A".repeat(41)),
        ] {
            assert_eq!(hash_of(&bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in "\\PC{0,60}|sg[aoit]_[A-Za-z0-9_-]{40,45}") {
            if let Some((kind, _)) = hash_of(&text) {
                prop_assert!(text.starts_with(kind.prefix()) && text.len() == 47);
            }
        }
    }
}
