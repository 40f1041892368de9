//! Links and anchors of one HTML page.
//!
//! Takes the text of a page that a program wrote; gives every `href`, `src` and `id`. The text inside scripts, styles and
//! comments is skipped.

use std::path::PathBuf;

use super::LinkedPage;

/// The page with its links and anchors.
pub fn read(path: PathBuf, text: &str) -> LinkedPage {
    let mut page = LinkedPage { path, ..LinkedPage::default() };
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('<') {
        rest = after;
        if let Some(comment) = rest.strip_prefix("!--") {
            rest = behind(comment, "-->");
            continue;
        }
        let name: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
        if name.is_empty() {
            continue;
        }
        rest = attributes(rest.get(name.len()..).unwrap_or_default(), &mut page);
        if ["script", "style"].contains(&name.as_str()) {
            rest = behind(rest, &format!("</{name}"));
        }
    }
    page
}

/// The text behind the first `end`.
fn behind<'t>(text: &'t str, end: &str) -> &'t str {
    text.split_once(end).map_or("", |(_, after)| after)
}

/// Reads the attributes of one tag and gives the text behind it.
fn attributes<'t>(mut rest: &'t str, page: &mut LinkedPage) -> &'t str {
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
        if let Some(after) = rest.strip_prefix('>') {
            return after;
        }
        let length = rest.find(|c: char| c.is_ascii_whitespace() || "=>/".contains(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(length);
        if name.is_empty() && !after.starts_with('=') {
            return after;
        }
        rest = after;
        let Some(value) = rest.strip_prefix('=') else { continue };
        let (value, after) = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value.get(1..).and_then(|text| text.split_once(quote)).unwrap_or((value, "")),
            _ => value.split_at(value.find(|c: char| c.is_ascii_whitespace() || c == '>').unwrap_or(value.len())),
        };
        rest = after;
        let value = value.replace("&amp;", "&");
        match name {
            "href" | "src" => page.links.push(value),
            "id" => drop(page.anchors.insert(value)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_anchors_are_read_from_tags_only() {
        let text = r#"<!DOCTYPE html><link href="a.css"><body id=top class="x">
            <p>href="text" 1 < 2 <a class="header" href='b.html?x=1&amp;y#c'>b</a><img alt="a > b" src=c.png />
            <!-- <a href="comment"> --><script src="d.js">if (a < "<a href='script'>") {}</script><h2 id="one">One</h2><a
            href="e.html"
            >e</a></body>"#;
        let page = read("a.html".into(), text);
        assert_eq!(page.links, ["a.css", "b.html?x=1&y#c", "c.png", "d.js", "e.html"]);
        assert_eq!(page.anchors.iter().map(String::as_str).collect::<Vec<_>>(), ["one", "top"]);
    }

    #[test]
    fn a_text_that_is_cut_anywhere_is_read_to_its_end() {
        let text = "<a href=\"b\" id='c'><!-- d --><script>e</script>";
        for length in 0..text.len() {
            drop(read("a.html".into(), &text[..length]));
        }
    }
}
