//! Reads made ahead of their turn: all the questions of a group in one round trip.
//!
//! Takes the questions use cases say they will ask; gives the answers when they are asked, unless a
//! change left in between could have made them untrue. Promise: an answer from here is the one the
//! server would give now. Where that cannot be told from the text of a change, it is asked again.

use std::collections::HashMap;

use crate::sql::{Row, Text, Val};
use crate::touch::Touch;

/// A question that can be asked early.
#[derive(Debug, Clone)]
pub(crate) struct Ahead {
    pub sql: &'static str,
    pub params: Vec<Val>,
    /// The rows the answer rests on, by table. A row it rests on has all these values, and keeps them.
    pub rests_on: Vec<(&'static str, Vec<(&'static str, Val)>)>,
    /// A change after which the answer can be told without asking.
    pub follows: Option<Follows>,
}

/// How an answer follows one change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Follows {
    /// The text of the change.
    pub sql: &'static str,
    /// Takes the values of the question and of the change; makes the answer what it is afterwards, or says no.
    pub then: fn(&[Val], &[Val], &mut [Row]) -> bool,
}

impl Ahead {
    /// Whether a change may touch a row the answer rests on.
    fn is_reached(&self, touch: &Touch, params: &[Val]) -> bool {
        let rows = self.rests_on.iter().filter(|(table, _)| touch.table == Some(table));
        rows.into_iter().any(|(_, values)| !values.iter().any(|(column, value)| touch.avoids(params, column, value)))
    }
}

/// Questions that were asked early, with their answers as long as they hold.
#[derive(Debug, Default)]
pub(crate) struct Foresight {
    answers: Vec<Option<(Ahead, Vec<Row>)>>,
    by_question: HashMap<Text, HashMap<Vec<Val>, usize>>,
    by_table: HashMap<&'static str, Vec<usize>>,
}

impl Foresight {
    /// Forgets every answer: what comes next is another transaction.
    pub fn clear(&mut self) {
        self.answers.clear();
        self.by_question.clear();
        self.by_table.clear();
    }

    /// The answer, if it still holds.
    pub fn answer(&self, sql: &'static str, params: &[Val]) -> Option<Vec<Row>> {
        let place = *self.by_question.get(&Text(sql))?.get(params)?;
        let (_, rows) = self.answers.get(place)?.as_ref()?;
        Some(rows.clone())
    }

    /// Keeps an answer.
    pub fn keep(&mut self, ahead: Ahead, rows: Vec<Row>) {
        let place = self.answers.len();
        for (table, _) in &ahead.rests_on {
            self.by_table.entry(table).or_default().push(place);
        }
        self.by_question.entry(Text(ahead.sql)).or_default().insert(ahead.params.clone(), place);
        self.answers.push(Some((ahead, rows)));
    }

    /// A change is made: whatever it could touch no longer holds.
    pub fn touch(&mut self, touch: &Touch, sql: &str, params: &[Val]) {
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

    fn used(agent: &str) -> Ahead {
        let rests_on = vec![("counters", vec![("kind", Val::from("batch")), ("agent", Val::from(agent))])];
        Ahead { sql: USED, params: params!["batch", agent], rests_on, follows: None }
    }

    fn hold(id: i64) -> Ahead {
        let rests_on = vec![("holds", vec![("id", Val::Int(id))]), ("contents", vec![("hold", Val::Int(id))])];
        Ahead { sql: "SELECT state FROM holds WHERE id = ?1", params: params![id], rests_on, follows: None }
    }

    /// Which of the answers survive a change.
    fn after(aheads: &[Ahead], sql: &'static str, params: Vec<Val>) -> Vec<bool> {
        let mut foresight = Foresight::default();
        aheads.iter().for_each(|ahead| foresight.keep(ahead.clone(), vec![Row(vec![Val::Int(7)])]));
        assert!(aheads.iter().all(|ahead| foresight.answer(ahead.sql, &ahead.params).is_some()));
        foresight.touch(&Touch::read(sql), sql, &params);
        aheads.iter().map(|ahead| foresight.answer(ahead.sql, &ahead.params).is_some()).collect()
    }

    #[test]
    fn counting_for_one_agent_leaves_what_is_known_of_another() {
        assert_eq!(after(&[used("a"), used("b")], BUMP, params!["batch", "a", 1_i64, 1_i64]), [false, true]);
        assert_eq!(after(&[used("a"), used("b")], BUMP, params!["rate", "a", 1_i64, 1_i64]), [true, true]);
    }

    #[test]
    fn an_answer_that_follows_a_change_is_kept_and_one_that_does_not_is_asked_again() {
        let then: fn(&[Val], &[Val], &mut [Row]) -> bool = |asked, made, rows| match (made, rows) {
            ([.., Val::Int(weight)], [Row(sum)]) if asked.get(1) == made.get(1) && *weight < 5 => {
                *sum = vec![Val::Int(7 + weight)];
                true
            }
            _ => false,
        };
        let mut foresight = Foresight::default();
        foresight.keep(Ahead { follows: Some(Follows { sql: BUMP, then }), ..used("a") }, vec![Row(params![7_i64])]);
        foresight.touch(&Touch::read(BUMP), BUMP, &params!["batch", "a", 1_i64, 2_i64]);
        let answer = foresight.answer(USED, &params!["batch", "a"]).unwrap();
        assert_eq!(answer.first().unwrap().0, params![9_i64]);
        foresight.touch(&Touch::read(BUMP), BUMP, &params!["batch", "a", 1_i64, 6_i64]);
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
