//! Lists of held writes and approvals, each with what it is about and what is wrong with it.

use sluice_core::approval::Approval;
use sluice_core::hold::Hold;
use sluice_core::target::TracedTarget;
use sluice_services::CallError;
use sluice_services::failing::{FailingView, FailureAudience, shows_error};
use sluice_store::{ApprovalCard, ApprovalSummary, Store};

use super::{ApprovalView, HoldView, TargetView};

/// Characters of a summary.
const SUMMARY: usize = 200;
/// Characters of a target in a summary.
const TARGET: usize = 120;

/// Writes as doors list them, each with what is wrong with it.
///
/// # Errors
/// When the database cannot be read.
pub async fn holds(store: &Store, holds: &[Hold], audience: FailureAudience) -> Result<Vec<HoldView>, CallError> {
    let asked: Vec<&Hold> = holds.iter().filter(|hold| shows_error(hold)).collect();
    let found = store.attempt_failures(asked.iter().map(|hold| hold.id).collect()).await?;
    let mut failures: std::collections::HashMap<_, _> = asked.iter().map(|hold| hold.id).zip(found).collect();
    let mut targets = match audience {
        FailureAudience::Person => store.targets_of_holds(holds.iter().map(|hold| hold.id).collect()).await?,
        FailureAudience::Agent => Vec::new(),
    }
    .into_iter();
    let view = |hold: &Hold| {
        let targets = targets.next().unwrap_or_default().into_iter().map(TargetView::from).collect();
        let failure = failures.remove(&hold.id).flatten();
        HoldView { failing: FailingView::with(hold, failure, audience), targets, ..HoldView::of(hold) }
    };
    Ok(holds.iter().map(view).collect())
}

/// Approvals as doors list them, each with one line that says what it is about.
///
/// # Errors
/// When the database cannot be read.
pub async fn approvals(store: &Store, approvals: Vec<Approval>) -> Result<Vec<ApprovalView>, CallError> {
    let summaries = store.approval_summaries(approvals.iter().map(|approval| approval.id).collect()).await?;
    let view = |(approval, summary): (Approval, ApprovalSummary)| {
        let summary = summarize(&summary, approval.items);
        ApprovalView { summary, ..ApprovalView::of(&ApprovalCard { approval, items: Vec::new() }, Vec::new()) }
    };
    Ok(approvals.into_iter().zip(summaries).map(view).collect())
}

/// What an approval is about, in one line: `email.send ana@corp.example and 2 more, 7 writes`.
fn summarize(summary: &ApprovalSummary, writes: u32) -> Option<String> {
    let words = match summary {
        ApprovalSummary::Write { capability, targets } => {
            let mut words = capability.to_string();
            words.push_str(&name_targets(targets));
            if writes > 1 {
                words.push_str(&format!(", {writes} writes"));
            }
            words
        }
        ApprovalSummary::Request { action_type, title } if title.is_empty() => action_type.clone(),
        ApprovalSummary::Request { action_type, title } => format!("{action_type}: {title}"),
        ApprovalSummary::Forgotten => return None,
    };
    Some(cut(&words, SUMMARY))
}

/// The first target, and how many more there are.
fn name_targets(targets: &[TracedTarget]) -> String {
    match targets {
        [] => String::new(),
        [only] => format!(" {}", cut(&only.value, TARGET)),
        [first, more @ ..] => format!(" {} and {} more", cut(&first.value, TARGET), more.len()),
    }
}

/// A text in one line of at most this many characters; of a longer one the beginning and the end.
fn cut(text: &str, most: usize) -> String {
    let line: Vec<char> = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.len() <= most {
        return line.into_iter().collect();
    }
    let kept = most.saturating_sub(1);
    let begin = line.iter().take(kept.div_ceil(2));
    let end = line.iter().skip(line.len() - kept / 2);
    begin.chain(std::iter::once(&'…')).chain(end).collect()
}

#[cfg(test)]
mod tests {
    use sluice_core::ids::CapabilityName;
    use sluice_core::policy::TargetOrigin;

    use super::*;

    fn target(value: &str) -> TracedTarget {
        let (argument, value) = ("to".to_owned(), value.to_owned());
        TracedTarget { argument, value, origin: TargetOrigin::New, source: None, print: None }
    }

    #[test]
    fn one_line_says_what_an_approval_is_about() {
        let write = |targets: Vec<TracedTarget>| ApprovalSummary::Write {
            capability: CapabilityName::new("email.send").unwrap(),
            targets,
        };
        let line = |summary: &ApprovalSummary, writes| summarize(summary, writes).unwrap();
        assert_eq!(line(&write(Vec::new()), 1), "email.send");
        assert_eq!(line(&write(vec![target("ana@corp.example")]), 1), "email.send ana@corp.example");
        let two = write(vec![target("ana@corp.example"), target("zz@evil.example")]);
        assert_eq!(line(&two, 7), "email.send ana@corp.example and 1 more, 7 writes");
        let asked = ApprovalSummary::Request { action_type: "exec_cmd".into(), title: "make\ntest".into() };
        assert_eq!(line(&asked, 1), "exec_cmd: make test");
        assert_eq!(summarize(&ApprovalSummary::Forgotten, 1), None);
        let long = line(&write(vec![target(&"x".repeat(10_000))]), 1);
        assert!(long.chars().count() <= SUMMARY, "{long}");
        let path = line(&write(vec![target(&format!("/{}/report.txt", "x".repeat(300)))]), 1);
        assert!(path.starts_with("email.send /x") && path.ends_with("x/report.txt"), "{path}");
    }
}
