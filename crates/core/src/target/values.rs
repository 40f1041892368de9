//! Values in texts: cut out whole, each in one normal spelling.
//!
//! Takes a text; gives its values in order. Promise: a value is what stands between blanks, brackets and quotation
//! marks, without the punctuation around it; nothing shorter is ever a value.

/// What separates values wherever it stands.
fn separates(c: char) -> bool {
    c.is_whitespace() || c.is_control() || "\"<>{}|\\^`“”„«»‹›".contains(c)
}

/// What separates them in prose, too.
fn parts(stretch: &str) -> impl Iterator<Item = &str> {
    // A link may hold commas and equals signs, and what stands behind them there is no value of its own.
    let link = stretch.contains("://") || strip(stretch.trim_matches(around), "www.").is_some();
    stretch.split(move |c| "()[]".contains(c) || (!link && ",;=".contains(c)))
}

/// Punctuation around a value.
fn around(c: char) -> bool {
    ".,;:!?'’‘()[]*_~…".contains(c)
}

/// Words after which a bare number is a name.
const NUMBERED: [&str; 6] = ["id", "ids", "number", "no", "nr", "num"];

/// A text in which values are looked for.
#[derive(Clone)]
pub struct Text {
    wide: Vec<String>,
    narrow: Vec<String>,
}

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Text").field("values", &self.wide.len()).finish_non_exhaustive()
    }
}

impl Text {
    /// Cuts a text into its values, once as links stand in it and once as prose does.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let stretches = || text.split(separates);
        Self {
            wide: stretches().filter_map(form).collect(),
            narrow: stretches().flat_map(parts).filter_map(form).collect(),
        }
    }

    /// Whether a target stands in it as a whole value, its parts one after the other.
    #[must_use]
    pub fn holds(&self, target: &super::Target) -> bool {
        let wanted = target.forms.as_slice();
        let lists = || [&self.wide, &self.narrow].into_iter();
        match wanted {
            [] => false,
            // The 13 of `June 13` is no file. A bare number names something only where it is called a number.
            [number] if !target.amount && is_digits(number) => lists().any(|all| {
                all.windows(2)
                    .any(|pair| matches!(pair, [word, own] if own == number && NUMBERED.contains(&word.as_str())))
            }),
            wanted => lists().any(|all| all.windows(wanted.len()).any(|window| window == wanted)),
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        self.wide.iter().chain(&self.narrow).map(String::as_str)
    }
}

/// The parts of one value.
pub(super) fn forms(value: &str) -> Vec<String> {
    value.split(separates).filter_map(form).collect()
}

/// The normal spelling of one part; nothing for what is only punctuation.
fn form(part: &str) -> Option<String> {
    let part = part.trim_matches(around);
    let part = part.strip_suffix("'s").or_else(|| part.strip_suffix("’s")).unwrap_or(part);
    let part = part.trim_start_matches(['#', '@']);
    if part.is_empty() {
        return None;
    }
    let part = strip(part, "mailto:").unwrap_or(part);
    if is_address(part) {
        return Some(part.to_lowercase());
    }
    if let Some(web) = web(part) {
        return Some(web);
    }
    if let Some(amount) = amount(part) {
        return Some(amount);
    }
    // Names are written in any case; whatever has a digit or a sign in it may mean something else in another.
    Some(if part.chars().all(char::is_alphabetic) { part.to_lowercase() } else { part.to_owned() })
}

/// Without the beginning, in whatever case it stands.
fn strip<'t>(text: &'t str, start: &str) -> Option<&'t str> {
    let head = text.get(..start.len())?;
    head.eq_ignore_ascii_case(start).then(|| text.get(start.len()..)).flatten()
}

/// Whether it can only be read as one mail address.
pub(super) fn is_address(part: &str) -> bool {
    let Some((local, domain)) = part.split_once('@') else { return false };
    let plain = |c: char| c.is_alphanumeric() || "-.".contains(c);
    !local.is_empty()
        && local.chars().all(|c| !c.is_whitespace() && c != '@' && c != '/' && c != ':')
        && domain.contains('.')
        && domain.chars().all(plain)
        && domain.split('.').all(|label| !label.is_empty())
}

/// An address on the network: the host in lower case, the rest as it stands, since one letter there is another page.
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

/// A number, however it is written: `$1,200.50` and `1200.5` are the same.
fn amount(part: &str) -> Option<String> {
    let bare = part.trim_matches(|c| "$€£¥%".contains(c));
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
    // A leading nought belongs to a number of a file or a telephone, not to an amount.
    if number.len() > 1 && number.starts_with('0') {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    Some(format!("{sign}{number}{dot}{fraction}"))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Endings of file names, which look like those of hosts.
const FILES: [&str; 32] = [
    "txt", "md", "pdf", "doc", "docx", "xls", "xlsx", "ppt", "pptx", "csv", "tsv", "json", "yaml", "yml", "toml",
    "xml", "html", "htm", "png", "jpg", "jpeg", "gif", "svg", "zip", "gz", "tar", "log", "ics", "eml", "py", "rs",
    "js",
];

/// Addresses inside a text of which nobody says that it names one: mail, links, hosts, accounts, telephone numbers.
pub(super) fn addresses(text: &str) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for part in text.split(separates).flat_map(parts) {
        let part = part.trim_matches(around);
        if reaches(part) && !found.contains(&part) {
            found.push(part);
        }
    }
    found
}

/// Whether a part says where: something one can write to, open, pay or call.
fn reaches(part: &str) -> bool {
    is_address(part) || is_web(part) || is_account(part)
}

fn is_web(part: &str) -> bool {
    if strip(part, "www.").is_some() || part.contains("://") {
        return true;
    }
    let (host, rest) = part.split_at(part.find(['/', '?', '#', ':']).unwrap_or(part.len()));
    let mut labels = host.rsplit('.');
    let last = labels.next().unwrap_or_default();
    let plain = |label: &str| !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || c == '-');
    let host_like = host.contains('.')
        && host.split('.').all(plain)
        && (2..=24).contains(&last.len())
        && last.chars().all(char::is_alphabetic);
    // `end.Next` is a missing blank, `plans.docx` a file.
    host_like && (!rest.is_empty() || (!FILES.contains(&last) && !last.starts_with(char::is_uppercase)))
}

/// Numbers of accounts, cards and telephones: long, and mostly digits.
fn is_account(part: &str) -> bool {
    let signs = |c: char| c == '-' || c == '+' || c == '.';
    let digits = part.chars().filter(char::is_ascii_digit).count();
    let letters = part.chars().filter(char::is_ascii_alphabetic).count();
    let only = part.chars().all(|c| c.is_ascii_alphanumeric() || signs(c));
    let dated = part.split(signs).count() == 3 && digits <= 8;
    only && !dated && digits >= 9 && letters <= digits
}
