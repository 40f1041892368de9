//! Just enough of Rust's grammar to distinguish code, comments and texts.

/// The kind of a piece of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    Code,
    Comment,
    Text,
}

/// A piece of one kind, and the line on which it begins, from one.
#[derive(Debug, PartialEq, Eq)]
pub struct SourcePiece<'a> {
    pub kind: SourceKind,
    pub line: usize,
    pub text: &'a str,
}

/// Cuts a source file into its pieces, in order and without gaps.
pub fn pieces(source: &str) -> Vec<SourcePiece<'_>> {
    let (mut pieces, mut at, mut code_from, mut line) = (Vec::new(), 0, 0, 1);
    while at < source.len() {
        let rest = &source[at..];
        let before = source[..at].strip_suffix(['b', 'c']).unwrap_or(&source[..at]);
        let follows_name = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let found = if rest.starts_with("//") {
            Some((SourceKind::Comment, rest.find('\n').unwrap_or(rest.len())))
        } else if rest.starts_with("/*") {
            Some((SourceKind::Comment, block_comment(rest)))
        } else if rest.starts_with('"') {
            Some((SourceKind::Text, plain_text(rest)))
        } else if rest.starts_with('r') && !follows_name {
            raw_text(rest).map(|length| (SourceKind::Text, length))
        } else {
            None
        };
        let Some((kind, length)) = found else {
            at += if rest.starts_with('\'') { character(rest) } else { rest.chars().next().map_or(1, char::len_utf8) };
            continue;
        };
        for (kind, from, to) in [(SourceKind::Code, code_from, at), (kind, at, at + length)] {
            if from < to {
                pieces.push(SourcePiece { kind, line, text: &source[from..to] });
                line += source[from..to].matches('\n').count();
            }
        }
        at += length;
        code_from = at;
    }
    if code_from < source.len() {
        pieces.push(SourcePiece { kind: SourceKind::Code, line, text: &source[code_from..] });
    }
    pieces
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn plain_text(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

fn raw_text(rest: &str) -> Option<usize> {
    let hashes = rest[1..].chars().take_while(|&c| c == '#').count();
    rest[1 + hashes..].starts_with('"').then(|| {
        let end = format!("\"{}", "#".repeat(hashes));
        rest[2 + hashes..].find(&end).map_or(rest.len(), |at| 2 + hashes + at + end.len())
    })
}

/// A character literal such as `'"'`, which begins no text; a lifetime has only one quote.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => rest[3..].find('\'').map_or(1, |at| at + 4),
        Some(_) => chars.next().filter(|&(_, c)| c == '\'').map_or(1, |(at, _)| at + 1),
        None => 1,
    }
}

#[test]
fn code_comments_and_texts_are_told_apart() {
    let source = concat!(
        "let a = \"x // \\\" y\"; // note \"z\"\n",
        "let b = br#\"raw \" // \"#; /* one /* two */ \" */ let c = '\"';\n",
        "let d: &'a str = \"end\";",
    );
    let of = |kind| pieces(source).into_iter().filter(|p| p.kind == kind).map(|p| (p.line, p.text)).collect::<Vec<_>>();
    assert_eq!(of(SourceKind::Comment), [(1, "// note \"z\""), (2, "/* one /* two */ \" */")]);
    // The `b` of a byte string counts as code, which affects no rule.
    assert_eq!(of(SourceKind::Text), [(1, "\"x // \\\" y\""), (2, "r#\"raw \" // \"#"), (3, "\"end\"")]);
}

#[test]
fn no_byte_of_a_file_is_lost() {
    for file in crate::repository::rust_files() {
        let whole: String = pieces(&file.text).iter().map(|piece| piece.text).collect();
        assert_eq!(whole, file.text, "{}", file.path);
    }
}
