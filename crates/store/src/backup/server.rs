//! Copies of a PostgreSQL database, made and restored by its own tools.
//!
//! Takes the URL of a database; gives a dump in the custom format of `pg_dump`, which reads in one snapshot. Promise:
//! no password is on a command line; a dump is restored completely or not at all, and only into a database that has no
//! tables.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use rusqlite::Connection;
use rusqlite::types::Value;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::create;
use crate::error::StoreError;
use crate::migrate;
use crate::postgres;
use crate::sqlite::{APPLICATION_ID, fault};

/// Tables of the audit log, its writers, and the vault's keys. A dump of any release has those of its schema.
const RECORD: [&str; 10] = [
    "nodes",
    "audit_entries",
    "audit_nodes",
    "checkpoints",
    "audit_pruned",
    "instances",
    "recovery_nodes",
    "vault_root",
    "secrets",
    "secret_versions",
];
/// The table that holds a server's schema version.
const SCHEMA: &str = "schema_version";
/// Longest tool message that is passed on.
const LONGEST_WORDS: u64 = 2_000;

/// The state of a server after a dump was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoredServer {
    /// The schema of the dump.
    pub schema: i64,
}

/// The version of a PostgreSQL tool, `pg_dump` or `pg_restore`, as found on the path.
///
/// # Errors
/// When it is not installed.
pub fn server_tool(name: &'static str) -> Result<String, StoreError> {
    let output =
        Command::new(name).arg("--version").stdin(Stdio::null()).output().map_err(|error| missing(name, error))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Dumps a database as it is at one moment. `to` must not exist yet. Returns the version of the tool.
///
/// # Errors
/// When the tool is missing or older than the server, or the server cannot be reached.
pub fn dump_server(url: &str, to: &Path) -> Result<String, StoreError> {
    let version = server_tool("pg_dump")?;
    create(to)?;
    let mut command = Command::new("pg_dump");
    command.args(["--format=custom", "--no-owner", "--no-privileges", "--serializable-deferrable", "--no-password"]);
    command.args(["--schema=public", "--file"]).arg(to).envs(surroundings(url)?);
    run(command, "pg_dump")?;
    super::sync(to)?;
    Ok(version)
}

/// Restores a dump into a database that has no tables yet.
///
/// # Errors
/// [`StoreError::Exists`] when there are tables; otherwise when the tool is missing or the dump cannot be restored.
pub async fn restore_server(url: &str, from: &Path) -> Result<RestoredServer, StoreError> {
    if postgres::has_tables(url).await? {
        return Err(StoreError::Exists { what: "table in the database" });
    }
    let mut command = Command::new("pg_restore");
    command.args(["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction", "--no-password"]);
    // The schema `public` exists already; its content comes from the dump.
    command.args(["--schema=public", "--dbname"]).arg(database(url)?).arg(from).envs(surroundings(url)?);
    run(command, "pg_restore")?;
    Ok(RestoredServer { schema: postgres::examine(url).await?.0 })
}

/// Removes every table from a database that [`restore_server`] has just filled. For a trial restore.
///
/// # Errors
/// When the server does not do it.
pub async fn empty_server(url: &str) -> Result<(), StoreError> {
    postgres::drop_tables(url).await
}

/// Reads the audit log from a dump into a database file, without a server: entries, checkpoints and heads, as they
/// were. `into` must not exist yet. Returns the schema of the dump.
///
/// # Errors
/// When the tool is missing, the dump is damaged, or its schema is newer than this release.
pub fn read_dump(dump: &Path, into: &Path) -> Result<i64, StoreError> {
    create(into)?;
    let mut schema = 0;
    tables(dump, &[SCHEMA], |_, columns, row| {
        if let Some(Some(version)) = columns.iter().position(|name| name == "version").and_then(|at| row.get(at)) {
            schema = schema.max(text(version)?.parse().map_err(|_| damaged("a version that is not a number"))?);
        }
        Ok(())
    })?;
    let mut database = Connection::open(into).map_err(fault)?;
    let known = migrate::missing(0)?.filter(|step| step.version <= schema);
    if schema > migrate::CURRENT {
        return Err(StoreError::NewerSchema { found: schema, known: migrate::CURRENT });
    }
    for step in known {
        database.execute_batch(step.sql).map_err(fault)?;
    }
    let marks = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {schema};");
    database.execute_batch(&marks).map_err(fault)?;
    let transaction = database.transaction().map_err(fault)?;
    let mut kinds: HashMap<String, Vec<(String, String)>> = HashMap::new();
    for table in RECORD {
        kinds.insert(table.to_owned(), columns_of(&transaction, table)?);
    }
    tables(dump, &RECORD, |table, columns, row| {
        let known = kinds.get(table).ok_or_else(|| damaged("an unexpected table"))?;
        let mut values = Vec::with_capacity(columns.len());
        for (name, value) in columns.iter().zip(row) {
            let kind = known.iter().find(|(column, _)| column == name).map(|(_, kind)| kind.as_str());
            values.push(read(kind.ok_or_else(|| damaged("an unknown column"))?, value.as_deref())?);
        }
        let places: Vec<String> = (1..=columns.len()).map(|n| format!("?{n}")).collect();
        let sql = format!("INSERT INTO {table} ({}) VALUES ({})", columns.join(", "), places.join(", "));
        let mut statement = transaction.prepare_cached(&sql).map_err(fault)?;
        statement.execute(rusqlite::params_from_iter(values)).map(drop).map_err(fault)
    })?;
    transaction.commit().map_err(fault)?;
    Ok(schema)
}

/// Columns of a table with their types; empty where the schema has no such table.
fn columns_of(database: &Connection, table: &str) -> Result<Vec<(String, String)>, StoreError> {
    let mut statement = database.prepare(&format!("PRAGMA table_info({table})")).map_err(fault)?;
    let rows = statement.query_map([], |row| Ok((row.get(1)?, row.get(2)?))).map_err(fault)?;
    rows.collect::<Result<_, _>>().map_err(fault)
}

/// Passes every row of the chosen tables of a dump on: table, columns, values.
fn tables(
    dump: &Path,
    names: &[&str],
    mut each: impl FnMut(&str, &[String], Vec<Option<Vec<u8>>>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut command = Command::new("pg_restore");
    command.args(["--data-only", "--file=-"]);
    command.args(names.iter().map(|name| format!("--table={name}")));
    command.arg(dump).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| missing("pg_restore", error))?;
    let read = child.stdout.take().map_or(Ok(()), |out| rows(BufReader::new(out), &mut each));
    // If reading ended early, the tool must not wait for a reader forever.
    if read.is_err() {
        drop(child.kill());
    }
    let mut said = String::new();
    if let Some(out) = child.stderr.take() {
        drop(out.take(LONGEST_WORDS).read_to_string(&mut said));
    }
    let status = child.wait().map_err(|error| StoreError::Unavailable(Box::new(error)))?;
    read?;
    if status.success() { Ok(()) } else { Err(damaged(&format!("pg_restore cannot read the dump: {}", words(&said)))) }
}

fn rows(
    mut from: impl BufRead,
    each: &mut impl FnMut(&str, &[String], Vec<Option<Vec<u8>>>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut table: Option<(String, Vec<String>)> = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = from.read_until(b'\n', &mut line).map_err(|error| StoreError::Unavailable(Box::new(error)))?;
        if length == 0 {
            return if table.is_none() { Ok(()) } else { Err(damaged("a table without an end")) };
        }
        let bytes = line.strip_suffix(b"\n").unwrap_or(&line);
        match &table {
            None => table = heading(bytes),
            Some(_) if bytes == b"\\." => table = None,
            Some((name, columns)) => {
                let row: Vec<_> = bytes.split(|byte| *byte == b'\t').map(unescaped).collect::<Result<_, _>>()?;
                if row.len() != columns.len() {
                    return Err(damaged("a row whose columns do not match its table"));
                }
                each(name, columns, row)?;
            }
        }
    }
}

/// Reads `COPY public.nodes (node, epoch) FROM stdin;`.
fn heading(line: &[u8]) -> Option<(String, Vec<String>)> {
    let line = std::str::from_utf8(line).ok()?.strip_prefix("COPY ")?.strip_suffix(") FROM stdin;")?;
    let (table, columns) = line.split_once(" (")?;
    let bare = |name: &str| name.trim_matches('"').to_owned();
    Some((bare(table.rsplit('.').next()?), columns.split(", ").map(bare).collect()))
}

/// One value in the text format of COPY; `None` for NULL.
fn unescaped(field: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    if field == b"\\N" {
        return Ok(None);
    }
    let mut value = Vec::with_capacity(field.len());
    let mut bytes = field.iter();
    while let Some(byte) = bytes.next() {
        value.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'b') => 8,
                Some(b'f') => 12,
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b't') => b'\t',
                Some(b'v') => 11,
                Some(b'\\') => b'\\',
                Some(_) | None => return Err(damaged("a malformed value")),
            },
            byte => *byte,
        });
    }
    Ok(Some(value))
}

fn read(kind: &str, value: Option<&[u8]>) -> Result<Value, StoreError> {
    let Some(value) = value else { return Ok(Value::Null) };
    Ok(match kind {
        "INTEGER" => Value::Integer(text(value)?.parse().map_err(|_| damaged("a malformed number"))?),
        "BLOB" => Value::Blob(bytes_of_hex(value).ok_or_else(|| damaged("malformed bytes"))?),
        _ => Value::Text(text(value)?.to_owned()),
    })
}

fn bytes_of_hex(value: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = value.strip_prefix(b"\\x")?.as_chunks::<2>();
    let digit = |c: u8| char::from(c).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

fn text(value: &[u8]) -> Result<&str, StoreError> {
    std::str::from_utf8(value).map_err(|_| damaged("a text that is not UTF-8"))
}

fn run(mut command: Command, name: &'static str) -> Result<(), StoreError> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| missing(name, error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = words(&String::from_utf8_lossy(&output.stderr));
    Err(StoreError::Unavailable(format!("{name} failed: {said}").into()))
}

/// The first lines that a tool printed, joined. PostgreSQL tools name hosts, users and tables, but no passwords.
fn words(said: &str) -> String {
    let line = said.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect::<Vec<_>>().join("; ");
    line.chars().filter(|c| !c.is_control()).take(400).collect()
}

/// SECURITY: anyone who can list processes sees arguments, so the password is passed in the environment.
fn surroundings(url: &str) -> Result<Vec<(&'static str, OsString)>, StoreError> {
    let config: Config = url.parse().map_err(|error| StoreError::Unavailable(Box::new(error)))?;
    let hosts = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let hosts = hosts.collect::<Vec<_>>().join(",");
    let ports = config.get_ports().iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let mut all: Vec<(&'static str, OsString)> = Vec::new();
    let mut set = |name, value: Option<String>| {
        all.extend(value.filter(|value| !value.is_empty()).map(|value| (name, OsString::from(value))));
    };
    set("PGHOST", Some(hosts));
    set("PGPORT", Some(ports));
    set("PGUSER", config.get_user().map(str::to_owned));
    set("PGPASSWORD", config.get_password().map(|password| String::from_utf8_lossy(password).into_owned()));
    set("PGDATABASE", Some(database(url)?));
    Ok(all)
}

/// The name of the database, as the server resolves it.
fn database(url: &str) -> Result<String, StoreError> {
    let config: Config = url.parse().map_err(|error| StoreError::Unavailable(Box::new(error)))?;
    let named = config.get_dbname().or(config.get_user()).map(str::to_owned);
    named.ok_or_else(|| StoreError::Unavailable("the URL names no database".into()))
}

fn missing(name: &'static str, error: std::io::Error) -> StoreError {
    match error.kind() {
        std::io::ErrorKind::NotFound => StoreError::Unavailable(
            format!("`{name}` is not installed here: install the client tools of PostgreSQL").into(),
        ),
        _ => StoreError::Unavailable(Box::new(error)),
    }
}

fn damaged(detail: &str) -> StoreError {
    StoreError::Damaged { detail: detail.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_dump_come_back_to_the_byte() {
        let text = "SET x = 1;\nCOPY public.nodes (node, \"log_hash\") FROM stdin;\na\\tb\\\\c\\nd\t\\\\x00ff\n\\N\t\\\\x\n\\.\n\nSELECT 1;\n";
        let mut seen = Vec::new();
        rows(text.as_bytes(), &mut |table: &str, columns: &[String], row: Vec<Option<Vec<u8>>>| {
            assert_eq!((table, columns.join(",").as_str()), ("nodes", "node,log_hash"));
            seen.push(row);
            Ok(())
        })
        .unwrap();
        assert_eq!(seen[0][0].as_deref(), Some(b"a\tb\\c\nd".as_slice()));
        assert_eq!(read("BLOB", seen[0][1].as_deref()).unwrap(), Value::Blob(vec![0, 255]));
        assert_eq!(seen[1][0], None);
        assert_eq!(read("BLOB", seen[1][1].as_deref()).unwrap(), Value::Blob(Vec::new()));
    }

    #[test]
    fn a_cut_dump_and_a_row_of_another_shape_are_damage() {
        let mut none = |_: &str, _: &[String], _: Vec<Option<Vec<u8>>>| Ok(());
        for text in ["COPY public.nodes (node) FROM stdin;\na\n", "COPY public.nodes (node) FROM stdin;\na\tb\n\\.\n"] {
            assert!(matches!(rows(text.as_bytes(), &mut none), Err(StoreError::Damaged { .. })), "{text}");
        }
    }

    #[test]
    fn the_password_is_in_the_environment_and_nowhere_else() {
        let all = surroundings("postgres://ana:hunter22@db.example:5433/gate").unwrap();
        let of = |name: &str| all.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_str().unwrap());
        assert_eq!(of("PGPASSWORD"), Some("hunter22"));
        assert_eq!((of("PGHOST"), of("PGPORT"), of("PGUSER")), (Some("db.example"), Some("5433"), Some("ana")));
        assert_eq!(database("postgres://ana:hunter22@db.example:5433/gate").unwrap(), "gate");
    }
}
