//! Pages of a list of tools.
//!
//! Takes all tools in the order of their names, and where the last page ended; gives the next page. Promise: every tool
//! is on exactly one page, a page has a bounded size, and a cursor that was not issued by the gateway is refused.

use rmcp::ErrorData;
use rmcp::model::{ErrorCode, Tool};

/// Most tools of one page. Many clients read only the first page, so an ordinary list is one page.
const TOOLS: usize = 500;
/// Largest page in bytes, unless a single tool is larger.
const BYTES: usize = 1 << 20;
/// What a cursor begins with; the name of the last tool follows.
const MARK: &str = "after:";

/// The page after this cursor, and the cursor of the page after it.
pub(super) fn page(tools: Vec<Tool>, cursor: Option<&str>) -> Result<(Vec<Tool>, Option<String>), ErrorData> {
    let after = match cursor {
        None => None,
        Some(text) => Some(text.strip_prefix(MARK).filter(|name| !name.is_empty()).ok_or_else(unknown)?),
    };
    let mut rest = tools.into_iter().filter(|tool| after.is_none_or(|after| tool.name.as_ref() > after)).peekable();
    let (mut page, mut bytes): (Vec<Tool>, usize) = (Vec::new(), 0);
    while let Some(tool) = rest.peek() {
        let size = serde_json::to_vec(tool).map_or(0, |text| text.len());
        if !page.is_empty() && (page.len() >= TOOLS || bytes + size > BYTES) {
            break;
        }
        bytes += size;
        page.extend(rest.next());
    }
    let next = rest.peek().and(page.last()).map(|last| format!("{MARK}{}", last.name));
    Ok((page, next))
}

fn unknown() -> ErrorData {
    ErrorData::new(
        ErrorCode::INVALID_PARAMS,
        "this cursor is not from a list of this gateway: list the tools again",
        None,
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use serde_json::json;

    fn tools(count: usize, bytes: usize) -> Vec<Tool> {
        let schema = json!({"type": "object", "description": "x".repeat(bytes)});
        let schema = Arc::new(super::super::tools::object(schema));
        (0..count).map(|n| Tool::new(format!("tool_{n:05}"), "Does it.", Arc::clone(&schema))).collect()
    }

    #[test]
    fn a_thousand_tools_of_50_kb_come_in_pages_of_bounded_size_and_each_of_them_once() {
        let all = tools(1_000, 50_000);
        let (mut seen, mut cursor, mut pages) = (Vec::new(), None, 0);
        loop {
            let (page, next) = page(all.clone(), cursor.as_deref()).unwrap();
            assert!(serde_json::to_vec(&page).unwrap().len() <= BYTES + page.len());
            seen.extend(page.iter().map(|tool| tool.name.to_string()));
            pages += 1;
            match next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, all.iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>());
        assert!((45..60).contains(&pages), "{pages}");
    }

    #[test]
    fn an_ordinary_list_is_one_page_and_a_tool_larger_than_a_page_has_its_own() {
        assert_eq!(page(tools(TOOLS, 100), None).unwrap().1, None);
        assert_eq!(page(Vec::new(), None).unwrap(), (Vec::new(), None));
        let (first, next) = page(tools(2, 2 * BYTES), None).unwrap();
        assert_eq!((first.len(), next.as_deref()), (1, Some("after:tool_00000")));
    }

    #[test]
    fn a_cursor_from_elsewhere_is_refused() {
        for cursor in ["", "after:", "7", "tool_1"] {
            assert_eq!(page(tools(2, 1), Some(cursor)).unwrap_err().code, ErrorCode::INVALID_PARAMS, "{cursor}");
        }
    }
}
