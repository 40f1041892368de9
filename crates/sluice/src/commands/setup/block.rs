//! A marked block in a text file: ours to replace, everything around it left alone.

const START: &str = "# >>> sluice: written by `sluice setup`, removed by `sluice setup --undo`";
const END: &str = "# <<< sluice";

/// The text with our block in it, in place of the one that was there. `head` must not stand outside the block.
pub(super) fn put(text: &str, block: &str, head: &str) -> Result<String, String> {
    let (before, after) = match (text.find(START), text.find(END)) {
        (Some(start), Some(end)) if start < end => {
            let rest = text.get(end + END.len()..).unwrap_or_default();
            (text.get(..start).unwrap_or_default(), rest.strip_prefix('\n').unwrap_or(rest))
        }
        (None, None) => (text, ""),
        _ => return Err("the marks of our block are damaged".into()),
    };
    // The same table under another spelling would make the file unreadable to its client.
    let table = head.trim_matches(['[', ']']);
    let words = |line: &str| line.chars().filter(|c| !c.is_whitespace() && !"\"'[]".contains(*c)).collect::<String>();
    let has = |text: &str| {
        text.lines().any(|line| {
            let line = words(line);
            line == table || line.starts_with(&format!("{table}={{")) || line.starts_with(&format!("{table}."))
        })
    };
    if has(before) || has(after) {
        return Err(format!("`{head}` is there already, not written by us"));
    }
    let gap = if before.is_empty() || before.ends_with("\n\n") {
        ""
    } else if before.ends_with('\n') {
        "\n"
    } else {
        "\n\n"
    };
    Ok(format!("{before}{gap}{START}\n{block}{END}\n{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_added_once_and_replaced_in_place() {
        let once = put("model = \"x\"\n", "[a]\n", "[a]").unwrap();
        assert!(once.starts_with("model = \"x\"\n\n# >>> sluice"));
        assert_eq!(put(&once, "[a]\n", "[a]").unwrap(), once);
        let other = put(&format!("{once}tail = 1\n"), "[a]\nb = 2\n", "[a]").unwrap();
        assert!(other.contains("b = 2") && other.ends_with("tail = 1\n"));
        assert!(put("[a]\nmine = 1\n", "[a]\n", "[a]").is_err(), "somebody else's is not touched");
        for other in ["[ \"a\" ]\n", "a = { x = 1 }\n", "a.x = 1\n", "[a.env]\n"] {
            assert!(put(other, "[a]\n", "[a]").is_err(), "{other}");
        }
        assert!(put("[ab]\n# [a]\n", "[a]\n", "[a]").is_ok());
    }
}
