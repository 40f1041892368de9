//! Reads made ahead of their turn: all queries of a group in one round trip.
//!
//! Takes the queries that use cases announce; gives the answers when they are needed, unless a change made in between
//! could have made them stale. Promise: an answer from here is the one the server would give now. Where the text of a
//! change does not show that, the query is sent again.

use std::collections::HashMap;

use crate::affected_rows::AffectedRows;
use crate::sql::{SqlRow, SqlValue, StatementText};

/// A query that can be sent early.
#[derive(Debug, Clone)]
pub(crate) struct PrefetchQuery {
    pub sql: &'static str,
    pub params: Vec<SqlValue>,
    /// The rows the answer depends on, by table. Each such row has all these values, and keeps them.
    pub rests_on: Vec<(&'static str, Vec<(&'static str, SqlValue)>)>,
    /// A change whose effect on the answer can be computed without a query.
    pub follows: Option<PrefetchUpdateRule>,
}

/// How one change affects an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PrefetchUpdateRule {
    /// The SQL of the change.
    pub sql: &'static str,
    /// Takes the parameters of the query and of the change; updates the answer, or returns `false` if it cannot.
    pub then: fn(&[SqlValue], &[SqlValue], &mut [SqlRow]) -> bool,
}

impl PrefetchQuery {
    /// Whether a change may touch a row the answer depends on.
    fn is_reached(&self, touch: &AffectedRows, params: &[SqlValue]) -> bool {
        let rows = self.rests_on.iter().filter(|(table, _)| touch.table == Some(table));
        rows.into_iter().any(|(_, values)| !values.iter().any(|(column, value)| touch.avoids(params, column, value)))
    }
}

/// Queries that were sent early, with their answers as long as they are valid.
#[derive(Debug, Default)]
pub(crate) struct PrefetchCache {
    answers: Vec<Option<(PrefetchQuery, Vec<SqlRow>)>>,
    by_question: HashMap<StatementText, HashMap<Vec<SqlValue>, usize>>,
    by_table: HashMap<&'static str, Vec<usize>>,
}

impl PrefetchCache {
    /// Drops every answer: what follows is another transaction.
    pub fn clear(&mut self) {
        self.answers.clear();
        self.by_question.clear();
        self.by_table.clear();
    }

    /// The answer, if it is still valid.
    pub fn answer(&self, sql: &'static str, params: &[SqlValue]) -> Option<Vec<SqlRow>> {
        let place = *self.by_question.get(&StatementText(sql))?.get(params)?;
        let (_, rows) = self.answers.get(place)?.as_ref()?;
        Some(rows.clone())
    }

    /// Stores an answer.
    pub fn keep(&mut self, ahead: PrefetchQuery, rows: Vec<SqlRow>) {
        let place = self.answers.len();
        for (table, _) in &ahead.rests_on {
            self.by_table.entry(table).or_default().push(place);
        }
        self.by_question.entry(StatementText(ahead.sql)).or_default().insert(ahead.params.clone(), place);
        self.answers.push(Some((ahead, rows)));
    }

    /// Handles a change: drops or updates every answer it could affect.
    pub fn touch(&mut self, touch: &AffectedRows, sql: &str, params: &[SqlValue]) {
        let Some(table) = touch.table else { return self.clear() };
        for place in self.by_table.get(table).into_iter().flatten() {
            let Some(answer) = self.answers.get_mut(*place) else { continue };
            let Some((ahead, rows)) = answer.as_mut().filter(|(ahead, _)| ahead.is_reached(touch, params)) else {
                continue;
            };
            let known = ahead.follows.filter(|follows| follows.sql == sql);
            if !known.is_some_and(|follows| (follows.then)(&ahead.params, params, rows)) {
                *answer = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::params;

    const USED: &str = "SELECT SUM(weight) FROM counters WHERE kind = ?1 AND agent = ?2";
    const BUMP: &str = "INSERT INTO counters (kind, agent, slot, weight) VALUES (?1, ?2, ?3, ?4) \
         ON CONFLICT (kind, agent, slot) DO UPDATE SET weight = counters.weight + excluded.weight";

    fn used(agent: &str) -> PrefetchQuery {
        let rests_on = vec![("counters", vec![("kind", SqlValue::from("batch")), ("agent", SqlValue::from(agent))])];
        PrefetchQuery { sql: USED, params: params!["batch", agent], rests_on, follows: None }
    }

    fn hold(id: i64) -> PrefetchQuery {
        let rests_on =
            vec![("holds", vec![("id", SqlValue::Int(id))]), ("contents", vec![("hold", SqlValue::Int(id))])];
        PrefetchQuery { sql: "SELECT state FROM holds WHERE id = ?1", params: params![id], rests_on, follows: None }
    }

    /// Which of the answers survive a change.
    fn after(aheads: &[PrefetchQuery], sql: &'static str, params: Vec<SqlValue>) -> Vec<bool> {
        let mut foresight = PrefetchCache::default();
        aheads.iter().for_each(|ahead| foresight.keep(ahead.clone(), vec![SqlRow(vec![SqlValue::Int(7)])]));
        assert!(aheads.iter().all(|ahead| foresight.answer(ahead.sql, &ahead.params).is_some()));
        foresight.touch(&AffectedRows::read(sql), sql, &params);
        aheads.iter().map(|ahead| foresight.answer(ahead.sql, &ahead.params).is_some()).collect()
    }

    #[test]
    fn counting_for_one_agent_leaves_what_is_known_of_another() {
        assert_eq!(after(&[used("a"), used("b")], BUMP, params!["batch", "a", 1_i64, 1_i64]), [false, true]);
        assert_eq!(after(&[used("a"), used("b")], BUMP, params!["rate", "a", 1_i64, 1_i64]), [true, true]);
    }

    #[test]
    fn an_answer_that_follows_a_change_is_kept_and_one_that_does_not_is_asked_again() {
        let then: fn(&[SqlValue], &[SqlValue], &mut [SqlRow]) -> bool = |asked, made, rows| match (made, rows) {
            ([.., SqlValue::Int(weight)], [SqlRow(sum)]) if asked.get(1) == made.get(1) && *weight < 5 => {
                *sum = vec![SqlValue::Int(7 + weight)];
                true
            }
            _ => false,
        };
        let mut foresight = PrefetchCache::default();
        foresight.keep(
            PrefetchQuery { follows: Some(PrefetchUpdateRule { sql: BUMP, then }), ..used("a") },
            vec![SqlRow(params![7_i64])],
        );
        foresight.touch(&AffectedRows::read(BUMP), BUMP, &params!["batch", "a", 1_i64, 2_i64]);
        let answer = foresight.answer(USED, &params!["batch", "a"]).unwrap();
        assert_eq!(answer.first().unwrap().0, params![9_i64]);
        foresight.touch(&AffectedRows::read(BUMP), BUMP, &params!["batch", "a", 1_i64, 6_i64]);
        assert!(foresight.answer(USED, &params!["batch", "a"]).is_none());
    }

    #[test]
    fn a_literal_counts_like_a_parameter() {
        let turn = "INSERT INTO counters (kind, agent, slot, weight) VALUES ('turn', ?1, 0, 0)";
        assert_eq!(after(&[used("a")], turn, params!["a"]), [true]);
        let batch = "INSERT INTO counters (kind, agent, slot, weight) VALUES ('batch', ?1, 0, 0)";
        assert_eq!(after(&[used("a")], batch, params!["a"]), [false]);
    }

    #[test]
    fn a_moved_row_is_asked_again_and_its_neighbour_is_not() {
        let moved = "UPDATE holds SET state = ?3, version = ?4 WHERE id = ?1 AND version = ?2";
        assert_eq!(after(&[hold(1), hold(2)], moved, params![1_i64, 5_i64, "done", 6_i64]), [false, true]);
        let content = "INSERT INTO contents (hold, action) VALUES (?1, ?2)";
        assert_eq!(after(&[hold(1), hold(2)], content, params![2_i64, "x"]), [true, false]);
        let elsewhere = "INSERT INTO outbox (id, body) VALUES (?1, ?2)";
        assert_eq!(after(&[hold(1)], elsewhere, params![1_i64, "x"]), [true]);
    }

    #[test]
    fn what_a_change_sets_does_not_tell_which_rows_it_meets() {
        // Before the change the row may have had any kind.
        let rename = "UPDATE counters SET kind = ?1 WHERE slot = ?2";
        assert_eq!(after(&[used("a")], rename, params!["rate", 3_i64]), [false]);
        let both = "UPDATE counters SET kind = 'rate' WHERE kind = ?1";
        assert_eq!(after(&[used("a")], both, params!["rate"]), [false]);
    }

    #[test]
    fn an_upsert_may_meet_any_row_with_its_key() {
        let upsert = "INSERT INTO counters (slot, kind) VALUES (?1, ?2) ON CONFLICT (slot) DO UPDATE SET weight = 0";
        assert_eq!(after(&[used("a")], upsert, params![1_i64, "rate"]), [false]);
    }

    #[test]
    fn a_change_of_an_unknown_form_makes_everything_asked_again() {
        for text in ["TRUNCATE counters", "INSERT INTO counters SELECT 1", "UPDATE counters SET weight = 0"] {
            assert_eq!(after(&[used("a"), hold(1)], text, params![]), [false, false], "{text}");
        }
        let either = "DELETE FROM counters WHERE kind = 'rate' OR agent = 'a'";
        assert_eq!(after(&[used("a")], either, params![]), [false]);
    }
}
