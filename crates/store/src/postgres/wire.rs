//! The wire format: queries and changes on their way, values and rows, and errors.

use futures_util::future::try_join_all;
use tokio_postgres::types::{IsNull, ToSql, Type, private::BytesMut};
use tokio_postgres::{Client, Statement, error::SqlState};

use super::batching::{self, StatementBatch};
use crate::error::StoreError;
use crate::sql::{SqlRow, SqlValue};

/// A query on its way.
pub(super) struct PreparedQuery<'a> {
    pub one: Statement,
    /// The batched form, if there are many sets of parameters and the query has such a form.
    pub many: Option<Statement>,
    pub each: Vec<&'a [SqlValue]>,
}

impl PreparedQuery<'_> {
    /// The rows of each answer, in order.
    pub async fn ask(&self, client: &Client) -> Result<Vec<Vec<SqlRow>>, StoreError> {
        let Some(many) = &self.many else {
            let one = self.each.iter().map(|params| async {
                let values: Vec<_> = params.iter().map(borrowed).collect();
                client.query(&self.one, &values).await
            });
            let answers = try_join_all(one).await.map_err(fault)?;
            return answers.into_iter().map(|rows| rows.into_iter().map(decode).collect()).collect();
        };
        let columns = batching::columns(&self.each);
        let values: Vec<_> = columns.iter().map(borrowed).collect();
        let mut found: Vec<Vec<SqlRow>> = self.each.iter().map(|_| Vec::new()).collect();
        for row in client.query(many, &values).await.map_err(fault)? {
            let SqlRow(mut values) = decode(row)?;
            let place = if values.is_empty() { SqlValue::Null } else { values.remove(0) };
            let asked = match place {
                SqlValue::Int(place) => usize::try_from(place - 1).ok().and_then(|place| found.get_mut(place)),
                SqlValue::Null | SqlValue::Text(_) | SqlValue::Blob(_) => None,
            };
            let strange = StoreError::Impossible { table: "answers", detail: "an answer without a query" };
            asked.ok_or(strange)?.push(SqlRow(values));
        }
        Ok(found)
    }
}

/// Changes on their way.
pub(super) struct PreparedBatch<'a> {
    pub one: Statement,
    pub many: Option<Statement>,
    pub batch: StatementBatch<'a>,
}

impl PreparedBatch<'_> {
    async fn make(&self, client: &Client) -> Result<(), StoreError> {
        let exact = |hit: u64, wanted: usize| match usize::try_from(hit) {
            Ok(hit) if hit == wanted => Ok(()),
            _ if self.batch.exactly_one => Err(StoreError::Conflict),
            _ => Ok(()),
        };
        let Some(many) = &self.many else {
            let one = self.batch.rows.iter().map(|params| async {
                let values: Vec<_> = params.iter().map(borrowed).collect();
                exact(client.execute(&self.one, &values).await.map_err(fault)?, 1)
            });
            return try_join_all(one).await.map(drop);
        };
        // Each row is hit by at most one of them, so if the counts match, all of them hit.
        let columns = batching::columns(&self.batch.rows);
        let values: Vec<_> = columns.iter().map(borrowed).collect();
        exact(client.execute(many, &values).await.map_err(fault)?, self.batch.rows.len())
    }
}

pub(super) async fn make_all(client: &Client, changes: &[PreparedBatch<'_>]) -> Result<(), StoreError> {
    try_join_all(changes.iter().map(|change| change.make(client))).await.map(drop)
}

fn borrowed<T: ToSql + Sync>(value: &T) -> &(dyn ToSql + Sync) {
    value
}

impl ToSql for SqlValue {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(number) if *kind == Type::INT4 => i32::try_from(*number)?.to_sql(kind, out),
            Self::Int(number) => number.to_sql(kind, out),
            Self::Text(text) => text.to_sql(kind, out),
            Self::Blob(bytes) => bytes.to_sql(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        [Type::INT8, Type::INT4, Type::TEXT, Type::VARCHAR, Type::BYTEA].contains(kind)
    }

    tokio_postgres::types::to_sql_checked!();
}

pub(super) fn decode(row: tokio_postgres::Row) -> Result<SqlRow, StoreError> {
    let values = row.columns().iter().enumerate().map(|(at, column)| {
        let kind = column.type_();
        Ok(if *kind == Type::INT8 {
            row.try_get::<_, Option<i64>>(at).map_err(fault)?.map_or(SqlValue::Null, SqlValue::Int)
        } else if *kind == Type::INT4 {
            row.try_get::<_, Option<i32>>(at).map_err(fault)?.map_or(SqlValue::Null, |n| SqlValue::Int(i64::from(n)))
        } else if *kind == Type::BYTEA {
            row.try_get::<_, Option<Vec<u8>>>(at).map_err(fault)?.map_or(SqlValue::Null, SqlValue::Blob)
        } else {
            row.try_get::<_, Option<String>>(at).map_err(fault)?.map_or(SqlValue::Null, SqlValue::Text)
        })
    });
    values.collect::<Result<_, StoreError>>().map(SqlRow)
}

/// Converts the driver's errors into ours. Server texts may quote values, so they stay internal.
pub(super) fn fault(error: tokio_postgres::Error) -> StoreError {
    match error.code() {
        Some(code) if *code == SqlState::DISK_FULL => StoreError::DiskFull,
        Some(code) if *code == SqlState::READ_ONLY_SQL_TRANSACTION => StoreError::ReadOnly,
        Some(code) if *code == SqlState::DATA_CORRUPTED || *code == SqlState::INDEX_CORRUPTED => {
            StoreError::Damaged { detail: "the server reports corruption".into() }
        }
        Some(code)
            if [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED, SqlState::UNIQUE_VIOLATION]
                .contains(code) =>
        {
            StoreError::Conflict
        }
        Some(code)
            if [
                SqlState::ADMIN_SHUTDOWN,
                SqlState::CRASH_SHUTDOWN,
                SqlState::CANNOT_CONNECT_NOW,
                SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
            ]
            .contains(code) =>
        {
            StoreError::Unavailable(Box::new(error))
        }
        None => StoreError::Unavailable(Box::new(error)),
        Some(_) => StoreError::Engine(Box::new(error)),
    }
}
