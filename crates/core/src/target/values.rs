//! Finds values in texts: each in full, in one normal spelling.
//!
//! Takes a text; gives its values in order. Promise: a value is what stands between blanks, brackets and quotation
//! marks, with or without the punctuation around it; a shorter piece is never a value. The value of a call is read
//! exactly: `_ana@corp.example` and `reports*` differ from the values in the text.

use std::collections::HashSet;

/// What separates the parts of any value.
fn blank(c: char) -> bool {
    c.is_whitespace() || c.is_control()
}

/// What separates values in a text wherever it stands.
fn separates(c: char) -> bool {
    blank(c) || "\"<>{}|\\^`“”„«»‹›".contains(c)
}

/// Signs of money and shares.
fn coins(c: char) -> bool {
    "$€£¥%".contains(c)
}

/// What separates them in prose, too.
fn parts(stretch: &str) -> impl Iterator<Item = &str> {
    // A link may contain commas and equals signs, and the text behind them is not a value of its own.
    let link = stretch.contains("://") || strip(stretch.trim_matches(around), "www.").is_some();
    stretch.split(move |c| "()[]".contains(c) || (!link && ",;=".contains(c)))
}

/// Punctuation around a value.
fn around(c: char) -> bool {
    ".,;:!?'’‘()[]*_~…".contains(c)
}

/// Words after which a bare number is a name.
const NUMBERED: [&str; 6] = ["id", "ids", "number", "no", "nr", "num"];

/// A text in which values are searched: its values in order, each in every spelling that means it.
#[derive(Clone)]
pub struct TextValues {
    /// Cut at blanks, as links stand in it, as prose does.
    cuts: [Vec<Vec<String>>; 3],
}

impl std::fmt::Debug for TextValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [stretches, ..] = &self.cuts;
        f.debug_struct("Text").field("values", &stretches.len()).finish_non_exhaustive()
    }
}

impl TextValues {
    /// Cuts a text into its values.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let stretches = || text.split(blank).filter(|stretch| !stretch.is_empty());
        let links = || stretches().flat_map(|stretch| stretch.split(separates));
        Self {
            cuts: [
                stretches().map(spellings).filter(|all| !all.is_empty()).collect(),
                links().map(spellings).filter(|all| !all.is_empty()).collect(),
                links().flat_map(parts).map(spellings).filter(|all| !all.is_empty()).collect(),
            ],
        }
    }

    /// Whether a target stands in it as a full value, its parts one after the other.
    #[must_use]
    pub fn contains_target(&self, target: &super::CallTarget) -> bool {
        let wanted = target.forms.as_slice();
        let is = |here: &Vec<String>, wanted: &String| here.contains(wanted);
        match wanted {
            [] => false,
            // The 13 of `June 13` is not a file. A bare number names something only where it is called a number.
            [number] if !target.amount && is_digits(number) => self.cuts.iter().any(|all| {
                all.windows(2).any(|pair| match pair {
                    [word, own] => is(own, number) && word.iter().any(|word| NUMBERED.contains(&word.as_str())),
                    _ => false,
                })
            }),
            wanted => self.cuts.iter().any(|all| {
                all.windows(wanted.len()).any(|window| window.iter().zip(wanted).all(|(here, wanted)| is(here, wanted)))
            }),
        }
    }

    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        self.cuts.iter().flatten().flatten().map(String::as_str)
    }
}

/// Visits every spelling of every value of a text: those of [`TextValues`], without their order. A stretch that occurs
/// again is not cut again, so that a long answer costs little more than its different words.
pub(super) fn visit_spellings(text: &str, mut visit: impl FnMut(&str)) {
    let mut seen: HashSet<&str> = HashSet::new();
    let mut word = String::new();
    for stretch in text.split(blank).filter(|stretch| !stretch.is_empty()) {
        if !seen.insert(stretch) {
            continue;
        }
        // Most words have no sign in them, and so one spelling in every cut.
        if stretch.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            word.clear();
            word.push_str(stretch);
            if stretch.bytes().all(|byte| byte.is_ascii_alphabetic()) {
                word.make_ascii_lowercase();
            }
            visit(&word);
            continue;
        }
        let mut visit_piece = |piece: &str| spellings(piece).iter().for_each(|spelling| visit(spelling));
        visit_piece(stretch);
        for link in stretch.split(separates).filter(|link| !link.is_empty()) {
            if link.len() < stretch.len() {
                visit_piece(link);
            }
            for part in parts(link).filter(|part| part.len() < link.len()) {
                visit_piece(part);
            }
        }
    }
}

/// The parts of the value of a call, exactly as in the call: punctuation around them belongs to them. Empty when
/// there is no word in them.
pub(super) fn forms(value: &str) -> Vec<String> {
    let parts: Vec<&str> = value.split(blank).filter(|part| !part.is_empty()).collect();
    if !parts.iter().any(|part| part.contains(char::is_alphanumeric)) {
        return Vec::new();
    }
    parts.into_iter().map(normal).collect()
}

/// Every spelling that a piece of a text stands for: with the punctuation around it and without, `Bob's` and `Bob`,
/// `#general` and `general`, `$50` and `50`. Only a text is read that generously, never the value of a call.
fn spellings(stretch: &str) -> Vec<String> {
    let bare = stretch.trim_matches(|c| around(c) || separates(c));
    let whose = bare.strip_suffix("'s").or_else(|| bare.strip_suffix("’s")).unwrap_or(bare);
    let handle = whose.trim_start_matches(['#', '@']);
    let coin = handle.trim_matches(coins);
    let mut all: Vec<String> = Vec::with_capacity(2);
    for spelling in [stretch, bare, whose, handle, coin].into_iter().filter(|spelling| !spelling.is_empty()) {
        let spelling = normal(spelling);
        if !all.contains(&spelling) {
            all.push(spelling);
        }
    }
    all
}

/// The normal spelling of one part: the same for all ways to write the same thing, and for nothing else.
fn normal(part: &str) -> String {
    let part = strip(part, "mailto:").unwrap_or(part);
    if is_address(part) {
        return part.to_lowercase();
    }
    if let Some(web) = web(part) {
        return web;
    }
    if let Some(amount) = amount(part) {
        return amount;
    }
    // Names are written in any case; a part with a digit or a sign in it may mean something else in another case.
    if part.chars().all(char::is_alphabetic) { part.to_lowercase() } else { part.to_owned() }
}

/// The text without this beginning, in any case.
fn strip<'t>(text: &'t str, start: &str) -> Option<&'t str> {
    let head = text.get(..start.len())?;
    head.eq_ignore_ascii_case(start).then(|| text.get(start.len()..)).flatten()
}

/// Whether it can only be read as one mail address.
pub(crate) fn is_address(part: &str) -> bool {
    let Some((local, domain)) = part.split_once('@') else { return false };
    let plain = |c: char| c.is_alphanumeric() || "-.".contains(c);
    !local.is_empty()
        && local.chars().all(|c| !c.is_whitespace() && c != '@' && c != '/' && c != ':')
        && domain.contains('.')
        && domain.chars().all(plain)
        && domain.split('.').all(|label| !label.is_empty())
}

/// An address on the network: the host in lower case, the rest unchanged, since another letter can be another page.
fn web(part: &str) -> Option<String> {
    let bare = strip(part, "https://").or_else(|| strip(part, "http://"));
    let named = bare.unwrap_or(part);
    let (host, rest) = named.split_at(named.find(['/', '?', '#']).unwrap_or(named.len()));
    let host_like = host.split('.').count() > 1 && host.chars().all(|c| c.is_alphanumeric() || "-.:".contains(c));
    if bare.is_none() && !(host_like && host.chars().any(char::is_alphabetic)) {
        return None;
    }
    let rest = if rest == "/" { "" } else { rest };
    let host = host.to_lowercase();
    Some(format!("{host}{rest}"))
}

/// A number, however it is written: `1,200.50` and `1200.5` are the same; `$50`, `€50` and `50%` are not.
fn amount(part: &str) -> Option<String> {
    let bare = part.trim_start_matches(coins);
    let before = part.get(..part.len() - bare.len())?;
    let (bare, after) = bare.split_at(bare.trim_end_matches(coins).len());
    let (sign, digits) = bare.strip_prefix('-').map_or(("", bare), |rest| ("-", rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut groups = whole.split(',');
    let first = groups.next().filter(|group| is_digits(group))?;
    let grouped = first.len() <= 3;
    let mut number = first.to_owned();
    for group in groups {
        if !grouped || group.len() != 3 || !is_digits(group) {
            return None;
        }
        number.push_str(group);
    }
    if digits.contains('.') && !is_digits(fraction) {
        return None;
    }
    // A leading zero belongs to the number of a file or a telephone, not to an amount.
    if number.len() > 1 && number.starts_with('0') {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    Some(format!("{before}{sign}{number}{dot}{fraction}{after}"))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Endings of file names that are no hosts' (a host may end in `.rs`, `.py`, `.md` or `.zip`, too).
const FILES: [&str; 28] = [
    "txt", "pdf", "doc", "docx", "xls", "xlsx", "ppt", "pptx", "csv", "tsv", "json", "yaml", "yml", "toml", "xml",
    "html", "htm", "png", "jpg", "jpeg", "gif", "svg", "gz", "tar", "log", "ics", "eml", "js",
];

/// Addresses inside a text, where no argument name announces them: mail, links, hosts, accounts, telephone numbers.
pub(crate) fn addresses(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut known: HashSet<String> = HashSet::new();
    let mut note = |part: &str| {
        if known.insert(part.to_owned()) {
            found.push(part.to_owned());
        }
    };
    let mut digits = String::new();
    for part in text.split(separates).flat_map(parts) {
        let part = part.trim_matches(around);
        if is_reachable(part) {
            note(part);
        }
        // Accounts and telephone numbers are written in groups.
        if is_group(part) && digits.len() + part.len() < LONGEST_NUMBER {
            digits.push_str(part);
            continue;
        }
        if !is_reachable(part) && is_account(&digits) {
            note(&digits);
        }
        digits.clear();
        if is_group(part) {
            digits.push_str(part);
        }
    }
    if is_account(&digits) {
        note(&digits);
    }
    found
}

/// Longest number, including its groups, that can be an account or a telephone number.
const LONGEST_NUMBER: usize = 48;

/// Whether it can be a group of a longer number: `DE89`, `3704`, `+1`, `555`.
fn is_group(part: &str) -> bool {
    let letters = part.chars().filter(char::is_ascii_alphabetic).count();
    part.len() <= 12
        && part.chars().any(|c| c.is_ascii_digit())
        && letters <= 2
        && part.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || "+-./".contains(c))
}

/// Whether a part is an address: something one can write to, open, pay or call.
pub(super) fn is_reachable(part: &str) -> bool {
    is_address(part) || is_web(part) || is_account(part)
}

fn is_web(part: &str) -> bool {
    if strip(part, "www.").is_some() || part.contains("://") || part.starts_with("//") {
        return true;
    }
    // Dots of other scripts resolve to the same host.
    let part = part.replace(['。', '．', '｡'], ".");
    let (host, rest) = part.split_at(part.find(['/', '?', '#', ':']).unwrap_or(part.len()));
    let last = host.rsplit('.').next().unwrap_or_default();
    let plain = |label: &str| !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || c == '-');
    let dotted = host.contains('.') && host.split('.').all(plain);
    if dotted && host.parse::<std::net::Ipv4Addr>().is_ok() {
        return true;
    }
    let host_like = dotted && (2..=24).contains(&last.len()) && last.chars().all(char::is_alphabetic);
    // `end.Next` is a missing blank, `evil.COM` a host, `plans.docx` a file.
    let missing_blank = last.starts_with(char::is_uppercase) && !last.chars().all(char::is_uppercase);
    host_like && (!rest.is_empty() || (!FILES.contains(&last.to_lowercase().as_str()) && !missing_blank))
}

/// Numbers of accounts, cards and telephones: long, and mostly digits.
fn is_account(part: &str) -> bool {
    let signs = |c: char| c == '-' || c == '+' || c == '.' || c == '/';
    let digits = part.chars().filter(char::is_ascii_digit).count();
    let letters = part.chars().filter(char::is_ascii_alphabetic).count();
    let only = part.chars().all(|c| c.is_ascii_alphanumeric() || signs(c));
    let dated = part.split(signs).count() == 3 && digits <= 8;
    only && !dated && digits >= 9 && letters <= digits
}
