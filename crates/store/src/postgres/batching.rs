//! Batched statements: the same statement for many rows, sent as one.
//!
//! Takes our own statements with many lists of values; gives one text that reads the values from arrays. Promise: the
//! result is the same as running them one after the other. Changes of one table keep their order; changes of different
//! tables are independent and may be reordered.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use tokio_postgres::types::Type;

use crate::affected_rows::{AffectedRows, StatementKind};
use crate::sql::{SqlValue, SqlWrite, StatementText, for_postgres};

/// What each change does, by its SQL.
#[derive(Debug, Default)]
pub(super) struct AffectedRowsCache(HashMap<StatementText, AffectedRows>);

impl AffectedRowsCache {
    pub fn of(&mut self, sql: &'static str) -> &AffectedRows {
        self.0.entry(StatementText(sql)).or_insert_with(|| AffectedRows::read(sql))
    }
}

/// Changes with the same SQL, in order, that all touch different rows.
#[derive(Debug)]
pub(super) struct StatementBatch<'a> {
    pub sql: &'static str,
    pub exactly_one: bool,
    pub rows: Vec<&'a [SqlValue]>,
}

/// Groups changes as far as that makes no difference: of changes with the same SQL, the first change of a row goes into
/// the first batch, the second into the second.
pub(super) fn batches<'a>(writes: &'a [SqlWrite], touches: &mut AffectedRowsCache) -> Vec<StatementBatch<'a>> {
    let mut batches: Vec<StatementBatch<'a>> = Vec::new();
    // Which rows each batch touches. A hash collision only puts two changes into different batches.
    let (prints, mut met): (_, Vec<HashSet<u64>>) = (RandomState::new(), Vec::new());
    // The newest batches of each table, all with the same SQL.
    let mut open: HashMap<&'static str, Vec<usize>> = HashMap::new();
    for write in writes {
        let SqlWrite { sql, params, exactly_one } = write;
        let touch = touches.of(sql);
        let row = match touch.verb {
            StatementKind::Insert => None,
            StatementKind::Upsert | StatementKind::Update | StatementKind::Delete | StatementKind::Unknown => {
                Some(prints.hash_one(touch.values(params)))
            }
        };
        let is_alike = |batch: &StatementBatch<'_>| batch.sql == *sql && batch.exactly_one == *exactly_one;
        let mut run = touch.table.map(|table| open.entry(table).or_default());
        if let Some(run) = &mut run {
            let is_old = run.last().is_some_and(|last| batches.get(*last).is_none_or(|batch| !is_alike(batch)));
            if is_old {
                run.clear();
            }
            let is_free = |at: &usize| met.get_mut(*at).is_some_and(|met| row.is_none_or(|row| met.insert(row)));
            if let Some(batch) = run.iter().copied().find(is_free).and_then(|at| batches.get_mut(at)) {
                batch.rows.push(params);
                continue;
            }
        }
        match run {
            Some(run) => run.push(batches.len()),
            // It may touch anything: later changes must stay behind it.
            None => open.clear(),
        }
        batches.push(StatementBatch { sql, exactly_one: *exactly_one, rows: vec![params] });
        met.push(row.into_iter().collect());
    }
    batches
}

/// The SQL that makes many changes at once, if the single change has a form that allows it.
pub(super) fn change(sql: &'static str, verb: StatementKind, kinds: &[Type]) -> Option<String> {
    let rows = format!("UNNEST({}) AS q({})", arrays(kinds)?, names(kinds));
    match verb {
        StatementKind::Insert | StatementKind::Upsert => {
            let (columns, rest) = sql.split_once(" VALUES (")?;
            let (values, rest) = rest.split_once(')')?;
            Some(format!("{columns} SELECT {} FROM {rows}{}", from_row(values), from_row(rest)))
        }
        StatementKind::Update => {
            let (set, condition) = sql.split_once(" WHERE ")?;
            Some(format!("{} FROM {rows} WHERE {}", from_row(set), from_row(condition)))
        }
        StatementKind::Delete | StatementKind::Unknown => None,
    }
}

/// The SQL for many queries at once: each row of the result begins with the number of its query, from one. The inner
/// query runs for one query after the other, so rows are locked in that order.
pub(super) fn question(sql: &'static str, kinds: &[Type]) -> Option<String> {
    let (arrays, names) = (arrays(kinds)?, names(kinds));
    let inner = from_row(&for_postgres_locks(sql));
    Some(format!(
        "SELECT q.place, x.* FROM UNNEST({arrays}) WITH ORDINALITY AS q({names}, place) CROSS JOIN LATERAL ({inner}) AS x"
    ))
}

/// The values of all rows, column by column.
pub(super) fn columns<'a>(rows: &[&'a [SqlValue]]) -> Vec<Vec<&'a SqlValue>> {
    let width = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    (0..width).map(|column| rows.iter().filter_map(|row| row.get(column)).collect()).collect()
}

/// Row locks in PostgreSQL's syntax; parameters are left as they are.
fn for_postgres_locks(sql: &str) -> String {
    for_postgres(&sql.replace('?', "\u{1}")).replace('\u{1}', "?")
}

/// `?3` becomes the third value of the row.
fn from_row(text: &str) -> String {
    // Our SQL has no `?` that is not a parameter.
    text.replace('?', "q.p")
}

fn arrays(kinds: &[Type]) -> Option<String> {
    let known = [Type::INT8, Type::INT4, Type::TEXT, Type::BYTEA];
    let array =
        |(place, kind): (usize, &Type)| known.contains(kind).then(|| format!("${}::{}[]", place + 1, kind.name()));
    let arrays: Option<Vec<String>> = kinds.iter().enumerate().map(array).collect();
    arrays.filter(|arrays| !arrays.is_empty()).map(|arrays| arrays.join(", "))
}

fn names(kinds: &[Type]) -> String {
    (1..=kinds.len()).map(|place| format!("p{place}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::params;

    const HELD: &str = "INSERT INTO holds (id, state) VALUES (?1, 'held')";
    const MOVED: &str = "UPDATE holds SET state = ?3, version = ?4 WHERE id = ?1 AND version = ?2";
    const BUMP: &str = "INSERT INTO counters (agent, weight) VALUES (?1, ?2) \
         ON CONFLICT (agent) DO UPDATE SET weight = counters.weight + excluded.weight";

    fn write(sql: &'static str, params: Vec<SqlValue>) -> SqlWrite {
        SqlWrite { sql, params, exactly_one: sql == MOVED }
    }

    /// The SQL of the batches and how many rows each has.
    fn put_together(writes: &[SqlWrite]) -> Vec<(&'static str, usize)> {
        batches(writes, &mut AffectedRowsCache::default()).iter().map(|batch| (batch.sql, batch.rows.len())).collect()
    }

    #[test]
    fn changes_of_different_tables_pass_each_other() {
        let writes = [
            write(HELD, params![1_i64]),
            write(BUMP, params!["a", 1_i64]),
            write(HELD, params![2_i64]),
            write(BUMP, params!["b", 1_i64]),
        ];
        assert_eq!(put_together(&writes), [(HELD, 2), (BUMP, 2)]);
    }

    #[test]
    fn changes_of_one_table_keep_their_order() {
        let writes = [
            write(HELD, params![1_i64]),
            write(MOVED, params![1_i64, 1_i64, "ready", 2_i64]),
            write(HELD, params![2_i64]),
        ];
        assert_eq!(put_together(&writes), [(HELD, 1), (MOVED, 1), (HELD, 1)]);
    }

    #[test]
    fn a_row_is_met_once_in_a_batch() {
        let twice = [
            write(MOVED, params![1_i64, 1_i64, "ready", 2_i64]),
            write(MOVED, params![2_i64, 1_i64, "ready", 2_i64]),
            write(MOVED, params![1_i64, 2_i64, "done", 3_i64]),
        ];
        assert_eq!(put_together(&twice), [(MOVED, 2), (MOVED, 1)]);
        let bumps = |agents: [&str; 6]| agents.map(|agent| write(BUMP, params![agent, 1_i64]));
        assert_eq!(put_together(&bumps(["a", "a", "b", "b", "c", "c"])), [(BUMP, 3), (BUMP, 3)]);
        assert_eq!(put_together(&bumps(["a", "a", "a", "b", "a", "b"])), [(BUMP, 2), (BUMP, 2), (BUMP, 1), (BUMP, 1)]);
    }

    #[test]
    fn nothing_passes_a_change_of_an_unknown_form() {
        const UNKNOWN: &str = "TRUNCATE holds";
        let writes = [write(HELD, params![1_i64]), write(UNKNOWN, params![]), write(HELD, params![2_i64])];
        assert_eq!(put_together(&writes), [(HELD, 1), (UNKNOWN, 1), (HELD, 1)]);
    }

    #[test]
    fn one_text_serves_many_rows() {
        let kinds = [Type::BYTEA, Type::INT8, Type::TEXT, Type::INT8];
        assert_eq!(
            change(MOVED, StatementKind::Update, &kinds).unwrap(),
            "UPDATE holds SET state = q.p3, version = q.p4 FROM UNNEST($1::bytea[], $2::int8[], $3::text[], $4::int8[]) \
             AS q(p1, p2, p3, p4) WHERE id = q.p1 AND version = q.p2"
        );
        assert_eq!(
            change(BUMP, StatementKind::Upsert, &[Type::TEXT, Type::INT8]).unwrap(),
            "INSERT INTO counters (agent, weight) SELECT q.p1, q.p2 FROM UNNEST($1::text[], $2::int8[]) AS q(p1, p2) \
             ON CONFLICT (agent) DO UPDATE SET weight = counters.weight + excluded.weight"
        );
        assert_eq!(
            question("SELECT a FROM t WHERE b = ?1 /*lock*/", &[Type::TEXT]).unwrap(),
            "SELECT q.place, x.* FROM UNNEST($1::text[]) WITH ORDINALITY AS q(p1, place) \
             CROSS JOIN LATERAL (SELECT a FROM t WHERE b = q.p1 FOR UPDATE) AS x"
        );
        assert_eq!(question("SELECT a FROM t", &[]), None);
    }

    #[test]
    fn values_are_turned_from_rows_into_columns() {
        let (one, two) = (params![1_i64, "a"], params![2_i64, "b"]);
        assert_eq!(
            columns(&[&one, &two]),
            [[&SqlValue::Int(1), &SqlValue::Int(2)], [&SqlValue::from("a"), &SqlValue::from("b")]].map(Vec::from)
        );
    }
}
