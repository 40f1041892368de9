//! Checkpoints kept elsewhere: in a file of notes, in an e-mail, or in the state file.
//!
//! Takes any text; gives every signed checkpoint in it. Promise: quoting marks and line ends of e-mail are
//! tolerated, and nothing is trusted: only the signature decides whether a checkpoint holds.

use super::note::SignedNote;

/// What the first line of each of our checkpoints begins with.
const ORIGIN: &str = "sluicegate/audit/";
/// Em dash and space: what a signature line begins with.
const DASH: &str = "\u{2014} ";
/// Longest checkpoint looked for, in lines.
const LINES: usize = 64;

/// Every signed checkpoint in a text, in the order they stand there.
#[must_use]
pub fn checkpoints_in(text: &str) -> Vec<SignedNote> {
    let lines: Vec<&str> = text.lines().map(plain).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if !line.starts_with(ORIGIN) {
            continue;
        }
        let rest = lines.get(at..).unwrap_or_default();
        let body = rest.iter().take(LINES).take_while(|line| !line.is_empty());
        let count = body.clone().count();
        let signatures = rest.iter().skip(count + 1).take_while(|line| line.starts_with(DASH));
        let mut note: String = body.flat_map(|line| [*line, "\n"]).collect();
        note.push('\n');
        note.extend(signatures.flat_map(|line| [*line, "\n"]));
        found.extend(SignedNote::parse(note.as_bytes()).ok());
    }
    found
}

/// A line without quoting marks and without the line end of an e-mail.
fn plain(line: &str) -> &str {
    let mut line = line;
    while let Some(rest) = line.strip_prefix('>') {
        line = rest.strip_prefix(' ').unwrap_or(rest);
    }
    line.trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTE: &str = "sluicegate/audit/gw-1\n3\nFLk0cG5M4iMMMHcDs8k84KGE2RYvwmyAm4j7j+bR7lo=\n\
        chain 92e7d114443f3a97980b8e676da65b63018259f61706f2a27c952e2df60f726a\n\n\
        \u{2014} sluicegate/audit/gw-1 /aHO5F3QfLt8HyrozVVaJxukVEpKhxDg0yhp5HlVNZqye/Q+tPE761HVCSfTvVN8uiC949xUtclMNHX+DX7VP3zKFwE=\n";

    #[test]
    fn a_checkpoint_is_found_in_a_file_a_letter_and_a_quoted_letter() {
        let file = format!("{NOTE}\n{}\n", NOTE.replace("\n3\n", "\n4\n"));
        let letter = format!("Approve? email.send\r\n\r\nKeep this:\r\n{}\r\nBye\r\n", NOTE.replace('\n', "\r\n"));
        let quoted: String = NOTE.lines().map(|line| format!("> > {line}\n")).collect();
        let of = |text: &str| checkpoints_in(text).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(of(&file), [NOTE.to_owned(), NOTE.replace("\n3\n", "\n4\n")]);
        assert_eq!(of(&letter), [NOTE]);
        assert_eq!(of(&format!("On Monday you wrote:\n{quoted}\n1\n")), [NOTE]);
        assert!(of("sluicegate/audit/gw-1\nis a log\n").is_empty());
    }
}
