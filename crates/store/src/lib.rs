//! The only place with SQL.
