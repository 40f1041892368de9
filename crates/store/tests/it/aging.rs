//! Databases of earlier releases: all their content is still there, on both engines, and new rows can be added.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_core::Millis;
use sluice_store::StateScope;
use sluice_testkit::postgres::TestDatabase;
use sluice_testkit::{CountingIds, ManualClock, TestStore};

use crate::checker;
use crate::damage::{edit, furnish, furnish_beside_writes, furnish_the_vault};
use crate::engines::run_sql;

/// The files that [`an_old_database_is_brought_up_to_date_and_read`] opens, by the schema that made them.
fn old(schema: i64) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/old/schema-{schema}.db"))
}

/// Writes the newest file again. Only for a schema that was never released: the file of a released one never changes.
#[test]
#[ignore = "makes a file that is kept"]
fn make_the_old_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sluice.db");
    furnish(&path);
    std::fs::copy(&path, old(sluice_store::SCHEMA)).unwrap();
}

#[test]
fn an_old_database_is_brought_up_to_date_and_read() {
    for schema in 1..=sluice_store::SCHEMA {
        bring_up_to_date(schema);
    }
}

#[test]
fn rules_from_before_activations_were_kept_stay_in_the_history() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sluice.db");
    std::fs::copy(old(9), &path).unwrap();
    edit(&path, "INSERT INTO policies VALUES ('later', '{}', 'operator:ana', 5)");
    edit(&path, "INSERT INTO policies VALUES ('earlier', '{}', 'operator:ana', 3)");
    let clock = ManualClock::default();
    clock.advance(Millis::from_mins(5));
    let world = TestStore::reopen(&path, &clock);
    let told = || -> Vec<String> {
        let history = world.wait(world.store.policy_history(10)).unwrap();
        history.into_iter().map(|line| line.version).collect()
    };
    assert_eq!(told(), ["later", "earlier"]);
    world.wait(world.store.record_policy_loaded("earlier".into(), "{}".into(), crate::engines::operator())).unwrap();
    assert_eq!(told(), ["earlier", "later", "earlier"]);
}

#[test]
fn a_brake_among_the_freezes_of_people_becomes_its_connections_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sluice.db");
    std::fs::copy(old(10), &path).unwrap();
    edit(&path, "INSERT INTO connections VALUES ('gmail', 'gmail', 'email', NULL, '{}', 'paused', NULL, 5, 3)");
    edit(&path, "INSERT INTO freezes VALUES ('service', 'email', 'operator:ana', 'the connection is paused', 5)");
    edit(&path, "INSERT INTO freezes VALUES ('service', 'calendar', 'operator:ana', 'the connection is paused', 5)");
    let clock = ManualClock::default();
    clock.advance(Millis::from_mins(5));
    let world = TestStore::reopen(&path, &clock);
    let frozen = world.wait(world.store.freezes()).unwrap();
    let frozen: Vec<_> = frozen.iter().map(|one| (one.scope.to_string(), one.brake.is_some())).collect();
    assert_eq!(frozen, [("service calendar".to_owned(), false), ("service email".to_owned(), true)]);
}

/// A database of an old schema, in use: all its content is there, and new rows can be added.
fn has_everything(world: TestStore, schema: i64) {
    checker::check(&world);
    let mut states = BTreeMap::<_, u32>::new();
    for hold in world.wait(world.store.holds(None, 100)).unwrap() {
        *states.entry(hold.state.word()).or_default() += 1;
    }
    let expected = [("awaiting_approval", 1), ("cancelled", 1), ("dead", 1), ("held", 4), ("in_doubt", 1)];
    assert_eq!(states, BTreeMap::from(expected));
    let mut new = world;
    new.ids = Arc::new(CountingIds::after(1_000_000));
    new.admit_held("newcomer", "written by this release");
    if schema < 2 {
        furnish_beside_writes(&new);
    }
    if schema < 4 {
        furnish_the_vault(&new);
    }
    assert_eq!(new.wait(new.store.secrets()).unwrap().iter().map(|row| row.version).collect::<Vec<_>>(), [2]);
    assert_eq!(new.wait(new.store.egress_states(new.now())).unwrap()[0].breaker.refusals, 1);
    assert_eq!(new.wait(new.store.keys()).unwrap().len(), 1);
    let plan = new.wait(new.store.state_get(StateScope::Shared, "plan".into(), None)).unwrap();
    assert_eq!(plan.map(|item| (item.value, item.version)), Some(("2".to_owned(), 2)));
    checker::check(&new);
}

/// The same rows on a server, with the schema of their time, as the migrations created it there.
#[test]
fn an_old_database_on_a_server_is_brought_up_to_date_and_read() {
    for schema in 1..=sluice_store::SCHEMA {
        let Some(database) = TestDatabase::fresh() else { return };
        run_sql(database.url(), &as_it_was(schema));
        let clock = ManualClock::default();
        clock.advance(Millis::from_mins(5));
        has_everything(TestStore::server(database.url(), "gw-1", &clock), schema);
    }
}

/// Statements that create a server's database of this schema with the rows of the stored file.
fn as_it_was(schema: i64) -> String {
    let mut text = "CREATE TABLE schema_version (version BIGINT NOT NULL);\n".to_owned();
    let migrations = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut files: Vec<PathBuf> = std::fs::read_dir(migrations).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    for (file, version) in files.iter().zip(1..=schema) {
        let sql = std::fs::read_to_string(file).unwrap();
        text +=
            &sql.replace(") STRICT, WITHOUT ROWID;", ");").replace(" INTEGER", " BIGINT").replace(" BLOB", " BYTEA");
        text += &format!("\nINSERT INTO schema_version (version) VALUES ({version});\n");
    }
    let kept = rusqlite::Connection::open(old(schema)).unwrap();
    let mut tables =
        kept.prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'").unwrap();
    let tables: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    for table in tables {
        let mut rows = kept.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns = rows.column_names().collect::<Vec<_>>().join(", ");
        let width = rows.column_count();
        let mut rows = rows.query([]).unwrap();
        // Migrations insert rows into some tables themselves.
        text += &format!("DELETE FROM {table};\n");
        while let Some(row) = rows.next().unwrap() {
            let values: Vec<String> = (0..width).map(|at| literal(row.get_ref(at).unwrap())).collect();
            text += &format!("INSERT INTO {table} ({columns}) VALUES ({});\n", values.join(", "));
        }
    }
    text
}

fn literal(value: rusqlite::types::ValueRef<'_>) -> String {
    use rusqlite::types::ValueRef;
    match value {
        ValueRef::Null => "NULL".into(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Text(text) => format!("'{}'", std::str::from_utf8(text).unwrap().replace('\'', "''")),
        ValueRef::Blob(bytes) => {
            format!("'\\x{}'::bytea", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        }
        ValueRef::Real(_) => panic!("no column holds fractions"),
    }
}

fn bring_up_to_date(schema: i64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sluice.db");
    std::fs::copy(old(schema), &path).unwrap();
    let clock = ManualClock::default();
    clock.advance(Millis::from_mins(5));
    let world = TestStore::reopen(&path, &clock);
    has_everything(world, schema);
    assert_eq!(
        rusqlite::Connection::open(&path).unwrap().query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0)),
        Ok(sluice_store::SCHEMA)
    );
}
