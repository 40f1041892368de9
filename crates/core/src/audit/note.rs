//! Signed notes: a text and the signatures under it, in the C2SP form.
//!
//! Takes bytes from anywhere; gives a text that at least one known key has signed. Promise: what
//! [`SignedNote::open`] returns was signed as it stands by a key the caller named; other signatures are
//! kept and not trusted.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::key::{KeyId, SecretKey, VerifierKey, is_key_name};

/// Em dash and space: what a signature line starts with.
const DASH: &str = "\u{2014} ";
/// Longest note read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// Most signatures read under one note.
pub const MAX_SIGNATURES: usize = 100;

/// Why a note is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// Not a signed note at all.
    #[error("not a signed note: {0}")]
    Form(&'static str),
    /// No signature is from a known key.
    #[error("no known key has signed this note")]
    Unknown,
    /// A signature claims to be from a known key, and is not.
    #[error("the signature of `{name}` is wrong")]
    Signature {
        /// The key it claims to be from.
        name: String,
    },
}

impl NoteError {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Form(_) => "audit.note_form",
            Self::Unknown => "audit.note_unknown_signer",
            Self::Signature { .. } => "audit.note_signature",
        }
    }
}

/// One signature line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteSignature {
    /// The name of the key it claims to be from.
    pub name: String,
    /// The id of that key.
    pub id: KeyId,
    /// The signature; 64 bytes for Ed25519, any length for other kinds.
    pub bytes: Vec<u8>,
}

/// A text and the signatures under it. [`SignedNote::open`] decides whether they hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedNote {
    text: String,
    signatures: Vec<NoteSignature>,
}

impl SignedNote {
    /// Signs a text, which must be lines that each end in a line feed.
    ///
    /// # Errors
    /// When the text cannot be the text of a note.
    pub(crate) fn sign(text: String, key: &SecretKey) -> Result<Self, NoteError> {
        check_text(&text)?;
        let signature = NoteSignature {
            name: key.public().name().to_owned(),
            id: key.public().id(),
            bytes: key.sign(text.as_bytes()).to_vec(),
        };
        Ok(Self { text, signatures: vec![signature] })
    }

    /// Parses a note. Nothing is verified yet.
    ///
    /// # Errors
    /// When it is not in the form, to the byte.
    pub fn parse(bytes: &[u8]) -> Result<Self, NoteError> {
        if bytes.len() > MAX_BYTES {
            return Err(NoteError::Form("it is longer than 1 MiB"));
        }
        let note = std::str::from_utf8(bytes).map_err(|_| NoteError::Form("it is not UTF-8"))?;
        // The last blank line: the text may have blank lines, signatures never do.
        let cut = note.rfind("\n\n").ok_or(NoteError::Form("there is no blank line before the signatures"))?;
        let (text, rest) = note.split_at(cut + 1);
        check_text(text)?;
        let lines = rest.strip_prefix('\n').and_then(|rest| rest.strip_suffix('\n'));
        let lines = lines.ok_or(NoteError::Form("the last line does not end"))?;
        let signatures = lines.split('\n').map(signature).collect::<Option<Vec<_>>>();
        let signatures = signatures.ok_or(NoteError::Form("a signature line is wrong"))?;
        if signatures.len() > MAX_SIGNATURES {
            return Err(NoteError::Form("there are more than 100 signatures"));
        }
        Ok(Self { text: text.to_owned(), signatures })
    }

    /// The text, if at least one of these keys has signed it.
    ///
    /// # Errors
    /// When none has, or a signature that claims to be from one of them is wrong.
    pub fn open(&self, keys: &[VerifierKey]) -> Result<&str, NoteError> {
        let mut good = false;
        for signature in &self.signatures {
            let known = keys.iter().find(|key| key.name() == signature.name && key.id() == signature.id);
            let Some(key) = known else { continue };
            // SECURITY: a wrong signature of a known key is refused even beside a valid one: no honest program makes it
            if !key.verifies(self.text.as_bytes(), &signature.bytes) {
                return Err(NoteError::Signature { name: signature.name.clone() });
            }
            good = true;
        }
        if good { Ok(&self.text) } else { Err(NoteError::Unknown) }
    }

    /// The text, without a check of its signatures.
    #[must_use]
    pub fn text_unverified(&self) -> &str {
        &self.text
    }

    /// The signatures, valid or not.
    #[must_use]
    pub fn signatures(&self) -> &[NoteSignature] {
        &self.signatures
    }
}

impl fmt::Display for SignedNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        self.signatures.iter().try_for_each(|signature| {
            let bytes = [signature.id.as_slice(), &signature.bytes].concat();
            writeln!(f, "{DASH}{} {}", signature.name, STANDARD.encode(bytes))
        })
    }
}

fn check_text(text: &str) -> Result<(), NoteError> {
    if text.len() < 2 || !text.ends_with('\n') {
        return Err(NoteError::Form("there is no text, or its last line does not end"));
    }
    if text.bytes().any(|byte| byte < 0x20 && byte != b'\n') {
        return Err(NoteError::Form("it has a control character"));
    }
    Ok(())
}

fn signature(line: &str) -> Option<NoteSignature> {
    let (name, digits) = line.strip_prefix(DASH)?.split_once(' ')?;
    let bytes = STANDARD.decode(digits).ok()?;
    let (id, bytes) = bytes.split_first_chunk::<4>()?;
    let whole = is_key_name(name) && !bytes.is_empty();
    whole.then(|| NoteSignature { name: name.to_owned(), id: *id, bytes: bytes.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PETER: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    const TEXT: &str =
        "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n";
    const LINE: &str = "\u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";

    fn peter() -> VerifierKey {
        PETER.parse().unwrap()
    }

    fn example() -> String {
        format!("{TEXT}\n{LINE}")
    }

    #[test]
    fn the_published_example_opens_and_prints_back() {
        let note = SignedNote::parse(example().as_bytes()).unwrap();
        assert_eq!(note.open(&[peter()]), Ok(TEXT));
        assert_eq!(note.to_string(), example());
    }

    #[test]
    fn the_published_signing_key_makes_the_published_signature() {
        let key =
            SecretKey::parse("PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz").unwrap();
        assert_eq!(SignedNote::sign(TEXT.to_owned(), &key).unwrap().to_string(), example());
    }

    #[test]
    fn signers_we_do_not_know_are_ignored_but_do_not_count() {
        let other = "\u{2014} enochian.example OJJ7Cw==AAAA\n";
        assert!(SignedNote::parse(format!("{TEXT}\n{other}").as_bytes()).is_err());
        let other = format!("\u{2014} enochian.example {}\n", STANDARD.encode([1; 30]));
        let both = SignedNote::parse(format!("{TEXT}\n{other}{LINE}").as_bytes()).unwrap();
        assert_eq!(both.open(&[peter()]), Ok(TEXT));
        assert_eq!(both.signatures().len(), 2);
        let alone = SignedNote::parse(format!("{TEXT}\n{other}").as_bytes()).unwrap();
        assert_eq!(alone.open(&[peter()]).unwrap_err().code(), "audit.note_unknown_signer");
        assert_eq!(both.open(&[]), Err(NoteError::Unknown));
    }

    #[test]
    fn a_wrong_signature_of_a_known_key_spoils_a_right_one() {
        let wrong = STANDARD.encode([&[0xc7, 0x4f, 0x20, 0xa3][..], &[5; 64]].concat());
        let note = SignedNote::parse(format!("{TEXT}\n{LINE}\u{2014} PeterNeumann {wrong}\n").as_bytes()).unwrap();
        assert_eq!(note.open(&[peter()]).unwrap_err().code(), "audit.note_signature");
        let changed = SignedNote::parse(example().replace("crypto", "krypto").as_bytes()).unwrap();
        assert_eq!(changed.open(&[peter()]), Err(NoteError::Signature { name: "PeterNeumann".into() }));
    }

    #[test]
    fn what_is_not_quite_a_note_is_refused() {
        let long = format!("{TEXT}\n{}", LINE.repeat(MAX_SIGNATURES + 1));
        for bad in [
            "",
            "\n",
            "\n\n",
            TEXT,
            &format!("\n{LINE}"),
            &format!("\n\n{LINE}"),
            &format!("{TEXT}\n"),
            &format!("{TEXT}\n\n"),
            &format!("{TEXT}{LINE}"),
            &format!("{TEXT}\n{LINE}\n"),
            example().trim_end(),
            &example().replace("know", "kn\tow"),
            &example().replace("know", "kn\row"),
            &example().replace('\u{2014}', "-"),
            &example().replace("\u{2014} ", "\u{2014}  "),
            &example().replace("JnAM=", "JnAM"),
            &example().replace("JnAM=", "JnAN="),
            &example().replace("JnAM=", "JnAM=="),
            &example().replace("PeterNeumann x", "Peter+Neumann x"),
            &format!("{TEXT}\n\u{2014} PeterNeumann x08gow==\n"),
            &long,
            &"x\n".repeat(MAX_BYTES),
        ] {
            let error = SignedNote::parse(bad.as_bytes()).unwrap_err();
            assert_eq!(error.code(), "audit.note_form", "{}", bad.get(..bad.len().min(80)).unwrap_or(""));
        }
        assert!(SignedNote::parse(b"a\xff\n\n").is_err());
    }

    proptest! {
        /// Every text that parses as a note prints as the same bytes, so nothing is in it that the parser did not see.
        #[test]
        fn a_note_has_one_spelling(text in "[a-z\n]{0,40}", at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = format!("{text}{}", example()).into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(note) = SignedNote::parse(&bytes) {
                prop_assert_eq!(note.to_string().into_bytes(), bytes);
            }
        }
    }
}
