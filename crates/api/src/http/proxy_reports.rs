//! Reports about security proxies, for operators: the daily budget, and deviations from the usual behaviour.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use sluice_core::Millis;
use sluice_core::proxy::review::{self, ProxyReview, ReviewDeviation, ReviewFigures, ValueDistribution};
use sluice_core::proxy::{ProxyUsage, RoutingScore, day_of, start_of};
use sluice_core::refusal::Code;
use sluice_services::CallError;
use sluice_store::ProxyDailyUsage;

use super::proxies::known;
use super::reply::HttpReply;
use super::route::RoutedRequest;

/// How many days before today are shown by default.
const DAYS: u32 = 7;
/// Most days that can be shown.
const MOST_DAYS: u32 = 400;
/// The default period of a review.
const PERIOD: Millis = Millis::from_hours(7 * 24);
/// The longest period of a review.
const LONGEST: Millis = Millis::from_hours(90 * 24);
/// Most tasks of a period that are read, the newest first.
const MOST_TASKS: u32 = 100_000;

/// How much an operation gains from running in a proxy.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RoutingScoreView {
    /// The capability.
    pub capability: String,
    /// From 0 to 100; below 30 a plain request is enough.
    pub score: u8,
    /// The reasons for the score, each with its points.
    pub reasons: Vec<String>,
}

impl RoutingScoreView {
    pub(super) fn of(capability: String, found: &RoutingScore) -> Self {
        let reasons = found.reasons.iter().map(|reason| format!("{} +{}", reason.text, reason.points));
        Self { capability, score: found.score, reasons: reasons.collect() }
    }
}

/// The resources that tasks use.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProxyUsageView {
    /// The number of requests.
    pub requests: u64,
    /// The bytes of answers.
    pub bytes: u64,
    /// The time of tasks, in milliseconds.
    pub milliseconds: u64,
    /// What the requests cost: decimal text without a currency.
    pub cost: String,
}

impl From<ProxyUsage> for ProxyUsageView {
    fn from(usage: ProxyUsage) -> Self {
        let ProxyUsage { requests, bytes, millis, cost } = usage;
        Self { requests, bytes, milliseconds: millis, cost: cost.to_string() }
    }
}

/// One day of a proxy.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProxyBudgetDayView {
    /// The UTC day: `2026-11-18`.
    pub day: String,
    /// How many tasks began.
    pub tasks: u64,
    /// What was used.
    pub used: ProxyUsageView,
    /// The largest share of a limit of today's declaration that was used, in percent.
    pub percent: u64,
}

/// The budget of a proxy.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProxyBudgetView {
    /// The name of the proxy.
    pub proxy: String,
    /// The limits of a day.
    pub limits: ProxyUsageView,
    /// The most that one task can use; this much is reserved before it begins.
    pub estimate: ProxyUsageView,
    /// What was used today.
    pub used: ProxyUsageView,
    /// What is reserved for tasks under way.
    pub reserved: ProxyUsageView,
    /// What is left for today.
    pub left: ProxyUsageView,
    /// The largest share of a limit that was used today, in percent.
    pub percent: u64,
    /// Whether another task fits into the budget.
    pub fits: bool,
    /// When the next day begins.
    pub resets_at: String,
    /// Today and the days before it, newest first; days without a task are left out.
    pub days: Vec<ProxyBudgetDayView>,
}

/// `GET /v1/proxies/{name}/budget`.
pub(super) async fn budget(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let (gw, name) = (&visit.gw, visit.path_param::<String>("name")?);
    let back = visit.query_param::<u32>("days")?.unwrap_or(DAYS);
    if !(1..=MOST_DAYS).contains(&back) {
        return Err(CallError::with_text(Code::DoorParameter, &format!("days is between 1 and {MOST_DAYS}")));
    }
    let proxy = known(gw, &name)?;
    let (declared, number) = (proxy.declared(), day_of(gw.now()));
    let (limits, estimate) = (declared.budget.limits(), declared.estimate(declared.limits().wall()));
    let mut days = gw.store.proxy_days(number - i64::from(back)).await?;
    days.retain(|day| day.proxy == name);
    let today =
        days.iter().find(|day| day.day == number).cloned().unwrap_or_else(|| ProxyDailyUsage::fresh(&name, number));
    let view = |day: &ProxyDailyUsage| ProxyBudgetDayView {
        day: start_of(day.day).to_string().chars().take(10).collect(),
        tasks: day.tasks,
        used: day.used.into(),
        percent: day.used.percent(limits),
    };
    Ok(HttpReply::json(
        200,
        &ProxyBudgetView {
            proxy: name,
            limits: limits.into(),
            estimate: estimate.into(),
            used: today.used.into(),
            reserved: today.reserved.into(),
            left: limits.minus(today.used.plus(today.reserved)).into(),
            percent: today.used.percent(limits),
            fits: today.exceeded_limit(estimate, limits).is_none(),
            resets_at: start_of(number + 1).to_string(),
            days: days.iter().map(view).collect(),
        },
    ))
}

/// The distribution of values.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DistributionView {
    /// The number of values.
    pub count: u64,
    /// The median value.
    pub median: u64,
    /// The 95th percentile: at most 5 of 100 values are larger.
    pub p95: u64,
}

impl From<ValueDistribution> for DistributionView {
    fn from(ValueDistribution { count, median, p95 }: ValueDistribution) -> Self {
        Self { count, median, p95 }
    }
}

/// Figures about the tasks of a period.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProxyFiguresView {
    /// Tasks that ended.
    pub tasks: u64,
    /// Tasks without a result.
    pub failures: u64,
    /// Crashes, by trigger.
    pub crashes: BTreeMap<String, u64>,
    /// Requests that the egress proxy refused, by code.
    pub refused: BTreeMap<String, u64>,
    /// Sizes of answers, in bytes.
    pub answer_bytes: DistributionView,
    /// Durations of tasks, in milliseconds.
    pub duration_ms: DistributionView,
    /// Findings in answers.
    pub findings: u64,
    /// Proposals that were refused.
    pub proposals_refused: u64,
    /// The number of tasks of each operation.
    pub operations: BTreeMap<String, u64>,
}

impl From<ReviewFigures> for ProxyFiguresView {
    fn from(figures: ReviewFigures) -> Self {
        Self {
            tasks: figures.tasks,
            failures: figures.failures,
            crashes: figures.crashes,
            refused: figures.refused,
            answer_bytes: figures.answer_bytes.into(),
            duration_ms: figures.millis.into(),
            findings: figures.findings,
            proposals_refused: figures.proposals_refused,
            operations: figures.operations,
        }
    }
}

/// A deviation from the usual behaviour.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DeviationView {
    /// A stable code: `review.crashes`.
    pub code: String,
    /// The subject: a trigger, a code, an operation, `median` or `p95`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The value in the reviewed period.
    pub now: u64,
    /// The value that the history suggests for such a period.
    pub usual: u64,
    /// A sentence for people.
    pub text: String,
}

impl From<ReviewDeviation> for DeviationView {
    fn from(ReviewDeviation { code, about, now, usual, text }: ReviewDeviation) -> Self {
        Self { code: code.to_owned(), about, now, usual, text }
    }
}

/// A period of a proxy compared with its history.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProxyReviewView {
    /// The name of the proxy.
    pub proxy: String,
    /// When the period begins.
    pub since: String,
    /// When the history begins.
    pub history_since: String,
    /// Whether there is enough history to compare rates, sizes and durations.
    pub has_history: bool,
    /// The figures of the period.
    pub now: ProxyFiguresView,
    /// The figures of the history.
    pub earlier: ProxyFiguresView,
    /// The deviations of the period.
    pub deviations: Vec<DeviationView>,
}

/// `GET /v1/proxies/{name}/review`.
pub(super) async fn review(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let (gw, name) = (&visit.gw, visit.path_param::<String>("name")?);
    let period = match visit.query_param::<String>("period")? {
        None => Some(PERIOD),
        Some(words) => Millis::from_words(&words).filter(|span| (Millis::from_hours(1)..=LONGEST).contains(span)),
    };
    let period = period.ok_or_else(|| {
        CallError::with_text(Code::DoorParameter, "period is a duration such as `7d`, from 1h to 90d")
    })?;
    known(gw, &name)?;
    let history = Millis::from_millis(period.as_millis().saturating_mul(review::HISTORY));
    let now = gw.now();
    let since = now - period;
    let before = since - history;
    let store = &gw.store;
    // A task that begins at this very moment belongs to the period.
    let recent = store.proxy_task_facts(&name, (since, now + Millis::from_millis(1)), MOST_TASKS).await?;
    let earlier = store.proxy_task_facts(&name, (before, since), MOST_TASKS).await?;
    let (recent, earlier) = (ReviewFigures::of(&recent), ReviewFigures::of(&earlier));
    let ProxyReview { now, earlier, has_history, deviations } = review::review(recent, earlier, (period, history));
    Ok(HttpReply::json(
        200,
        &ProxyReviewView {
            proxy: name,
            since: since.to_string(),
            history_since: before.to_string(),
            has_history,
            now: now.into(),
            earlier: earlier.into(),
            deviations: deviations.into_iter().map(DeviationView::from).collect(),
        },
    ))
}
