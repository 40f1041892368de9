//! Sealed databases, tested in the ways SQLite uses them.
#![expect(clippy::unwrap_used, reason = "these are tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::{Connection, OpenFlags};
use sluice_seal::{Seal, SealKey};
use tempfile::TempDir;

const CANARY: &str = "Kingfisher-4711-wharf";

fn flags() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

fn open(path: &Path, seal: Option<&Seal>) -> Connection {
    let connection = match seal {
        Some(seal) => Connection::open_with_flags_and_vfs(path, flags(), seal.vfs()).unwrap(),
        None => Connection::open_with_flags(path, flags()).unwrap(),
    };
    connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
    connection
}

fn seal(n: u8) -> Seal {
    Seal::new(SealKey::new([n; 32])).unwrap()
}

/// Every file of a folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap())).collect()
}

fn holds(folder: &Path, word: &str) -> Vec<String> {
    let found = files(folder).into_iter().filter(|(_, bytes)| bytes.windows(word.len()).any(|w| w == word.as_bytes()));
    found.map(|(name, _)| name).collect()
}

/// Fills a database and gives which files hold the word in the middle of a transaction and after it.
fn filled(folder: &Path, seal: Option<&Seal>, journal: &str) -> (Vec<String>, Vec<String>, Vec<String>) {
    let connection = open(&folder.join("a.db"), seal);
    connection.pragma_update(None, "journal_mode", journal).unwrap();
    // Few pages fit into memory, so that a transaction spills into the files before it ends.
    connection.execute_batch("PRAGMA cache_size = 4; CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)").unwrap();
    let insert = "WITH RECURSIVE c(n) AS (VALUES(1) UNION ALL SELECT n + 1 FROM c WHERE n < 2000) \
                  INSERT INTO t(text) SELECT ?1 || n || hex(randomblob(40)) FROM c";
    connection.execute(insert, [CANARY]).unwrap();
    connection.execute_batch("BEGIN; UPDATE t SET text = text || '!'").unwrap();
    let (during, there) = (holds(folder, CANARY), files(folder).into_keys().collect());
    connection.execute_batch("COMMIT").unwrap();
    (during, holds(folder, CANARY), there)
}

#[test]
fn no_file_holds_a_word_of_the_content_and_without_a_seal_they_do() {
    for journal in ["wal", "delete", "truncate", "persist"] {
        let beside = if journal == "wal" { "a.db-wal" } else { "a.db-journal" };
        let folder = TempDir::new().unwrap();
        let (during, after, there) = filled(folder.path(), Some(&seal(1)), journal);
        assert!(there.contains(&beside.to_owned()), "{journal}: {there:?}");
        assert!(during.is_empty() && after.is_empty(), "{journal}: {during:?} {after:?}");
        let folder = TempDir::new().unwrap();
        let (during, _, _) = filled(folder.path(), None, journal);
        assert!(during.contains(&beside.to_owned()), "{journal}: {during:?}");
    }
}

#[test]
fn a_database_opens_again_with_its_key_and_with_no_other() {
    let folder = TempDir::new().unwrap();
    filled(folder.path(), Some(&seal(1)), "wal");
    let path = folder.path().join("a.db");
    let one = seal(1);
    let again = open(&path, Some(&one));
    let count: i64 = again.query_row("SELECT count(*) FROM t WHERE text LIKE '%!'", [], |row| row.get(0)).unwrap();
    let sound: String = again.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!((count, sound.as_str()), (2000, "ok"));
    drop(again);
    for wrong in [Some(&seal(2)), None] {
        let error = open(&path, wrong).query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)).unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::NotADatabase), "{error}");
    }
}

#[test]
fn a_log_that_was_left_behind_is_read_by_whoever_comes_next() {
    let (folder, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let one = seal(1);
    let writer = open(&folder.path().join("a.db"), Some(&one));
    writer.pragma_update(None, "journal_mode", "wal").unwrap();
    writer.execute_batch("PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (text TEXT)").unwrap();
    for n in 0..50 {
        writer.execute("INSERT INTO t VALUES (?1)", [format!("{CANARY}{n}")]).unwrap();
        // As after a power failure: the files as they are, without the connection that wrote them.
        for name in ["a.db", "a.db-wal"] {
            std::fs::copy(folder.path().join(name), other.path().join(name)).unwrap();
        }
        let found = open(&other.path().join("a.db"), Some(&one));
        let count: i64 = found.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(count, n + 1);
        drop(found);
        std::fs::remove_file(other.path().join("a.db")).unwrap();
    }
}

#[test]
fn readers_beside_a_writer_see_whole_states_only() {
    let folder = TempDir::new().unwrap();
    let (path, one, over) = (folder.path().join("a.db"), seal(1), AtomicBool::new(false));
    let writer = open(&path, Some(&one));
    writer.pragma_update(None, "journal_mode", "wal").unwrap();
    writer.execute_batch("PRAGMA wal_autocheckpoint = 20; CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)").unwrap();
    writer.execute_batch("INSERT INTO t VALUES (1, ''), (2, ''), (3, '')").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let reader = open(&path, Some(&one));
                let mut looks = 0_u32;
                while !over.load(Ordering::SeqCst) || looks == 0 {
                    let sql = "SELECT count(DISTINCT text), min(length(text)) FROM t";
                    let (kinds, _): (i64, i64) =
                        reader.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
                    assert_eq!(kinds, 1);
                    looks += 1;
                }
            });
        }
        for n in 0..400_u32 {
            writer.execute("UPDATE t SET text = ?1", [format!("{n:05}").repeat(300)]).unwrap();
        }
        over.store(true, Ordering::SeqCst);
    });
    let sound: String = writer.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}

#[test]
fn a_dropped_seal_opens_nothing_more_and_breaks_nothing_that_is_open() {
    let folder = TempDir::new().unwrap();
    let one = seal(1);
    let name = one.vfs().to_owned();
    let connection = open(&folder.path().join("a.db"), Some(&one));
    connection.execute_batch("PRAGMA journal_mode = memory; CREATE TABLE t (n); INSERT INTO t VALUES (7)").unwrap();
    drop(one);
    assert_eq!(connection.query_row("SELECT n FROM t", [], |row| row.get::<_, i64>(0)).unwrap(), 7);
    assert!(Connection::open_with_flags_and_vfs(folder.path().join("a.db"), flags(), name.as_str()).is_err());
    // A journal would need the key again.
    assert!(connection.execute_batch("PRAGMA journal_mode = delete; INSERT INTO t VALUES (8)").is_err());
}

#[test]
fn nothing_is_put_aside_in_the_clear() {
    let folder = TempDir::new().unwrap();
    let connection = open(&folder.path().join("a.db"), Some(&seal(1)));
    // The seal is dropped: a temporary file cannot be opened in the clear instead.
    connection.execute_batch("PRAGMA temp_store = file; PRAGMA cache_size = 2").unwrap();
    let made = connection.execute_batch(
        "CREATE TEMP TABLE big AS WITH RECURSIVE c(n) AS (VALUES(1) UNION ALL SELECT n + 1 FROM c WHERE n < 20000) \
         SELECT hex(randomblob(200)) AS text FROM c; SELECT text FROM big ORDER BY text",
    );
    assert!(made.is_err());
}
