//! The small SQL layer under everything else: values, rows, and a transaction to query.
//!
//! One text serves both engines. Parameters are numbered `?1`; `/*lock*/` and `/*skip*/` at the end of a query are row
//! locks on PostgreSQL and nothing on SQLite, which has only one writer.

use crate::error::StoreError;

/// A value of a parameter or a column.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum SqlValue {
    Null,
    Int(i64),
    Text(String),
    Blob(Vec<u8>),
}

/// A row that a query returns.
#[derive(Debug, Clone)]
pub(crate) struct SqlRow(pub Vec<SqlValue>);

/// A change to be made when the use case has decided everything.
#[derive(Debug)]
pub(crate) struct SqlWrite {
    pub sql: &'static str,
    pub params: Vec<SqlValue>,
    /// Whether exactly one row must change: a compare-and-set.
    pub exactly_one: bool,
}

/// One of our own statements as a key: compared by its length and its end first, which costs less than comparing all of
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StatementText(pub &'static str);

impl std::hash::Hash for StatementText {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_usize(self.0.len());
        state.write(self.0.as_bytes().last_chunk::<16>().map_or(&[], |end| end));
    }
}

/// An open transaction.
pub(crate) trait StoreTx {
    /// Whether other nodes may write to the same rows meanwhile.
    const IS_SHARED: bool;
    /// Writes of the last minutes that may have this digest, where that is known without a query.
    fn recent_like(&self, digest: sluice_core::Digest) -> Option<Vec<sluice_core::HoldId>> {
        let _nobody_kept_it = digest;
        None
    }
    /// The rows that a query returns.
    async fn rows(&mut self, sql: &'static str, params: &[SqlValue]) -> Result<Vec<SqlRow>, StoreError>;
    /// The same query with many sets of parameters, in one batch where that is faster; answers in order.
    async fn rows_each(&mut self, sql: &'static str, each: &[Vec<SqlValue>]) -> Result<Vec<Vec<SqlRow>>, StoreError> {
        let mut found = Vec::with_capacity(each.len());
        for params in each {
            found.push(self.rows(sql, params).await?);
        }
        Ok(found)
    }
    /// Makes the changes of one use case, in order.
    async fn apply_writes(&mut self, writes: Vec<SqlWrite>) -> Result<(), StoreError>;
}

macro_rules! val_from {
    ($($type:ty => |$v:ident| $made:expr;)*) => {$(
        impl From<$type> for SqlValue {
            fn from($v: $type) -> Self { $made }
        }
    )*};
}

val_from! {
    i64 => |v| Self::Int(v);
    u32 => |v| Self::Int(i64::from(v));
    // Counters and versions start at zero and grow by one; they do not reach 2^63.
    u64 => |v| Self::Int(i64::try_from(v).unwrap_or(i64::MAX));
    &str => |v| Self::Text(v.to_owned());
    String => |v| Self::Text(v);
    Vec<u8> => |v| Self::Blob(v);
    &[u8] => |v| Self::Blob(v.to_vec());
    u128 => |v| Self::Blob(v.to_be_bytes().to_vec());
    sluice_core::UtcMillis => |v| Self::Int(v.as_millis());
    sluice_core::Millis => |v| Self::from(v.as_millis());
    sluice_core::Digest => |v| Self::Blob(v.to_bytes().to_vec());
    sluice_core::audit::AuditHash => |v| Self::Blob(v.0.to_vec());
    sluice_core::HoldId => |v| Self::from(v.bits());
    sluice_core::CallId => |v| Self::from(v.bits());
    sluice_core::ApprovalId => |v| Self::from(v.bits());
    sluice_core::ids::SessionId => |v| Self::from(v.bits());
    sluice_core::ids::AllowanceId => |v| Self::from(v.bits());
    sluice_core::ids::JobId => |v| Self::from(v.bits());
    sluice_core::ids::RollbackId => |v| Self::from(v.bits());
    sluice_core::ids::MessageId => |v| Self::from(v.bits());
    sluice_core::ids::KeyId => |v| Self::from(v.bits());
    &sluice_core::AgentName => |v| Self::from(v.as_str());
    &sluice_core::ServiceName => |v| Self::from(v.as_str());
    &sluice_core::CapabilityName => |v| Self::from(v.as_str());
    &sluice_core::NodeName => |v| Self::from(v.as_str());
    &sluice_core::Actor => |v| Self::Text(v.to_string());
}

impl<T: Into<SqlValue>> From<Option<T>> for SqlValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Reads the columns of a row from left to right; a value that does not fit makes the row invalid.
pub(crate) struct RowReader {
    table: &'static str,
    values: std::vec::IntoIter<SqlValue>,
}

impl SqlRow {
    pub fn of(self, table: &'static str) -> RowReader {
        RowReader { table, values: self.0.into_iter() }
    }
}

impl RowReader {
    pub fn impossible(&self, detail: &'static str) -> StoreError {
        StoreError::Impossible { table: self.table, detail }
    }

    fn next(&mut self) -> Result<SqlValue, StoreError> {
        self.values.next().ok_or(StoreError::Impossible { table: self.table, detail: "a column is missing" })
    }

    pub fn maybe_int(&mut self) -> Result<Option<i64>, StoreError> {
        match self.next()? {
            SqlValue::Null => Ok(None),
            SqlValue::Int(value) => Ok(Some(value)),
            SqlValue::Text(_) | SqlValue::Blob(_) => Err(self.impossible("a number is not a number")),
        }
    }

    pub fn maybe_text(&mut self) -> Result<Option<String>, StoreError> {
        match self.next()? {
            SqlValue::Null => Ok(None),
            SqlValue::Text(value) => Ok(Some(value)),
            SqlValue::Int(_) | SqlValue::Blob(_) => Err(self.impossible("a text is not a text")),
        }
    }

    pub fn maybe_blob(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        match self.next()? {
            SqlValue::Null => Ok(None),
            SqlValue::Blob(value) => Ok(Some(value)),
            SqlValue::Int(_) | SqlValue::Text(_) => Err(self.impossible("bytes are not bytes")),
        }
    }

    pub fn int(&mut self) -> Result<i64, StoreError> {
        self.maybe_int()?.ok_or_else(|| self.impossible("a number is missing"))
    }

    pub fn text(&mut self) -> Result<String, StoreError> {
        self.maybe_text()?.ok_or_else(|| self.impossible("a text is missing"))
    }

    pub fn blob(&mut self) -> Result<Vec<u8>, StoreError> {
        self.maybe_blob()?.ok_or_else(|| self.impossible("bytes are missing"))
    }

    pub fn count<N: TryFrom<i64>>(&mut self) -> Result<N, StoreError> {
        let value = self.int()?;
        N::try_from(value).map_err(|_| self.impossible("a count is out of range"))
    }

    pub fn maybe_time(&mut self) -> Result<Option<sluice_core::UtcMillis>, StoreError> {
        Ok(self.maybe_int()?.map(sluice_core::UtcMillis::from_millis))
    }

    pub fn time(&mut self) -> Result<sluice_core::UtcMillis, StoreError> {
        self.int().map(sluice_core::UtcMillis::from_millis)
    }

    pub fn maybe_bits(&mut self) -> Result<Option<u128>, StoreError> {
        match self.maybe_blob()? {
            None => Ok(None),
            Some(bytes) => {
                let bytes = bytes.try_into().map_err(|_| self.impossible("an id does not have 16 bytes"))?;
                Ok(Some(u128::from_be_bytes(bytes)))
            }
        }
    }

    pub fn bits(&mut self) -> Result<u128, StoreError> {
        self.maybe_bits()?.ok_or_else(|| self.impossible("an id is missing"))
    }

    pub fn parsed<T: std::str::FromStr>(&mut self) -> Result<T, StoreError> {
        let text = self.text()?;
        text.parse().map_err(|_| self.impossible("an unknown word"))
    }

    pub fn maybe_parsed<T: std::str::FromStr>(&mut self) -> Result<Option<T>, StoreError> {
        match self.maybe_text()? {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| self.impossible("an unknown word")),
        }
    }
}

pub(crate) fn list<const N: usize>(values: [SqlValue; N]) -> Vec<SqlValue> {
    values.into()
}

/// Builds a parameter list from anything that is a value.
macro_rules! params {
    ($($value:expr),* $(,)?) => { crate::sql::list([$(crate::sql::SqlValue::from($value)),*]) };
}
pub(crate) use params;

/// Converts one of our statements to PostgreSQL.
pub(crate) fn for_postgres(sql: &str) -> String {
    let mut text = sql.replace("/*lock*/", "FOR UPDATE").replace("/*skip*/", "FOR UPDATE SKIP LOCKED");
    // Only `?` followed by a digit is a parameter; our statements have no other `?`.
    for digit in '0'..='9' {
        text = text.replace(&format!("?{digit}"), &format!("${digit}"));
    }
    text
}

/// Converts a migration to PostgreSQL.
pub(crate) fn schema_for_postgres(sql: &str) -> String {
    for_postgres(sql)
        .replace(") STRICT, WITHOUT ROWID;", ");")
        .replace(" INTEGER", " BIGINT")
        .replace(" BLOB", " BYTEA")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_reads_for_both_engines() {
        assert_eq!(
            for_postgres("SELECT a FROM t WHERE b = ?1 AND c = ?12 /*lock*/"),
            "SELECT a FROM t WHERE b = $1 AND c = $12 FOR UPDATE"
        );
        assert_eq!(
            schema_for_postgres("CREATE TABLE t (a INTEGER NOT NULL, b BLOB) STRICT, WITHOUT ROWID;"),
            "CREATE TABLE t (a BIGINT NOT NULL, b BYTEA);"
        );
    }

    #[test]
    fn a_column_of_the_wrong_kind_is_an_impossible_row() {
        let mut row = SqlRow(vec![SqlValue::Text("x".into()), SqlValue::Int(-1), SqlValue::Blob(vec![1])]).of("holds");
        assert_eq!(row.int().unwrap_err().code(), "store.damaged");
        assert_eq!(row.count::<u32>().unwrap_err().code(), "store.damaged");
        assert_eq!(row.bits().unwrap_err().code(), "store.damaged");
        assert_eq!(row.text().unwrap_err().code(), "store.damaged");
    }
}
