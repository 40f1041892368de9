//! The checks of a sender that the receiving server recorded, read from `Authentication-Results`.
//!
//! Takes the head of a mail, the name under which its receiving server records, and the sender's domain; gives the
//! verdicts. Promise: nothing that a sender could have written is read: only the topmost record, only if it has the
//! server's own name, and only if nothing is above it except fields that servers add on top (RFC 8601, sections 5 and
//! 7.1).

use sluice_core::mail::SenderAuthentication;
use sluice_core::mail::authenticity::SenderCheckVerdict;
use sluice_core::mail::head::MailHead;

/// Fields that servers add on top of a mail they receive.
const ON_TOP: [&str; 8] = [
    "received",
    "x-received",
    "return-path",
    "delivered-to",
    "received-spf",
    "x-google-smtp-source",
    "x-forwarded-to",
    "x-forwarded-for",
];
/// The same, by the prefix of their names.
const ON_TOP_FAMILIES: [&str; 2] = ["arc-", "x-gm-"];

/// The verdicts of the server with this name about a sender at this domain.
pub fn read(head: &MailHead<'_>, server: &str, domain: &str) -> Option<SenderAuthentication> {
    let above = head.fields.iter().position(|field| field.is("authentication-results"))?;
    let is_on_top = |name: &[u8]| {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        ON_TOP.contains(&name.as_str()) || ON_TOP_FAMILIES.iter().any(|family| name.starts_with(family))
    };
    if !head.is_certain || !head.fields.iter().take(above).all(|field| is_on_top(field.name)) {
        return None;
    }
    let value = without_comments(&head.fields.get(above)?.unfolded())?;
    let mut results = value.split(';');
    let name = results.next()?.split_whitespace().next()?;
    if !name.eq_ignore_ascii_case(server) {
        return None;
    }
    let mut read = SenderAuthentication::default();
    for result in results {
        note(&mut read, result, domain);
    }
    (read != SenderAuthentication::default()).then_some(read)
}

/// One result of one method.
fn note(read: &mut SenderAuthentication, result: &str, domain: &str) {
    let mut words = result.split_whitespace();
    let Some((method, word)) = words.next().and_then(|first| first.split_once('=')) else { return };
    let (place, properties): (&mut Option<SenderCheckVerdict>, &[&str]) = match method.to_ascii_lowercase().as_str() {
        "dmarc" => (&mut read.dmarc, &["header.from"]),
        "spf" => (&mut read.spf, &["smtp.mailfrom", "smtp.helo"]),
        "dkim" => (&mut read.dkim, &["header.d", "header.i"]),
        _ => return,
    };
    let mut verdict = SenderCheckVerdict::of_word(&word.to_ascii_lowercase());
    let named = words.filter_map(|word| word.split_once('='));
    let mut named = named.filter(|(name, _)| properties.contains(&name.to_ascii_lowercase().as_str()));
    let is_aligned = named.any(|(_, value)| is_same_domain(value.trim_matches('"'), domain));
    if verdict == SenderCheckVerdict::Pass && !is_aligned {
        verdict = SenderCheckVerdict::Unaligned;
    }
    // Of several signatures, the sender's own one counts.
    if place.is_none() || verdict == SenderCheckVerdict::Pass {
        *place = Some(verdict);
    }
}

/// Whether a name is in the sender's domain, or one is a subdomain of the other.
fn is_same_domain(value: &str, domain: &str) -> bool {
    let value = value.rsplit('@').next().unwrap_or_default().trim_end_matches('.').to_lowercase();
    let domain = domain.to_lowercase();
    let below = |one: &str, other: &str| one.strip_suffix(other).is_some_and(|rest| rest.ends_with('.'));
    // A name without a dot is not a domain that anybody owns.
    value.contains('.') && (value == domain || below(&value, &domain) || below(&domain, &value))
}

/// A value without its comments; `None` if a comment has no end.
fn without_comments(value: &str) -> Option<String> {
    let (mut out, mut depth, mut quoted, mut escaped) = (String::new(), 0_usize, false, false);
    for c in value.chars() {
        match c {
            _ if std::mem::take(&mut escaped) => {}
            '\\' => escaped = true,
            '"' if depth == 0 => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth = depth.checked_sub(1)?,
            // Quoted text is ignored, and a semicolon in it ends nothing.
            _ if quoted || depth > 0 => {}
            c => out.push(c),
        }
    }
    (depth == 0 && !quoted).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "mx.google.com";
    const GOOD: &str = "Authentication-Results: mx.google.com;\r\n       dkim=pass header.i=@bank.example header.s=s1;\r\n       \
        spf=pass (google.com: domain of x@bank.example designates 192.0.2.1 as permitted) smtp.mailfrom=x@bank.example;\r\n       \
        dmarc=pass (p=REJECT sp=REJECT dis=NONE) header.from=bank.example\r\n";

    fn verdict(raw: &str) -> String {
        read(&MailHead::of(raw.as_bytes()), SERVER, "bank.example").map(|read| read.to_string()).unwrap_or_default()
    }

    #[test]
    fn the_receiving_server_is_believed() {
        let raw = format!(
            "Delivered-To: me@x.example\r\nReceived: by 2002:a05:6a10\r\nARC-Seal: i=1\r\nReturn-Path: <x@bank.example>\r\n{GOOD}From: a@bank.example\r\n\r\n"
        );
        assert_eq!(verdict(&raw), "dmarc pass, spf pass, dkim pass");
    }

    #[test]
    fn what_a_sender_can_write_is_not() {
        let others = "Authentication-Results: mx.google.com; dmarc=fail header.from=bank.example\r\n";
        let forged = format!("Received: x\r\n{others}{GOOD}From: a@bank.example\r\n\r\n");
        assert_eq!(verdict(&forged), "dmarc fail", "the topmost counts");
        let below = format!("Received: x\r\nFrom: a@bank.example\r\n{GOOD}\r\n");
        assert_eq!(verdict(&below), "", "below what the sender wrote");
        let signed = format!("DKIM-Signature: v=1\r\n{GOOD}From: a@bank.example\r\n\r\n");
        assert_eq!(verdict(&signed), "", "below what the sender's server wrote");
        let stranger = GOOD.replace("mx.google.com;", "mx.evil.example;");
        assert_eq!(verdict(&format!("{stranger}{GOOD}\r\n")), "", "another server stands on top");
    }

    #[test]
    fn a_check_that_holds_for_another_domain_says_nothing_about_the_sender() {
        let raw = "Authentication-Results: mx.google.com; dkim=pass header.i=@evil.example; spf=pass smtp.mailfrom=x@evil.example; \
            dmarc=pass header.from=evil.example\r\n\r\n";
        assert_eq!(verdict(raw), "dmarc unaligned, spf unaligned, dkim unaligned");
        let two = "Authentication-Results: mx.google.com; dkim=pass header.i=@esp.example; dkim=pass header.d=mail.bank.example\r\n\r\n";
        assert_eq!(verdict(two), "dkim pass");
        let hidden = "Authentication-Results: mx.google.com; dmarc=fail (; dmarc=pass header.from=bank.example) header.from=bank.example\r\n\r\n";
        assert_eq!(verdict(hidden), "dmarc fail");
        let quoted =
            "Authentication-Results: mx.google.com; spf=fail reason=\"; dmarc=pass header.from=bank.example\"\r\n\r\n";
        assert_eq!(verdict(quoted), "spf fail");
    }
}
