//! Checks whether a mail comes from the domain that it names.
//!
//! Takes a mail, the domain of its sender, domains that may forward, and TXT records; gives a success or why not.
//! Promise: a signature counts if it covers sender, recipients, subject and the whole body, and its domain is aligned
//! as DMARC requires; a forwarder's seal counts if the operator named the forwarder and the forwarder reports the same.
//! What other servers wrote into the mail counts for nothing.

use std::collections::BTreeMap;

use mail_auth::AuthenticatedMessage;
use mail_auth::arc::ChainValidation;
use mail_auth::common::crypto::{Algorithm, HashAlgorithm};
use mail_auth::common::parse::TxtRecordParser as _;
use mail_auth::common::verify::{DomainKey, VerifySignature as _};
use mail_auth::dkim::Canonicalization;

/// Most signatures that are checked: each costs a lookup.
const SIGNATURES: usize = 4;
/// Most forwarders' seals that are checked.
const SEALS: usize = 3;
/// Weakest key that is accepted, in bits.
const WEAKEST: usize = 1024;
/// The flag of a key that signs for exactly its own domain (`t=s`).
const SAME_DOMAIN: u64 = 0x20;
/// The headers that a signature must cover.
const COVERED: [&str; 3] = ["from", "to", "subject"];

/// Names whose TXT records are needed to judge this mail.
pub(super) fn names(message: &AuthenticatedMessage<'_>, domain: &str, forwarders: &[String]) -> Vec<String> {
    let mut names = Vec::new();
    if domain.is_empty() {
        return names;
    }
    let mut add = |name: String| {
        let name = name.trim_end_matches('.').to_lowercase();
        let odd = name.len() > 253 || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        if !odd && !names.contains(&name) {
            names.push(name);
        }
    };
    for header in message.dkim_headers.iter().filter(|header| counts(header.value, &header.header.h)).take(SIGNATURES) {
        let by = header.header.d.to_lowercase();
        if by == domain || is_below(domain, &by) {
            add(header.header.domain_key());
        }
        if is_below(domain, &by) {
            add(format!("_dmarc.{domain}"));
            add(format!("_dmarc.{by}"));
        }
    }
    let sealed = message.as_headers.len();
    if sealed > 0 && sealed <= SEALS && is_trusted(message, forwarders) {
        message.as_headers.iter().for_each(|seal| add(seal.header.domain_key()));
        message.ams_headers.iter().for_each(|set| add(set.header.domain_key()));
    }
    names
}

/// What a mail is judged against.
pub(super) struct MailProofContext<'a> {
    /// The sender's domain.
    pub(super) domain: &'a str,
    pub(super) forwarders: &'a [String],
    pub(super) records: &'a BTreeMap<String, Vec<String>>,
    /// Seconds since 1970.
    pub(super) now: u64,
}

/// Judges a mail.
///
/// # Errors
/// The code of what is missing.
pub(super) fn prove(message: &AuthenticatedMessage<'_>, against: &MailProofContext<'_>) -> Result<(), &'static str> {
    let MailProofContext { domain, forwarders, records, now } = *against;
    if domain.is_empty() {
        return Err("email.from_header");
    }
    let had = !message.dkim_headers.is_empty() || message.has_dkim_errors;
    // SECURITY: signatures that do not count are skipped before anything is checked, so that none can pass for another.
    let counting = message.dkim_headers.iter().filter(|header| {
        counts(header.value, &header.header.h)
            && header.header.a != Algorithm::RsaSha1
            && is_aligned(domain, &header.header.d.to_lowercase(), records)
    });
    let mut some = false;
    for header in counting.take(SIGNATURES) {
        some = true;
        let signature = &header.header;
        let fresh = is_fresh(signature.t, signature.x, now);
        let whole = is_whole(message, signature.cb, &signature.bh);
        let Some(key) = key(records, &signature.domain_key()) else { continue };
        let stripped = without_signature(header.value);
        let mut headers = message.signed_headers(&signature.h, header.name, &stripped);
        let verified = key.p.verify(&mut headers, &signature.b, signature.ch, signature.a).is_ok();
        if fresh && whole && verified && is_own(&signature.i, &signature.d, key.f) {
            return Ok(());
        }
    }
    if !message.as_headers.is_empty() && is_trusted(message, forwarders) {
        let holds = is_sealed(message, records, now) && is_vouched(message, domain);
        return if holds { Ok(()) } else { Err("email.arc") };
    }
    Err(match (had, some) {
        (false, _) => "email.unsigned",
        (true, false) => "email.not_aligned",
        (true, true) => "email.dkim",
    })
}

/// Whether a chain of seals is valid: the last forwarder's signature over the mail, and each seal over those before it.
fn is_sealed(message: &AuthenticatedMessage<'_>, records: &BTreeMap<String, Vec<String>>, now: u64) -> bool {
    let sets: Vec<_> = message
        .aar_headers
        .iter()
        .zip(&message.ams_headers)
        .zip(&message.as_headers)
        .map(|((a, m), s)| (a, m, s))
        .collect();
    let Some((_, last, _)) = sets.last() else { return false };
    if sets.len() != message.aar_headers.len() || sets.len() != message.as_headers.len() {
        return false;
    }
    let in_order = (1_u32..).zip(&sets).all(|(number, (results, signature, seal))| {
        let chain = if number == 1 { ChainValidation::None } else { ChainValidation::Pass };
        [results.header.i, signature.header.i, seal.header.i] == [number; 3] && seal.header.cv == chain
    });
    let signature = &last.header;
    let Some(signer) = key(records, &signature.domain_key()) else { return false };
    let stripped = without_signature(last.value);
    let mut headers = message.signed_headers(&signature.h, last.name, &stripped);
    let signed = signer.p.verify(&mut headers, &signature.b, signature.ch, signature.a).is_ok()
        && is_whole(message, signature.cb, &signature.bh)
        && is_fresh(signature.t, signature.x, now);
    let sealed = sets.iter().enumerate().all(|(at, (results, signature, seal))| {
        let Some(key) = key(records, &seal.header.domain_key()) else { return false };
        let stripped = without_signature(seal.value);
        let before = sets.iter().take(at).flat_map(|(results, signature, seal)| {
            [(results.name, results.value), (signature.name, signature.value), (seal.name, seal.value)]
        });
        let own = [(results.name, results.value), (signature.name, signature.value), (seal.name, stripped.as_slice())];
        let mut headers = before.chain(own);
        key.p.verify(&mut headers, &seal.header.b, Canonicalization::Relaxed, seal.header.a).is_ok()
    });
    in_order && signed && sealed
}

/// Whether a signature is still valid in time.
const fn is_fresh(made: u64, until: u64, now: u64) -> bool {
    until == 0 || (now > 0 && until > made && until > now)
}

/// Whether the whole body is the one that was signed.
fn is_whole(message: &AuthenticatedMessage<'_>, how: Canonicalization, expected: &[u8]) -> bool {
    let same = |hash: &&(Canonicalization, HashAlgorithm, u64, Vec<u8>)| {
        hash.0 == how && hash.1 == HashAlgorithm::Sha256 && hash.2 == 0
    };
    message.body_hashes.iter().find(same).is_some_and(|hash| !expected.is_empty() && hash.3 == expected)
}

/// Whether the identity in a signature (`i=`) is in its domain, or exactly the domain where the key says so.
fn is_own(identity: &str, by: &str, flags: u64) -> bool {
    let (by, at) = (by.to_lowercase(), identity.rsplit_once('@').map(|(_, at)| at.to_lowercase()));
    at.is_none_or(|at| at == by || (flags & SAME_DOMAIN == 0 && is_below(&at, &by)))
}

/// The one key of a name. With two keys under one name, it is not known which is meant.
fn key(records: &BTreeMap<String, Vec<String>>, name: &str) -> Option<DomainKey> {
    let texts = records.get(&name.trim_end_matches('.').to_lowercase())?;
    let mut found = texts.iter().filter_map(|text| DomainKey::parse(text.as_bytes()).ok());
    found.next().filter(|_| found.next().is_none()).filter(|key| key.p.public_key_bits() >= WEAKEST)
}

/// The value of a signature header as it was signed: with an empty `b=`, and without the end of its last line.
fn without_signature(value: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(value.len());
    for (n, pair) in value.split(|byte| *byte == b';').enumerate() {
        if n > 0 {
            kept.push(b';');
        }
        let equals = pair.iter().position(|byte| *byte == b'=');
        let name = equals.and_then(|at| pair.get(..at)).unwrap_or_default();
        match equals.filter(|_| name.trim_ascii().eq_ignore_ascii_case(b"b")) {
            Some(at) => kept.extend_from_slice(pair.get(..=at).unwrap_or_default()),
            None => kept.extend_from_slice(pair),
        }
    }
    while kept.last().is_some_and(|byte| b"\r\n".contains(byte)) {
        kept.pop();
    }
    kept
}

/// Whether a signature covers enough: all of the body, and every header that matters.
fn counts(value: &[u8], covered: &[String]) -> bool {
    let raw = String::from_utf8_lossy(value);
    let all = COVERED.iter().all(|name| covered.iter().any(|header| header.trim().eq_ignore_ascii_case(name)));
    all && tag(&raw, "l").is_none()
}

/// `example.com` is above `mail.example.com`. A top-level name is above nothing here.
fn is_below(domain: &str, above: &str) -> bool {
    above.contains('.') && domain.strip_suffix(above).is_some_and(|rest| rest.ends_with('.'))
}

/// DMARC's alignment: the same domain; or a parent domain that is an organizational domain, unless the sender's domain
/// requires the same one. A subdomain of the sender's domain is not accepted, although DMARC would.
fn is_aligned(domain: &str, by: &str, records: &BTreeMap<String, Vec<String>>) -> bool {
    if by == domain {
        return true;
    }
    let policy = |domain: &str| {
        let all = records.get(&format!("_dmarc.{domain}")).map(Vec::as_slice).unwrap_or_default();
        let mut found = all.iter().filter(|text| tag(text, "v") == Some("DMARC1"));
        found.next().filter(|_| found.next().is_none())
    };
    let strict = |text: &&String| tag(text, "adkim").is_some_and(|mode| !mode.eq_ignore_ascii_case("r"));
    let suffix = |text: &&String| tag(text, "psd").is_some_and(|word| !word.eq_ignore_ascii_case("n"));
    is_below(domain, by)
        && policy(by).is_some_and(|text| !suffix(&text) && !strict(&text))
        && policy(domain).is_none_or(|text| !strict(&text))
}

/// Whether every seal belongs to a forwarder that the operator named, and the last of them covers what matters.
fn is_trusted(message: &AuthenticatedMessage<'_>, forwarders: &[String]) -> bool {
    let named = |domain: &str| forwarders.iter().any(|known| known.eq_ignore_ascii_case(domain));
    let sealed = message.as_headers.len();
    !message.has_arc_errors
        && (1..=SEALS).contains(&sealed)
        && message.ams_headers.len() == sealed
        && message.as_headers.iter().all(|seal| named(&seal.header.d) && seal.header.a != Algorithm::RsaSha1)
        && message
            .ams_headers
            .iter()
            .all(|set| named(&set.header.d) && set.header.a != Algorithm::RsaSha1 && counts(set.value, &set.header.h))
}

/// Whether the first forwarder saw the sender's own proof.
fn is_vouched(message: &AuthenticatedMessage<'_>, domain: &str) -> bool {
    let Some(first) = message.aar_headers.iter().find(|results| results.header.i == 1) else { return false };
    let text = without_comments(&String::from_utf8_lossy(first.value));
    // After the instance number and the name of the server.
    text.split(';').skip(2).any(|result| {
        let words: Vec<String> = result.split_whitespace().map(str::to_lowercase).collect();
        let has = |name: &str| words.iter().any(|word| *word == format!("{name}={domain}"));
        match words.first().map(String::as_str) {
            Some("dmarc=pass") => has("header.from"),
            Some("dkim=pass") => has("header.d"),
            _ => false,
        }
    })
}

fn without_comments(text: &str) -> String {
    let mut depth = 0_u32;
    let keep = |c: char| match c {
        '(' => {
            depth += 1;
            None
        }
        ')' => {
            depth = depth.saturating_sub(1);
            None
        }
        c => (depth == 0).then_some(c),
    };
    text.chars().filter_map(keep).collect()
}

/// One value of a list such as `v=1; a=b`.
fn tag<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let pairs = text.split(';').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|it| it.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(list: &[(&str, &str)]) -> BTreeMap<String, Vec<String>> {
        list.iter().map(|(name, text)| ((*name).to_owned(), vec![(*text).to_owned()])).collect()
    }

    #[test]
    fn only_the_same_domain_or_its_organisation_is_aligned() {
        let plain = records(&[("_dmarc.example.com", "v=DMARC1; p=none")]);
        assert!(is_aligned("example.com", "example.com", &records(&[])));
        assert!(is_aligned("mail.example.com", "example.com", &plain));
        for (domain, by) in [
            ("example.com", "mail.example.com"),
            ("example.com", "com"),
            ("badexample.com", "example.com"),
            ("example.com.evil.example", "example.com"),
            ("a.example.com", "b.example.com"),
        ] {
            assert!(!is_aligned(domain, by, &plain), "{by} for {domain}");
        }
        assert!(!is_aligned("mail.example.com", "example.com", &records(&[])), "nothing says it is an organisation");
        for strict in [
            records(&[("_dmarc.example.com", "v=DMARC1; p=none; adkim=s")]),
            records(&[("_dmarc.example.com", "v=DMARC1; p=none; psd=y")]),
            records(&[("_dmarc.example.com", "v=DMARC1;p=none"), ("_dmarc.mail.example.com", "v=DMARC1; adkim=s")]),
        ] {
            assert!(!is_aligned("mail.example.com", "example.com", &strict), "{strict:?}");
        }
    }

    #[test]
    fn a_signature_that_leaves_something_out_does_not_count() {
        let covered = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert!(counts(b" v=1; d=x; h=From:To:Subject", &covered(&["From", "To", "Subject"])));
        assert!(!counts(b" v=1; d=x", &covered(&["From", "To"])));
        for length in [&b" v=1; l=3; d=x"[..], b"v=1;\r\n\tl=0", b"L = 5; v=1"] {
            assert!(!counts(length, &covered(&["From", "To", "Subject"])), "{length:?}");
        }
    }

    #[test]
    fn a_signature_signs_everything_of_its_header_but_itself() {
        assert_eq!(without_signature(b" v=1; bh=AB=; b=CD\r\n EF=; d=x\r\n"), b" v=1; bh=AB=; b=; d=x");
        assert_eq!(without_signature(b"v=1;\r\n\tB = CD"), b"v=1;\r\n\tB =");
    }

    #[test]
    fn an_identity_is_of_its_domain() {
        assert!(is_own("", "example.com", 0) && is_own("@example.com", "Example.com", SAME_DOMAIN));
        assert!(is_own("a@mail.example.com", "example.com", 0));
        assert!(
            !is_own("a@mail.example.com", "example.com", SAME_DOMAIN) && !is_own("@evil.example", "example.com", 0)
        );
    }

    #[test]
    fn a_comment_vouches_for_nothing() {
        assert_eq!(without_comments("a; dkim=fail (x; dmarc=pass header.from=y) z"), "a; dkim=fail  z");
        assert_eq!(without_comments("a (b (c) d) e"), "a  e");
    }
}
