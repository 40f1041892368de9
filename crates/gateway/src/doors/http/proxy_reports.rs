//! Reports about security proxies, for operators: what a day's budget still holds, and what was not usual.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use sluice_core::Span;
use sluice_core::proxy::review::{self, Deviation, Review, ReviewFigures, Spread};
use sluice_core::proxy::{ProxyUsage, RoutingScore, day_of, start_of};
use sluice_core::refusal::Code;
use sluice_store::ProxyDay;

use super::proxies::known;
use super::reply::Reply;
use super::route::Visit;
use crate::No;

/// Days that are shown before today, unless asked for others.
const DAYS: u32 = 7;
/// Most days that are shown.
const MOST_DAYS: u32 = 400;
/// The period of a review, unless asked for another.
const PERIOD: Span = Span::from_hours(7 * 24);
/// The longest period.
const LONGEST: Span = Span::from_hours(90 * 24);
/// Most tasks of a period that are looked at, the newest first.
const MOST_TASKS: u32 = 100_000;

/// How much an operation gains from running in a proxy.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ScoreView {
    /// The capability.
    pub capability: String,
    /// From 0 to 100; below 30 a plain request would do.
    pub score: u8,
    /// What it is made of, each with its points.
    pub reasons: Vec<String>,
}

impl ScoreView {
    pub(super) fn of(capability: String, found: &RoutingScore) -> Self {
        let reasons = found.reasons.iter().map(|reason| format!("{} +{}", reason.text, reason.points));
        Self { capability, score: found.score, reasons: reasons.collect() }
    }
}

/// What tasks use.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UsageView {
    /// Requests.
    pub requests: u64,
    /// Bytes of answers.
    pub bytes: u64,
    /// Time of tasks.
    pub milliseconds: u64,
    /// What the requests cost: decimal text without a currency.
    pub cost: String,
}

impl From<ProxyUsage> for UsageView {
    fn from(usage: ProxyUsage) -> Self {
        let ProxyUsage { requests, bytes, millis, cost } = usage;
        Self { requests, bytes, milliseconds: millis, cost: cost.to_string() }
    }
}

/// One day of a proxy.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BudgetDayView {
    /// The UTC day: `2026-11-18`.
    pub day: String,
    /// Tasks that began.
    pub tasks: u64,
    /// What was used.
    pub used: UsageView,
    /// The largest share of a limit of today's declaration that this is, in percent.
    pub percent: u64,
}

/// The budget of a proxy.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BudgetView {
    /// Its name.
    pub proxy: String,
    /// What a day allows.
    pub limits: UsageView,
    /// What one task can use at most; so much is reserved before it begins.
    pub estimate: UsageView,
    /// What was used today.
    pub used: UsageView,
    /// What is reserved for tasks under way.
    pub reserved: UsageView,
    /// What is left of today.
    pub left: UsageView,
    /// The largest share of a limit that is used today, in percent.
    pub percent: u64,
    /// Whether another task fits.
    pub fits: bool,
    /// When the next day begins.
    pub resets_at: String,
    /// Today and the days before it, newest first; days without a task are left out.
    pub days: Vec<BudgetDayView>,
}

/// `GET /v1/proxies/{name}/budget`.
pub(super) async fn budget(visit: Visit) -> Result<Reply, No> {
    let (gw, name) = (&visit.gw, visit.part::<String>("name")?);
    let back = visit.asked::<u32>("days")?.unwrap_or(DAYS);
    if !(1..=MOST_DAYS).contains(&back) {
        return Err(No::saying(Code::DoorParameter, &format!("days is between 1 and {MOST_DAYS}")));
    }
    let proxy = known(gw, &name)?;
    let (declared, number) = (proxy.declared(), day_of(gw.now()));
    let (limits, estimate) = (declared.budget.limits(), declared.estimate(declared.limits().wall()));
    let mut days = gw.store.proxy_days(number - i64::from(back)).await?;
    days.retain(|day| day.proxy == name);
    let today = days.iter().find(|day| day.day == number).cloned().unwrap_or_else(|| ProxyDay::fresh(&name, number));
    let view = |day: &ProxyDay| BudgetDayView {
        day: start_of(day.day).to_string().chars().take(10).collect(),
        tasks: day.tasks,
        used: day.used.into(),
        percent: day.used.percent(limits),
    };
    Ok(Reply::json(
        200,
        &BudgetView {
            proxy: name,
            limits: limits.into(),
            estimate: estimate.into(),
            used: today.used.into(),
            reserved: today.reserved.into(),
            left: limits.minus(today.used.plus(today.reserved)).into(),
            percent: today.used.percent(limits),
            fits: today.refuses(estimate, limits).is_none(),
            resets_at: start_of(number + 1).to_string(),
            days: days.iter().map(view).collect(),
        },
    ))
}

/// How values lie.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SpreadView {
    /// How many there are.
    pub count: u64,
    /// The one in the middle.
    pub median: u64,
    /// The smallest that at most 5 of 100 exceed.
    pub p95: u64,
}

impl From<Spread> for SpreadView {
    fn from(Spread { count, median, p95 }: Spread) -> Self {
        Self { count, median, p95 }
    }
}

/// What the tasks of a period did.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FiguresView {
    /// Tasks that ended.
    pub tasks: u64,
    /// Tasks that gave nothing.
    pub failures: u64,
    /// Crashes, by trigger.
    pub crashes: BTreeMap<String, u64>,
    /// Requests refused on the way out, by code.
    pub refused: BTreeMap<String, u64>,
    /// Sizes of answers, in bytes.
    pub answer_bytes: SpreadView,
    /// Times of tasks, in milliseconds.
    pub duration_ms: SpreadView,
    /// Findings in answers.
    pub findings: u64,
    /// Proposals that were not kept.
    pub proposals_refused: u64,
    /// Tasks of each operation.
    pub operations: BTreeMap<String, u64>,
}

impl From<ReviewFigures> for FiguresView {
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

/// Something that was not usual.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DeviationView {
    /// Stable: `review.crashes`.
    pub code: String,
    /// What exactly: a trigger, a code, an operation, `median` or `p95`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// In the reviewed period.
    pub now: u64,
    /// What the history lets expect for such a period.
    pub usual: u64,
    /// A sentence for people.
    pub text: String,
}

impl From<Deviation> for DeviationView {
    fn from(Deviation { code, about, now, usual, text }: Deviation) -> Self {
        Self { code: code.to_owned(), about, now, usual, text }
    }
}

/// A period of a proxy against its own history.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReviewView {
    /// Its name.
    pub proxy: String,
    /// Where the period begins.
    pub since: String,
    /// Where the history begins.
    pub history_since: String,
    /// Whether there is enough history to compare rates, sizes and times with.
    pub has_history: bool,
    /// The period.
    pub now: FiguresView,
    /// The history.
    pub earlier: FiguresView,
    /// What is not usual.
    pub deviations: Vec<DeviationView>,
}

/// `GET /v1/proxies/{name}/review`.
pub(super) async fn review(visit: Visit) -> Result<Reply, No> {
    let (gw, name) = (&visit.gw, visit.part::<String>("name")?);
    let period = match visit.asked::<String>("period")? {
        None => Some(PERIOD),
        Some(words) => Span::from_words(&words).filter(|span| (Span::from_hours(1)..=LONGEST).contains(span)),
    };
    let period =
        period.ok_or_else(|| No::saying(Code::DoorParameter, "period is a duration such as `7d`, from 1h to 90d"))?;
    known(gw, &name)?;
    let history = Span::from_millis(period.as_millis().saturating_mul(review::HISTORY));
    let now = gw.now();
    let since = now - period;
    let before = since - history;
    let store = &gw.store;
    // A task that begins in this very moment belongs to the period.
    let recent = store.proxy_task_facts(&name, (since, now + Span::from_millis(1)), MOST_TASKS).await?;
    let earlier = store.proxy_task_facts(&name, (before, since), MOST_TASKS).await?;
    let (recent, earlier) = (ReviewFigures::of(&recent), ReviewFigures::of(&earlier));
    let Review { now, earlier, has_history, deviations } = review::review(recent, earlier, (period, history));
    Ok(Reply::json(
        200,
        &ReviewView {
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
