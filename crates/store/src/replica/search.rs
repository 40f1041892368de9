//! A query as SQL: which messages match, newest first.
//!
//! Promise: the text of a query is only ever a bound value made of letters and digits; the number of rows read is
//! bounded for every query.

use rusqlite::types::Value;
use rusqlite::{Row, params_from_iter};
use sluice_core::mail::SenderAuthentication;
use sluice_core::mail::query::{MailSearchField, MailSearchQuery, MailSearchTerm};

use super::apply::{FROM, SUBJECT, TO, key_at};
use super::replica_file::{
    AMBIGUOUS, ATTACHMENT, HIDDEN, MailboxLabel, ReplicaConnection, ReplicaFile, UNREAD, VERDICTS, WITHHELD,
};
use super::{
    MOST_HITS, ReplicaReader, ReplicaSearch, ReplicaSearchHit, ReplicaSearchHits, ReplicaSearchOrder, packing, rank,
    snippet,
};
use crate::error::StoreError;
use crate::sqlite::fault;

/// Most messages whose text is read for one query.
pub const MOST_EXAMINED: usize = 2_000;
/// Messages fetched at a time while checking.
const STEP: usize = 64;

/// A row that a search has read.
#[derive(Debug)]
pub struct ReplicaSearchRow {
    pub key: i64,
    pub hit: ReplicaSearchHit,
}

/// Runs a search.
pub fn run(copy: &ReplicaFile, search: &ReplicaSearch<'_>) -> Result<ReplicaSearchHits, StoreError> {
    let freshness = copy.freshness();
    let labels = copy.labels();
    let none = ReplicaSearchHits { hits: Vec::new(), more: false, ranked_over: None, looked_at: None, freshness };
    let Some(plan) = ReplicaSearchPlan::new(search.query, &labels) else { return Ok(none) };
    let page = ReplicaSearchWindow { limit: search.limit.min(MOST_HITS), offset: search.offset };
    copy.with_reader(|opened| {
        let words = search.query.terms.iter().any(|term| term.field == MailSearchField::Any && !term.not);
        let ChosenRows { found, more, ranked_over, looked_at } = match search.order {
            ReplicaSearchOrder::Ranked if words => rank::best(opened, &plan, search.query, page)?,
            ReplicaSearchOrder::Ranked | ReplicaSearchOrder::Newest => {
                let terms = search.query.terms.as_slice();
                newest(opened, &plan, page, terms)?
            }
        };
        let hits = found.into_iter().map(|found| redact_hit(found, search.reader)).collect();
        Ok(ReplicaSearchHits { hits, more, ranked_over, looked_at, freshness })
    })
}

/// The part of the matches to return.
#[derive(Debug, Clone, Copy)]
pub struct ReplicaSearchWindow {
    pub limit: usize,
    pub offset: usize,
}

impl ReplicaSearchWindow {
    /// The number of messages up to the end of the page.
    pub const fn end(self) -> usize {
        self.limit.saturating_add(self.offset)
    }
}

/// The messages chosen for an answer.
#[derive(Debug)]
pub struct ChosenRows {
    pub found: Vec<ReplicaSearchRow>,
    pub more: bool,
    pub ranked_over: Option<usize>,
    pub looked_at: Option<usize>,
}

// SECURITY: a withheld message is found, but its content is not shown.
fn redact_hit(found: ReplicaSearchRow, reader: ReplicaReader) -> ReplicaSearchHit {
    let mut hit = found.hit;
    if reader == ReplicaReader::Agent && hit.withheld {
        hit.sender.clear();
        hit.subject.clear();
        hit.snippet.clear();
        hit.authentication = None;
    }
    // Both readings are for people only. An agent must not see a sender that another parser does not see.
    if reader == ReplicaReader::Agent && hit.ambiguous {
        hit.sender.clear();
        hit.subject.clear();
    }
    hit
}

/// A query as pieces of SQL and their values.
#[derive(Debug)]
pub struct ReplicaSearchPlan {
    /// The expression for the word index, if that is used at all.
    pub matching: Option<String>,
    /// The same, for subjects only.
    pub in_subject: Option<String>,
    labels: Vec<i64>,
    low: i64,
    high: i64,
    mask: i64,
    wanted: i64,
    /// Terms that the word index alone cannot decide.
    check: Vec<MailSearchTerm>,
}

impl ReplicaSearchPlan {
    /// `None` when the query names a label that does not exist.
    pub fn new(query: &MailSearchQuery, known: &[MailboxLabel]) -> Option<Self> {
        let mut labels = Vec::new();
        let mut hidden_wanted = false;
        for name in &query.labels {
            let by_id = known.iter().find(|label| label.id.eq_ignore_ascii_case(name));
            let label = by_id.or_else(|| known.iter().find(|label| label.name.eq_ignore_ascii_case(name)))?;
            hidden_wanted |= label.id == "TRASH" || label.id == "SPAM";
            labels.push(label.n);
        }
        let (mut mask, mut wanted) = if hidden_wanted { (0, 0) } else { (HIDDEN, 0) };
        for (flag, asked) in [(UNREAD, query.unread), (ATTACHMENT, query.attachment)] {
            if let Some(asked) = asked {
                mask |= flag;
                wanted |= if asked { flag } else { 0 };
            }
        }
        // There are few unread messages, so the query goes through them by label.
        if query.unread == Some(true) && labels.is_empty() {
            labels.extend(known.iter().find(|label| label.id == "UNREAD").map(|label| label.n));
        }
        let side_by_side = query.terms.iter().filter(|term| term.words.len() > 1 && term.field == MailSearchField::Any);
        let absent = query.terms.iter().filter(|term| term.not && term.words.len() == 1);
        let positive = query.terms.iter().any(|term| !term.not);
        let check = side_by_side.chain(absent.filter(|_| !positive)).cloned().collect();
        Some(Self {
            matching: expression(&query.terms, false),
            in_subject: expression(&query.terms, true),
            labels,
            low: query.after.map_or(0, |at| key_at(at.as_millis())),
            high: query.before.map_or(i64::MAX, |at| key_at(at.as_millis())),
            mask,
            wanted,
            check,
        })
    }

    /// Whether the word index alone cannot decide.
    pub fn needs_look(&self) -> bool {
        !self.check.is_empty()
    }
}

/// The expression for the word index; `None` without a word that must occur.
fn expression(terms: &[MailSearchTerm], subjects: bool) -> Option<String> {
    let one = |term: &MailSearchTerm| {
        let mark = match term.field {
            MailSearchField::Any if subjects => SUBJECT.to_string(),
            MailSearchField::Any => String::new(),
            MailSearchField::From => FROM.to_string(),
            MailSearchField::To => TO.to_string(),
            MailSearchField::Subject => SUBJECT.to_string(),
        };
        let last = term.words.len().saturating_sub(1);
        let words = term.words.iter().enumerate().map(|(at, word)| {
            let open = if term.open && at == last { " *" } else { "" };
            format!("\"{mark}{word}\"{open}")
        });
        words.collect::<Vec<_>>().join(" AND ")
    };
    let all = |not: bool| -> Vec<String> {
        // Excluded words that must not be adjacent may well occur apart.
        let fits = |term: &&MailSearchTerm| term.not == not && !(not && term.words.len() > 1);
        terms.iter().filter(fits).map(one).collect()
    };
    let (must, must_not) = (all(false), all(true));
    if must.is_empty() {
        return None;
    }
    let must = must.join(" AND ");
    Some(if must_not.is_empty() { must } else { format!("({must}) NOT ({})", must_not.join(" OR ")) })
}

const COLUMNS: &str = "m.key, m.id, m.thread, m.received, m.sender, m.subject, m.preview, m.labels, m.flags";
const BODY: &str = ", m.dictionary, m.length, m.packed";

/// Which rows of a plan to read.
#[derive(Debug, Clone, Copy)]
pub struct PlanRowRange<'p> {
    /// The expression for the word index, if that is used.
    pub matching: Option<&'p str>,
    /// Only keys below this.
    pub below: i64,
    /// How many rows to skip.
    pub skip: usize,
    /// Most rows to read.
    pub most: usize,
    /// Words to show in context; empty to show the beginning of each message.
    pub show: &'p [MailSearchTerm],
}

/// Rows of a plan, newest first.
pub fn rows(
    opened: &mut ReplicaConnection,
    plan: &ReplicaSearchPlan,
    range: PlanRowRange<'_>,
) -> Result<Vec<ReplicaSearchRow>, StoreError> {
    let PlanRowRange { matching, below, skip, most, show } = range;
    let ReplicaConnection { connection, unpacker } = opened;
    let show = show.iter().any(|term| term.field == MailSearchField::Any && !term.not).then_some(show);
    let body = if show.is_some() { BODY } else { "" };
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let mut values: Vec<Value> =
        vec![plan.low.into(), plan.high.min(below).into(), plan.mask.into(), plan.wanted.into()];
    values.extend([number(most).into(), number(skip).into()]);
    let mut labels = plan.labels.iter();
    let mut place = |value: Value| {
        values.push(value);
        values.len()
    };
    // The table that drives the query: the word index, a label, or the messages themselves.
    let (from, key, first) = match (matching, plan.labels.first()) {
        (Some(text), _) => {
            let at = place(Value::Text(text.to_owned()));
            let from = "words w CROSS JOIN messages m ON m.key = w.rowid";
            (from, "w.rowid", format!("words MATCH ?{at}"))
        }
        (None, Some(label)) => {
            labels.next();
            let at = place((*label).into());
            ("labelled l CROSS JOIN messages m ON m.key = l.key", "l.key", format!("l.label = ?{at}"))
        }
        (None, None) => ("messages m", "m.key", "1".to_owned()),
    };
    let mut sql = format!(
        "SELECT {COLUMNS}{body} FROM {from} WHERE {first} AND {key} >= ?1 AND {key} < ?2 AND (m.flags & ?3) = ?4"
    );
    for label in labels {
        let at = place((*label).into());
        sql.push_str(&format!(" AND EXISTS (SELECT 1 FROM labelled x WHERE x.label = ?{at} AND x.key = m.key)"));
    }
    sql.push_str(&format!(" ORDER BY {key} DESC LIMIT ?5 OFFSET ?6"));
    let mut statement = connection.prepare_cached(&sql).map_err(fault)?;
    let mut found = statement.query(params_from_iter(values)).map_err(fault)?;
    let mut rows = Vec::with_capacity(most.min(STEP));
    while let Some(row) = found.next().map_err(fault)? {
        let mut one = read(row).map_err(fault)?;
        // If the preview contains the words, it is shown as it is, and the text is not unpacked.
        if let Some(terms) = show.filter(|terms| snippet::first(&one.hit.snippet, terms).is_none()) {
            let text = packing::text(super::replica_file::body_in(connection, unpacker, row, 9)?)?;
            one.hit.snippet = snippet::around(text, terms).unwrap_or(one.hit.snippet);
        }
        rows.push(one);
    }
    Ok(rows)
}

fn read(row: &Row<'_>) -> rusqlite::Result<ReplicaSearchRow> {
    let flags: i64 = row.get(8)?;
    let labels = row.get_ref(7)?.as_str()?.split_whitespace().map(str::to_owned).collect();
    let hit = ReplicaSearchHit {
        id: row.get(1)?,
        thread: row.get(2)?,
        received: row.get(3)?,
        sender: row.get(4)?,
        subject: row.get(5)?,
        snippet: row.get(6)?,
        labels,
        unread: flags & UNREAD != 0,
        attachment: flags & ATTACHMENT != 0,
        withheld: flags & WITHHELD != 0,
        ambiguous: flags & AMBIGUOUS != 0,
        authentication: u16::try_from(flags >> VERDICTS.0 & (VERDICTS.1 - 1))
            .ok()
            .and_then(SenderAuthentication::from_bits),
    };
    Ok(ReplicaSearchRow { key: row.get(0)?, hit })
}

/// The newest matches, and whether there are more.
fn newest(
    opened: &mut ReplicaConnection,
    plan: &ReplicaSearchPlan,
    page: ReplicaSearchWindow,
    show: &[MailSearchTerm],
) -> Result<ChosenRows, StoreError> {
    let (mut found, looked_at) = if plan.check.is_empty() {
        let (matching, most) = (plan.matching.as_deref(), page.limit.saturating_add(1));
        (rows(opened, plan, PlanRowRange { matching, below: i64::MAX, skip: page.offset, most, show })?, None)
    } else {
        let (mut found, looked_at) = checked(opened, plan, page.end().saturating_add(1), show)?;
        found.drain(..page.offset.min(found.len()));
        (found, looked_at)
    };
    let more = found.len() > page.limit;
    found.truncate(page.limit);
    Ok(ChosenRows { found, more, ranked_over: None, looked_at })
}

/// The newest matches whose text was checked; and, if there were too many to check all, how many were checked.
pub fn checked(
    opened: &mut ReplicaConnection,
    plan: &ReplicaSearchPlan,
    wanted: usize,
    show: &[MailSearchTerm],
) -> Result<(Vec<ReplicaSearchRow>, Option<usize>), StoreError> {
    let (mut fitting, mut below, mut examined) = (Vec::new(), i64::MAX, 0);
    while fitting.len() < wanted {
        if examined >= MOST_EXAMINED {
            return Ok((fitting, Some(examined)));
        }
        let range = PlanRowRange { matching: plan.matching.as_deref(), below, skip: 0, most: STEP, show };
        let step = rows(opened, plan, range)?;
        let Some(last) = step.last() else { break };
        (below, examined) = (last.key, examined + step.len());
        let end = step.len() < STEP;
        for found in step {
            if fits(opened, &found, plan)? {
                fitting.push(found);
            }
        }
        if end {
            break;
        }
    }
    Ok((fitting, None))
}

fn fits(
    opened: &mut ReplicaConnection,
    found: &ReplicaSearchRow,
    plan: &ReplicaSearchPlan,
) -> Result<bool, StoreError> {
    let hit = &found.hit;
    let fits = with_text(opened, found.key, |text| {
        plan.check.iter().all(|term| {
            let here = |text: &str| snippet::side_by_side(text, term);
            (here(text) || here(&hit.subject) || here(&hit.sender)) != term.not
        })
    })?;
    Ok(fits.unwrap_or(false))
}

/// Unpacks the text of a message and reads it; `None` if the message was deleted meanwhile.
pub fn with_text<Out>(
    opened: &mut ReplicaConnection,
    key: i64,
    look: impl FnOnce(&str) -> Out,
) -> Result<Option<Out>, StoreError> {
    let ReplicaConnection { connection, unpacker } = opened;
    let sql = "SELECT dictionary, length, packed FROM messages WHERE key = ?1";
    let mut statement = connection.prepare_cached(sql).map_err(fault)?;
    let mut rows = statement.query([key]).map_err(fault)?;
    let Some(row) = rows.next().map_err(fault)? else { return Ok(None) };
    Ok(Some(look(packing::text(super::replica_file::body_in(connection, unpacker, row, 0)?)?)))
}
