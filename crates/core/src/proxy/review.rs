//! The review of a proxy: what its tasks did in a period, compared with its own history before that.
//!
//! Takes facts of tasks (counts, sizes, times and codes, never content); gives figures and deviations. Promise: the
//! thresholds are fixed and written down here and in `docs/proxies.md`, all arithmetic is in whole numbers, and the same
//! tasks give the same report.

use std::collections::BTreeMap;
use std::fmt;

use crate::clock::Millis;

/// How many periods before the reviewed one are its history.
pub const HISTORY: u64 = 4;
/// Fewer tasks than this are no history to compare rates and sizes with.
pub const LEAST_TASKS: u64 = 10;
/// Fewer values than this have no median worth comparing.
pub const LEAST_VALUES: u64 = 5;
/// Counts, sizes and times deviate if they reach this multiple of the usual value.
pub const TIMES: u64 = 3;
/// Counts below this are treated as chance.
pub const LEAST_COUNT: u64 = 3;
/// Up to this many tasks beyond the usual number are treated as chance.
pub const LEAST_MORE_TASKS: u64 = 20;
/// How much the share of failed tasks may grow, in percentage points.
pub const FAILED_POINTS: u64 = 20;
/// Sizes with a smaller difference are treated as equal, in bytes.
pub const SAME_BYTES: u64 = 1024;
/// Times with a smaller difference are treated as equal, in milliseconds.
pub const SAME_MILLIS: u64 = 1000;
/// A request refused with one of these is never usual: a worker asked for another host, method, path or address than declared,
/// presented a foreign ticket, or sent data that must not leave.
const NEVER_USUAL: [&str; 5] = ["egress.not_allowed", "egress.ticket", "egress.address", "egress.header", "leak.found"];

/// One task that ended, as a review sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskFacts {
    /// The operation.
    pub operation: String,
    /// Why its caller got nothing, as a code.
    pub failed: Option<String>,
    /// The trigger of a crash.
    pub trigger: Option<String>,
    /// Why egress refused its request, as a code.
    pub refused: Option<String>,
    /// The size of the answer.
    pub answer_bytes: Option<u64>,
    /// How long it took.
    pub millis: Option<u64>,
    /// The number of findings in the answer.
    pub findings: u64,
    /// The number of proposals that were rejected.
    pub proposals_refused: u64,
}

/// The distribution of values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ValueDistribution {
    /// How many there are.
    pub count: u64,
    /// The one in the middle; the lower one of two.
    pub median: u64,
    /// The smallest that at most 5 of 100 exceed.
    pub p95: u64,
}

impl ValueDistribution {
    fn of(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        let count = values.len() as u64;
        let rank = |percent: u64| {
            let at = (count * percent).div_ceil(100).saturating_sub(1);
            usize::try_from(at).ok().and_then(|at| values.get(at)).copied().unwrap_or(0)
        };
        Self { count, median: rank(50), p95: rank(95) }
    }
}

/// What the tasks of a period did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReviewFigures {
    /// Tasks that ended.
    pub tasks: u64,
    /// Tasks that gave no answer.
    pub failures: u64,
    /// Crashes, by trigger.
    pub crashes: BTreeMap<String, u64>,
    /// Requests that egress refused, by code.
    pub refused: BTreeMap<String, u64>,
    /// Sizes of answers, in bytes.
    pub answer_bytes: ValueDistribution,
    /// Times of tasks, in milliseconds.
    pub millis: ValueDistribution,
    /// Findings in answers.
    pub findings: u64,
    /// Proposals that were not kept.
    pub proposals_refused: u64,
    /// Tasks of each operation.
    pub operations: BTreeMap<String, u64>,
}

impl ReviewFigures {
    /// Combines tasks.
    #[must_use]
    pub fn of<'a>(tasks: impl IntoIterator<Item = &'a TaskFacts>) -> Self {
        let (mut found, mut sizes, mut times) = (Self::default(), Vec::new(), Vec::new());
        for task in tasks {
            found.tasks += 1;
            found.failures += u64::from(task.failed.is_some());
            found.findings = found.findings.saturating_add(task.findings);
            found.proposals_refused = found.proposals_refused.saturating_add(task.proposals_refused);
            *found.operations.entry(task.operation.clone()).or_default() += 1;
            if let Some(trigger) = &task.trigger {
                *found.crashes.entry(trigger.clone()).or_default() += 1;
            }
            if let Some(code) = &task.refused {
                *found.refused.entry(code.clone()).or_default() += 1;
            }
            sizes.extend(task.answer_bytes);
            times.extend(task.millis);
        }
        (found.answer_bytes, found.millis) = (ValueDistribution::of(sizes), ValueDistribution::of(times));
        found
    }
}

/// A figure that is not usual.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewDeviation {
    /// The stable code: `review.crashes`.
    pub code: &'static str,
    /// The detail, if there are several: a trigger, a code, an operation, `median` or `p95`.
    pub about: Option<String>,
    /// The figure in the reviewed period.
    pub now: u64,
    /// The expected figure for a period of this length, from the history.
    pub usual: u64,
    /// A sentence for people.
    pub text: String,
}

impl fmt::Display for ReviewDeviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.text)
    }
}

/// A period compared with the history before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyReview {
    /// The figures of the period.
    pub now: ReviewFigures,
    /// The figures of the whole history.
    pub earlier: ReviewFigures,
    /// Whether there is enough history to compare rates and sizes with.
    pub has_history: bool,
    /// The deviations of the period.
    pub deviations: Vec<ReviewDeviation>,
}

/// Reviews a period. `spans` are its length and that of the history.
#[must_use]
pub fn review(now: ReviewFigures, earlier: ReviewFigures, spans: (Millis, Millis)) -> ProxyReview {
    let has_history = earlier.tasks >= LEAST_TASKS;
    let mut found = DeviationCollector { spans, list: Vec::new() };
    if has_history {
        let usual = found.usual(earlier.tasks);
        if now.tasks >= usual.saturating_mul(TIMES) && now.tasks.saturating_sub(usual) >= LEAST_MORE_TASKS {
            let text = format!("{} tasks, where {usual} are usual", now.tasks);
            found.add("review.tasks", None, (now.tasks, usual), text);
        }
        found.failures(&now, &earlier);
        found.spread("review.answer_size", "answers of", "bytes", (now.answer_bytes, earlier.answer_bytes, SAME_BYTES));
        found.spread("review.duration", "tasks that take", "ms", (now.millis, earlier.millis, SAME_MILLIS));
        for (operation, count) in now.operations.iter().filter(|(name, _)| !earlier.operations.contains_key(*name)) {
            let text = format!("the operation `{operation}` was used {count} times and never before");
            found.add("review.new_operation", Some(operation), (*count, 0), text);
        }
    }
    for (trigger, count) in &now.crashes {
        let before = earlier.crashes.get(trigger).copied().unwrap_or(0);
        found.count("review.crashes", Some(trigger), (*count, before), &format!("crashes by {trigger}"));
    }
    for (code, count) in &now.refused {
        let before = earlier.refused.get(code).copied().unwrap_or(0);
        if NEVER_USUAL.contains(&code.split(':').next().unwrap_or_default()) {
            let text = format!("{count} requests were refused with {code}: a worker made an undeclared request");
            found.add("review.refused", Some(code), (*count, found.usual(before)), text);
        } else {
            found.count("review.refused", Some(code), (*count, before), &format!("requests refused with {code}"));
        }
    }
    found.count("review.findings", None, (now.findings, earlier.findings), "findings in answers");
    let proposals = (now.proposals_refused, earlier.proposals_refused);
    found.count("review.proposals", None, proposals, "proposals that were not kept");
    ProxyReview { now, earlier, has_history, deviations: found.list }
}

struct DeviationCollector {
    spans: (Millis, Millis),
    list: Vec<ReviewDeviation>,
}

impl DeviationCollector {
    /// The count to expect for the period from a count of the history, rounded up.
    fn usual(&self, earlier: u64) -> u64 {
        let (now, before) = (u128::from(self.spans.0.as_millis()), u128::from(self.spans.1.as_millis()).max(1));
        u64::try_from((u128::from(earlier) * now).div_ceil(before)).unwrap_or(u64::MAX)
    }

    fn add(&mut self, code: &'static str, about: Option<&str>, (now, usual): (u64, u64), text: String) {
        self.list.push(ReviewDeviation { code, about: about.map(str::to_owned), now, usual, text });
    }

    /// A bad event: new, or several times as often as usual.
    fn count(&mut self, code: &'static str, about: Option<&str>, (now, earlier): (u64, u64), what: &str) {
        let usual = self.usual(earlier);
        if now > 0 && earlier == 0 {
            self.add(code, about, (now, 0), format!("{now} {what}, and none before"));
        } else if now >= LEAST_COUNT && now >= usual.saturating_mul(TIMES) {
            self.add(code, about, (now, usual), format!("{now} {what}, where {usual} are usual"));
        }
    }

    fn failures(&mut self, now: &ReviewFigures, earlier: &ReviewFigures) {
        let share = |figures: &ReviewFigures| (figures.failures * 100).checked_div(figures.tasks).unwrap_or(0);
        let (here, usual) = (share(now), share(earlier));
        if now.failures >= LEAST_COUNT && here >= usual + FAILED_POINTS {
            let text =
                format!("{here} % of the tasks failed ({} of {}), where {usual} % are usual", now.failures, now.tasks);
            self.add("review.failures", None, (here, usual), text);
        }
    }

    fn spread(
        &mut self,
        code: &'static str,
        what: &str,
        unit: &str,
        (now, earlier, same): (ValueDistribution, ValueDistribution, u64),
    ) {
        if now.count < LEAST_VALUES || earlier.count < LEAST_VALUES {
            return;
        }
        for (word, here, usual) in [("median", now.median, earlier.median), ("p95", now.p95, earlier.p95)] {
            if here >= usual.saturating_mul(TIMES) && here - usual >= same {
                let text = format!("{what} {here} {unit} ({word}), where {usual} {unit} are usual");
                self.add(code, Some(word), (here, usual), text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(operation: &str) -> TaskFacts {
        let (answer_bytes, millis) = (Some(1_000), Some(200));
        TaskFacts { operation: operation.into(), answer_bytes, millis, ..TaskFacts::default() }
    }

    fn many(count: usize, task: &TaskFacts) -> Vec<TaskFacts> {
        vec![task.clone(); count]
    }

    fn codes(now: &[TaskFacts], earlier: &[TaskFacts]) -> Vec<&'static str> {
        let week = Millis::from_hours(7 * 24);
        let spans = (week, Millis::from_millis(week.as_millis() * HISTORY));
        let found = review(ReviewFigures::of(now), ReviewFigures::of(earlier), spans);
        found.deviations.iter().map(|one| one.code).collect()
    }

    #[test]
    fn a_period_like_those_before_it_has_no_deviation() {
        let failed = TaskFacts { failed: Some("egress.limit".into()), ..task("feed") };
        let earlier = [many(36, &task("feed")), many(4, &failed)].concat();
        let now = [many(9, &task("feed")), many(1, &failed)].concat();
        assert_eq!(codes(&now, &earlier), [""; 0]);
        assert_eq!(codes(&[], &earlier), [""; 0], "a period without tasks is no deviation");
        assert_eq!(codes(&[], &[]), [""; 0]);
    }

    #[test]
    fn each_kind_of_deviation_is_found_at_its_threshold_and_not_below() {
        let earlier = many(40, &task("feed"));
        let usual = many(10, &task("feed"));
        let with = |more: Vec<TaskFacts>| codes(&[usual.clone(), more].concat(), &earlier);
        assert_eq!(with(many(20, &task("feed"))), ["review.tasks"]);
        assert_eq!(with(many(19, &task("feed"))), [""; 0]);
        let failed = TaskFacts { failed: Some("execute.unavailable".into()), ..task("feed") };
        assert_eq!(with(many(3, &failed)), ["review.failures"]);
        assert_eq!(with(many(2, &failed)), [""; 0]);
        let crashed = TaskFacts { trigger: Some("EXCEPTION".into()), ..task("feed") };
        assert_eq!(with(many(1, &crashed)), ["review.crashes"], "the first of its kind");
        let known = [earlier.clone(), many(4, &crashed)].concat();
        assert_eq!(codes(&[usual.clone(), many(2, &crashed)].concat(), &known), [""; 0]);
        assert_eq!(codes(&[usual.clone(), many(3, &crashed)].concat(), &known), ["review.crashes"]);
        let limited = TaskFacts { refused: Some("egress.limit".into()), ..task("feed") };
        let known = [earlier.clone(), many(4, &limited)].concat();
        assert_eq!(codes(&[usual.clone(), many(2, &limited)].concat(), &known), [""; 0]);
        assert_eq!(codes(&[usual.clone(), many(3, &limited)].concat(), &known), ["review.refused"]);
        assert_eq!(with(vec![TaskFacts { findings: 1, ..task("feed") }]), ["review.findings"]);
        assert_eq!(with(vec![TaskFacts { proposals_refused: 1, ..task("feed") }]), ["review.proposals"]);
        assert_eq!(with(vec![task("post")]), ["review.new_operation"]);
    }

    #[test]
    fn another_host_method_or_path_is_never_usual() {
        for code in NEVER_USUAL {
            let strange = TaskFacts { refused: Some(format!("{code}:host")), ..task("feed") };
            let earlier = [many(40, &task("feed")), many(40, &strange)].concat();
            assert_eq!(codes(&[strange], &earlier), ["review.refused"], "{code}");
        }
    }

    #[test]
    fn sizes_and_times_are_compared_by_median_and_p95() {
        let earlier = many(40, &task("feed"));
        let large = TaskFacts { answer_bytes: Some(3_000), ..task("feed") };
        assert_eq!(codes(&many(5, &large), &earlier), ["review.answer_size"; 2]);
        assert_eq!(codes(&many(4, &large), &earlier), [""; 0], "too few values");
        let just_below = TaskFacts { answer_bytes: Some(2_999), ..task("feed") };
        assert_eq!(codes(&many(5, &just_below), &earlier), [""; 0]);
        // One large answer in ten moves the tail and not the middle.
        let tail = [many(9, &task("feed")), vec![large]].concat();
        assert_eq!(codes(&tail, &earlier), ["review.answer_size"]);
        let slow = |millis| TaskFacts { millis: Some(millis), ..task("feed") };
        assert_eq!(codes(&many(5, &slow(1_200)), &earlier), ["review.duration"; 2]);
        assert_eq!(codes(&many(5, &slow(1_199)), &earlier), [""; 0], "below a second it is the same");
    }

    #[test]
    fn without_history_only_what_is_wrong_in_itself_is_named() {
        let young = many(9, &task("feed"));
        assert_eq!(codes(&many(100, &task("post")), &young), [""; 0]);
        let crashed = TaskFacts { trigger: Some("INJECTION_DETECTED".into()), findings: 2, ..task("feed") };
        assert_eq!(codes(&[crashed], &young), ["review.crashes", "review.findings"]);
    }

    #[test]
    fn the_median_of_two_is_the_lower_one_and_p95_leaves_at_most_five_of_a_hundred() {
        assert_eq!(ValueDistribution::of(vec![4, 2]), ValueDistribution { count: 2, median: 2, p95: 4 });
        assert_eq!(ValueDistribution::of((1..=100).collect()), ValueDistribution { count: 100, median: 50, p95: 95 });
        assert_eq!(ValueDistribution::of(Vec::new()), ValueDistribution::default());
    }
}
