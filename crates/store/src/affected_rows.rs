//! Which rows a change can touch, read from its SQL.
//!
//! Takes one of our own statements; gives its table and what is known of the rows it touches. Promise: for SQL of an
//! unknown form, nothing is claimed.

use crate::sql::SqlValue;

/// Which rows a change can touch: those of one table that have certain values.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct AffectedRows {
    /// `None` for SQL of an unknown form: then it may touch anything.
    pub table: Option<&'static str>,
    /// The form of the change.
    pub verb: StatementKind,
    values: Vec<(&'static str, StatementValue)>,
}

/// The forms of a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum StatementKind {
    /// A new row, or nothing.
    Insert,
    /// A new row, or a change of the row with its key.
    Upsert,
    /// New values in existing rows.
    Update,
    Delete,
    #[default]
    Unknown,
}

/// A value in the SQL of a change.
#[derive(Debug, Clone, PartialEq)]
enum StatementValue {
    Param(usize),
    Literal(SqlValue),
}

impl AffectedRows {
    /// Reads the SQL of a change.
    pub fn read(sql: &'static str) -> Self {
        Self::insert(sql).or_else(|| Self::update(sql)).or_else(|| Self::delete(sql)).unwrap_or_default()
    }

    /// `INSERT INTO t (a, b) VALUES (?1, 'x')`. With `ON CONFLICT (a)` an existing row may be changed instead, of which
    /// only the columns in those brackets are known.
    fn insert(sql: &'static str) -> Option<Self> {
        let (table, rest) = sql.strip_prefix("INSERT INTO ")?.split_once(" (")?;
        let (columns, rest) = rest.split_once(") VALUES (")?;
        let (values, rest) = rest.split_once(')')?;
        let (columns, values): (Vec<_>, Vec<_>) = (columns.split(", ").collect(), values.split(", ").collect());
        if columns.len() != values.len() {
            return None;
        }
        let conflict = match rest.trim() {
            "" => None,
            rest => Some(rest.strip_prefix("ON CONFLICT (")?.split_once(')')?.0.split(", ").collect::<Vec<_>>()),
        };
        let known = |column: &str| conflict.as_ref().is_none_or(|columns| columns.contains(&column));
        let values = columns.into_iter().zip(values).filter(|(column, _)| known(column));
        let values = values.filter_map(|(column, value)| Some((column, given(value)?))).collect();
        let verb = if conflict.is_some() { StatementKind::Upsert } else { StatementKind::Insert };
        Some(Self { table: Some(table), verb, values })
    }

    /// `UPDATE t SET a = ?2 WHERE b = ?1`. A column that is set says nothing about the row.
    fn update(sql: &'static str) -> Option<Self> {
        let (table, rest) = sql.strip_prefix("UPDATE ")?.split_once(" SET ")?;
        let (set, condition) = rest.split_once(" WHERE ")?;
        let set: Vec<&str> =
            set.split(", ").filter_map(|part| part.split_once(" = ").map(|(column, _)| column)).collect();
        let values = conditions(condition)?.filter(|(column, _)| !set.contains(column)).collect();
        Some(Self { table: Some(table), verb: StatementKind::Update, values })
    }

    /// `DELETE FROM t WHERE a = ?1`.
    fn delete(sql: &'static str) -> Option<Self> {
        let (table, condition) = sql.strip_prefix("DELETE FROM ")?.split_once(" WHERE ")?;
        Some(Self { table: Some(table), verb: StatementKind::Delete, values: conditions(condition)?.collect() })
    }

    /// Whether it provably touches only rows with another value in this column.
    pub fn avoids(&self, params: &[SqlValue], column: &str, value: &SqlValue) -> bool {
        let own = self.values.iter().find(|(name, _)| *name == column);
        own.and_then(|(_, given)| given.value(params)).is_some_and(|own| own != value)
    }

    /// What is known of the rows it touches. Two changes with the same SQL that differ in this touch different rows.
    pub fn values<'a>(&'a self, params: &'a [SqlValue]) -> Vec<&'a SqlValue> {
        self.values.iter().filter_map(|(_, given)| given.value(params)).collect()
    }
}

impl StatementValue {
    fn value<'a>(&'a self, params: &'a [SqlValue]) -> Option<&'a SqlValue> {
        match self {
            Self::Param(place) => params.get(*place),
            Self::Literal(value) => Some(value),
        }
    }
}

/// `a = ?1 AND b = 'x'`; other comparisons are ignored. `None` where there is an `OR`.
fn conditions(text: &'static str) -> Option<impl Iterator<Item = (&'static str, StatementValue)>> {
    let plain = !text.contains(" OR ") && !text.contains('(');
    plain.then(|| {
        text.split(" AND ").filter_map(|part| {
            let (column, value) = part.split_once(" = ")?;
            Some((column, given(value)?))
        })
    })
}

fn given(text: &str) -> Option<StatementValue> {
    let text = text.trim();
    if let Some(number) = text.strip_prefix('?') {
        return Some(StatementValue::Param(number.parse::<usize>().ok()?.checked_sub(1)?));
    }
    if let Some(word) = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        return (!word.contains('\'')).then(|| StatementValue::Literal(SqlValue::from(word)));
    }
    text.parse::<i64>().ok().map(|number| StatementValue::Literal(SqlValue::Int(number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::params;

    #[test]
    fn an_upsert_is_known_by_the_columns_it_collides_on() {
        let text = "INSERT INTO t (a, b, c) VALUES (?1, ?2, 'x') ON CONFLICT (a) DO UPDATE SET b = excluded.b";
        let touch = AffectedRows::read(text);
        assert_eq!((touch.table, touch.verb), (Some("t"), StatementKind::Upsert));
        assert_eq!(touch.values(&params![1_i64, 2_i64]), [&SqlValue::Int(1)]);
    }

    #[test]
    fn a_compare_and_set_is_known_by_what_it_does_not_set() {
        let touch = AffectedRows::read("UPDATE t SET state = ?3, version = ?4 WHERE id = ?1 AND version = ?2");
        assert_eq!((touch.table, touch.verb), (Some("t"), StatementKind::Update));
        assert_eq!(touch.values(&params![1_i64, 2_i64, "x", 3_i64]), [&SqlValue::Int(1)]);
    }

    #[test]
    fn nothing_is_claimed_about_other_forms() {
        for text in [
            "INSERT INTO t SELECT 1",
            "INSERT INTO t (a, b) VALUES (f(?1, ?2), ?3)",
            "UPDATE t SET a = 1",
            "UPDATE t SET a = 1 WHERE b = ?1 OR c = ?2",
            "DELETE FROM t",
            "TRUNCATE t",
        ] {
            assert_eq!(AffectedRows::read(text), AffectedRows::default(), "{text}");
        }
    }
}
