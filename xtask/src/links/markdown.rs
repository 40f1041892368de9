//! Links and anchors of one Markdown page, as the site of the repository shows it.
//!
//! Takes the text of a page; gives the targets of its links and the anchors of its headings. Code is skipped.

use std::path::PathBuf;

use super::LinkedPage;

/// The page with its links and anchors.
pub fn read(path: PathBuf, text: &str) -> LinkedPage {
    let mut page = LinkedPage { path, ..LinkedPage::default() };
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        let begin = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| begin.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
            (None, None) => {
                if let Some(title) = heading(line) {
                    let anchor = anchor(title);
                    let again = (1..).map(|n| format!("{anchor}-{n}"));
                    let free = std::iter::once(anchor.clone()).chain(again).find(|name| !page.anchors.contains(name));
                    page.anchors.extend(free);
                }
                page.links.extend(links(&without_code(line)));
            }
        }
    }
    page
}

fn heading(line: &str) -> Option<&str> {
    let title = line.trim_start_matches('#');
    let depth = line.len() - title.len();
    (1..=6).contains(&depth).then(|| title.strip_prefix(' ')).flatten()
}

/// The anchor of a heading: small letters, digits, `-` and `_`; a space becomes `-`.
fn anchor(title: &str) -> String {
    let mut shown = String::new();
    for (n, part) in title.split("](").enumerate() {
        // The target of a link is not shown.
        shown.push_str(if n == 0 { part } else { part.split_once(')').map_or("", |(_, after)| after) });
    }
    let kept = shown.trim().chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The line without its code spans. Text behind a backtick that is never closed is text.
fn without_code(line: &str) -> String {
    let mut kept = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('`') {
        kept.push_str(before);
        let more = after.len() - after.trim_start_matches('`').len();
        let mark = "`".repeat(more + 1);
        let code = after.get(more..).unwrap_or_default();
        rest = code.split_once(&mark).map_or(code, |(_, behind)| behind);
    }
    kept + rest
}

/// The targets of `[text](target)` and of `[name]: target`.
fn links(line: &str) -> Vec<String> {
    let inline = line.split("](").skip(1).filter_map(|part| part.split_once(')').map(|(target, _)| target));
    let definition =
        line.trim_start().strip_prefix('[').and_then(|line| line.split_once("]: ")).map(|(_, target)| target);
    let target = |text: &str| text.split_whitespace().next().map(|target| target.trim_matches(['<', '>']).to_owned());
    inline.chain(definition).filter_map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_outside_of_code() {
        let text = "# A\n[one](a.md), ![two](b.png \"title\") and `[code](no.md)`, ``[`](no.md)`` [three][3]\n\n[3]: <c.md#x>\n\
                    ```\n[fenced](no.md)\n```\n| [cell](d.md) | `x` |\n~~~\n```\n[fenced](no.md)\n~~~\n[last](#a)\n";
        let page = read("p.md".into(), text);
        assert_eq!(page.links, ["a.md", "b.png", "c.md#x", "d.md", "#a"]);
    }

    #[test]
    fn a_heading_has_the_anchor_that_links_use() {
        let text = "# How `sluice` *works*: a & b\n## How [it](x.md) works\n### Ünder_score – 2.\n## Again\n## Again\n#no heading\n";
        let page = read("p.md".into(), text);
        let anchors: Vec<&str> = page.anchors.iter().map(String::as_str).collect();
        assert_eq!(anchors, ["again", "again-1", "how-it-works", "how-sluice-works-a--b", "ünder_score--2"]);
    }
}
