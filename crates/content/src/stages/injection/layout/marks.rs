//! What frames a line: quote marks, comment marks of programming languages, diff signs, the sender of a chat message.
//!
//! Takes the lines of a text, gives the part of each that says something. Promise: each byte is looked at a bounded number of times.

/// The part of a line that says something.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LineBody {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Whether it begins something of its own: an item, a row, a heading.
    pub(super) opens: bool,
    /// Whether it is the text of a subtitle.
    pub(super) is_caption: bool,
    /// Whether a quoted string of a list or of a concatenation ended or began here.
    pub(super) is_string: bool,
    /// Whether an empty body is only a frame, such as the time of a subtitle, and no empty line.
    pub(super) is_frame: bool,
}

impl LineBody {
    pub(super) fn is_empty(&self) -> bool {
        self.start >= self.end
    }
}

/// The bodies of all lines.
pub(super) fn bodies(text: &str) -> impl Iterator<Item = LineBody> {
    let mut start = 0;
    // Inside subtitles; inside a comment of several lines, whose lines may begin with a star.
    let (mut captions, mut block) = (false, false);
    text.split('\n').map(move |line| {
        let from = start;
        start += line.len() + 1;
        let opened = line.trim_start().starts_with("/*");
        let mut body = unframed(line, block || opened);
        block = (block || opened) && !line.contains("*/");
        if is_timing(line) {
            captions = true;
            body = LineBody { is_frame: true, ..LineBody::default() };
        } else if captions && (line.trim().is_empty() || line.trim().bytes().all(|byte| byte.is_ascii_digit())) {
            body = LineBody { is_frame: true, ..LineBody::default() };
        } else if !captions
            && line.len() <= 4
            && !line.is_empty()
            && line.trim().bytes().all(|byte| byte.is_ascii_digit())
        {
            // The number before the first time.
            let next = text.get(start..).and_then(|rest| rest.split('\n').next()).unwrap_or_default();
            if is_timing(next) {
                body = LineBody { is_frame: true, ..LineBody::default() };
            }
        }
        body.is_caption = captions;
        body.start += from;
        body.end += from;
        body
    })
}

/// The line that says when a subtitle is shown.
fn is_timing(line: &str) -> bool {
    line.len() < 80 && line.contains(" --> ") && line.starts_with(|c: char| c.is_ascii_digit())
}

/// The body of one line, by its own offsets.
fn unframed(line: &str, block: bool) -> LineBody {
    let bytes = line.as_bytes();
    let (mut start, mut end) = (0, line.len());
    for turn in 0..4 {
        start += blanks(bytes.get(start..end).unwrap_or_default());
        let rest = bytes.get(start..end).unwrap_or_default();
        let star = rest.first() == Some(&b'*') && !block;
        let mark = if star { 0 } else { mark(rest, turn == 0 && start == 0) };
        if mark == 0 {
            break;
        }
        start += mark;
    }
    start += blanks(bytes.get(start..end).unwrap_or_default());
    start += line.get(start..end).map_or(0, sender);
    end = closed(bytes, start, end);
    // A box of one cell is a frame; a row of several is a row.
    let inner = bytes.get(start..end).unwrap_or_default();
    let boxed = inner.len() > 2 && inner.first() == Some(&b'|') && inner.last() == Some(&b'|');
    if boxed && inner.iter().filter(|byte| **byte == b'|').count() == 2 {
        start += 1;
        end -= 1;
        start += blanks(bytes.get(start..end).unwrap_or_default());
        end = trimmed(bytes, start, end);
    }
    let (start, end, is_string) = unquoted(bytes, start, end);
    let opens = !is_string && opens(bytes.get(start..end).unwrap_or_default());
    LineBody { start, end, opens, is_string, ..LineBody::default() }
}

fn blanks(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count()
}

fn trimmed(bytes: &[u8], start: usize, end: usize) -> usize {
    let body = bytes.get(start..end).unwrap_or_default();
    end - body.iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count()
}

/// The length of the mark that a line begins with.
fn mark(rest: &[u8], first: bool) -> usize {
    let Some(&byte) = rest.first() else { return 0 };
    let run = rest.iter().take_while(|other| **other == byte).count();
    let after = rest.get(run).copied().unwrap_or(b' ');
    let blank = matches!(after, b' ' | b'\t');
    let begins = |mark: &[u8]| {
        rest.len() >= mark.len() && rest.get(..mark.len()).is_some_and(|head| head.eq_ignore_ascii_case(mark))
    };
    match byte {
        b'>' => run,
        b'/' if begins(b"/*") => 1 + rest.iter().skip(1).take_while(|byte| matches!(byte, b'*' | b'!')).count(),
        b'/' if run >= 2 && after != b'>' => run + usize::from(after == b'!'),
        b'*' if begins(b"*/") => 2,
        b'*' if run == 1 && blank => 1,
        b'*' if run == 1 && rest.len() == 1 => 1,
        b'<' if begins(b"<!--") => 4,
        b'-' if run == 2 && blank => 2,
        b'-' if begins(b"-}") || begins(b"-->") => {
            if run == 1 {
                2
            } else {
                3
            }
        }
        b';' => run,
        b'%' if blank => run,
        b'#' if run == 1 && (blank || matches!(after, b'\'' | b'|')) => run + usize::from(!blank),
        b'#' if run == 2 && blank && !is_marker(rest.get(3..).unwrap_or_default()) => 2,
        b'\'' | b'"' if run == 3 => 3,
        b'\'' | b'"' if run == 1 && after == b' ' => 1,
        b'!' if run == 1 && blank => 1,
        b'{' if begins(b"{-") => 2,
        b'(' if begins(b"(*") => 2,
        b'=' if begins(b"=begin") || begins(b"=end") || begins(b"=pod") || begins(b"=cut") => run_of_letters(rest, 1),
        b'r' | b'R' if begins(b"rem ") => 3,
        b'd' if begins(b"dnl ") => 3,
        b'@' if first && begins(b"@rem ") => 4,
        b'+' if first && run == 1 => 1,
        _ => 0,
    }
}

fn run_of_letters(rest: &[u8], from: usize) -> usize {
    from + rest.iter().skip(from).take_while(|byte| byte.is_ascii_alphabetic()).count()
}

/// Whether a heading is one that separates the turns of a prompt.
fn is_marker(heading: &[u8]) -> bool {
    [b"instruction".as_slice(), b"system", b"response", b"assistant", b"human", b"user"]
        .iter()
        .any(|word| heading.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word)))
}

/// The end of a body without what closes a comment or continues a line.
fn closed(bytes: &[u8], start: usize, end: usize) -> usize {
    let mut end = trimmed(bytes, start, end);
    for closer in [b"*/".as_slice(), b"-->", b"*)", b"-}", b"\"\"\"", b"'''", b"\\"] {
        if let Some(body) = bytes.get(start..end).and_then(|body| body.strip_suffix(closer)) {
            end = trimmed(bytes, start, start + body.len());
        }
    }
    end
}

/// Removes the quotes of a string that a concatenation or a list of strings continues on the next line.
fn unquoted(bytes: &[u8], start: usize, end: usize) -> (usize, usize, bool) {
    let body = bytes.get(start..end).unwrap_or_default();
    let lead = body.iter().take_while(|byte| matches!(byte, b'+' | b'.' | b'&' | b' ')).count();
    let opened =
        matches!(body.get(lead), Some(b'"' | b'\'')) && body.get(lead + 1).is_some_and(u8::is_ascii_alphanumeric);
    let tail = body.iter().rev().take_while(|byte| matches!(byte, b'+' | b'.' | b'&' | b' ' | b',' | b'\\')).count();
    let last = body.len().saturating_sub(tail + 1);
    let quoted = matches!(body.get(last), Some(b'"' | b'\'')) && last > lead + 1;
    let joined = body
        .get(last + 1..)
        .is_some_and(|rest| rest.iter().any(|byte| matches!(byte, b'+' | b'.' | b'&' | b',' | b'\\')));
    match (opened, quoted) {
        (true, true) => (start + lead + 1, start + last, true),
        (false, true) if joined && tail > 0 => (start, start + last, true),
        (true, false) if body.ends_with(b"]") || body.ends_with(b")") || body.ends_with(b";") => {
            (start + lead + 1, end, true)
        }
        _ => (start, end, false),
    }
}

/// Whether a line begins an item, a row or a heading, which continues nothing.
fn opens(body: &[u8]) -> bool {
    match body {
        [b'-' | b'*' | b'#' | b'|' | b'`' | b'=', ..] => true,
        [b'0'..=b'9', rest @ ..] => {
            let digits = rest.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
            matches!(rest.get(digits..), Some([b'.' | b')', b' ', ..]))
        }
        _ => false,
    }
}

/// The length of `[12:31] Name: ` or `2024-05-01 12:31 - Name: `.
fn sender(line: &str) -> usize {
    let bytes = line.as_bytes();
    if !matches!(bytes.first(), Some(b'[' | b'(' | b'0'..=b'9' | b'<')) {
        return 0;
    }
    let named = bytes.first() == Some(&b'<');
    let time = bytes
        .iter()
        .take(36)
        .take_while(|byte| {
            byte.is_ascii_digit()
                || matches!(
                    byte,
                    b'[' | b']'
                        | b'('
                        | b')'
                        | b':'
                        | b'.'
                        | b'/'
                        | b','
                        | b' '
                        | b'-'
                        | b'T'
                        | b'Z'
                        | b'A'
                        | b'P'
                        | b'M'
                )
        })
        .count();
    let stamp = bytes.get(..time).unwrap_or_default();
    let dated = stamp.iter().filter(|byte| byte.is_ascii_digit()).count() >= 3 && stamp.contains(&b':');
    if !named && !dated {
        return 0;
    }
    let from = if named { 0 } else { time };
    let name = bytes.get(from..).unwrap_or_default();
    let end = if named {
        name.iter().take(26).position(|byte| *byte == b'>')
    } else {
        name.iter().take(32).position(|byte| *byte == b':')
    };
    let Some(end) = end else { return 0 };
    let is_name = name
        .get(..end)
        .is_some_and(|name| name.iter().filter(|byte| **byte == b' ').count() <= 2 && !name.contains(&b'/'));
    let parted = name.get(end + 1) == Some(&b' ');
    let letters =
        name.get(1..2).is_some_and(|byte| byte.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'@'));
    if is_name && parted && letters { from + end + 2 } else { 0 }
}

/// The length of a run of emphasis marks that stand beside a word, or 0.
pub(super) fn emphasis(rest: &[u8], before: Option<u8>) -> usize {
    let Some(&mark) = rest.first() else { return 0 };
    let run = rest.iter().take_while(|byte| **byte == mark).count();
    let after = rest.get(run).copied();
    let wordy = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte >= 0x80);
    let beside = |byte: Option<u8>| byte.is_some_and(|byte| !byte.is_ascii_whitespace());
    let removed = match mark {
        b'*' => run <= 3 && (beside(before) || beside(after)),
        b'`' => run <= 2,
        b'~' => run == 2,
        // An underscore between letters belongs to a name.
        b'_' => run <= 3 && (wordy(before) != wordy(after) || (run == 2 && wordy(before))),
        _ => false,
    };
    if removed { run } else { 0 }
}
