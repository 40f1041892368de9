//! A separate PostgreSQL database for each test.
//!
//! Takes the server named by `SLUICE_TEST_POSTGRES`; gives a fresh database on it and drops it when the test is over.
//! Promise: two tests never share one. Without a server a test reports that it was skipped, or fails where
//! `SLUICE_TEST_STRICT` is set.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write as _;

use tokio_postgres::{Config, NoTls};

/// The variable that holds the server's URL.
const SERVER: &str = "SLUICE_TEST_POSTGRES";
/// The variable that is set when nothing may be skipped.
const STRICT: &str = "SLUICE_TEST_STRICT";

/// A database that lives as long as this value.
#[derive(Debug)]
pub struct TestDatabase {
    server: Config,
    name: String,
    url: String,
}

/// What to do, decided from the environment alone.
#[derive(Debug, PartialEq, Eq)]
enum TestDatabasePlan {
    Use(String),
    Skip(&'static str),
    Fail(&'static str),
}

impl TestDatabase {
    /// A fresh database, or `None` where there is no server.
    ///
    /// # Panics
    /// When a server is required (it is named, or the run is strict) and there is none.
    #[must_use]
    pub fn fresh() -> Option<Self> {
        match plan(variable(SERVER), variable(STRICT)) {
            TestDatabasePlan::Use(url) => Some(Self::create(&url)),
            TestDatabasePlan::Skip(reason) => {
                // Written directly to standard error: the test harness hides the output of a passing test.
                drop(writeln!(std::io::stderr(), "skipped: {reason}"));
                None
            }
            TestDatabasePlan::Fail(reason) => panic!("{reason}"),
        }
    }

    /// Where the database is, as a connection URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Makes the server unavailable for this database: connections are cut and new ones refused.
    ///
    /// # Panics
    /// When the server does not do it.
    pub fn go_away(&self) {
        let name = &self.name;
        for statement in [
            format!("ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false"),
            format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"),
        ] {
            run(&self.server, &statement).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    /// Makes the server available again.
    ///
    /// # Panics
    /// When the server does not do it.
    pub fn come_back(&self) {
        let statement = format!("ALTER DATABASE {} WITH ALLOW_CONNECTIONS true", self.name);
        run(&self.server, &statement).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Cuts every connection; new ones are accepted.
    ///
    /// # Panics
    /// When the server does not do it.
    pub fn cut(&self) {
        let name = &self.name;
        let statement = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
        run(&self.server, &statement).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Keeps a copy of the database as it is now, like a standby that no longer follows. This cuts every connection.
    ///
    /// # Panics
    /// When the server does not do it.
    pub fn keep_copy(&self) {
        self.go_away();
        let (name, copy) = (&self.name, self.copy());
        for statement in
            [format!("DROP DATABASE IF EXISTS {copy} WITH (FORCE)"), format!("CREATE DATABASE {copy} TEMPLATE {name}")]
        {
            run(&self.server, &statement).unwrap_or_else(|error| panic!("{error}"));
        }
        self.come_back();
    }

    /// Replaces the database with the copy, like the promotion of a standby that was behind.
    ///
    /// # Panics
    /// When the server does not do it, or there is no copy.
    pub fn fail_over(&self) {
        self.go_away();
        let (name, copy) = (&self.name, self.copy());
        for statement in
            [format!("DROP DATABASE {name} WITH (FORCE)"), format!("ALTER DATABASE {copy} RENAME TO {name}")]
        {
            run(&self.server, &statement).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    fn copy(&self) -> String {
        format!("{}_copy", self.name)
    }

    /// Locks tables until the result is dropped.
    ///
    /// # Panics
    /// When the server does not do it.
    #[must_use]
    pub fn lock(&self, tables: &str) -> TableLock {
        let (release, released) = tokio::sync::oneshot::channel::<()>();
        let (taken, is_taken) = std::sync::mpsc::channel();
        let (url, begin) = (self.url.clone(), format!("BEGIN; LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE"));
        let thread = std::thread::spawn(move || {
            let server: Config = url.parse().unwrap_or_else(|error| panic!("{error}"));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap_or_else(|error| panic!("{error}")).block_on(async {
                let (client, connection) = server.connect(NoTls).await.unwrap_or_else(|error| panic!("{error}"));
                let held = async {
                    client.batch_execute(&begin).await.unwrap_or_else(|error| panic!("{error}"));
                    let _sent = taken.send(());
                    drop(released.await);
                    drop(client);
                };
                let ((), _) = tokio::join!(held, connection);
            });
        });
        is_taken.recv().unwrap_or_else(|error| panic!("{error}"));
        TableLock { url: self.url.clone(), release: Some(release), thread: Some(thread) }
    }

    fn create(url: &str) -> Self {
        let server: Config = url.parse().unwrap_or_else(|error| panic!("{SERVER} is not a connection URL: {error}"));
        // Random and not counted: a server that outlives a killed test still has its database.
        let name = format!("sluice_test_{:016x}", RandomState::new().build_hasher().finish());
        run(&server, &format!("CREATE DATABASE {name} TEMPLATE template0")).unwrap_or_else(|error| panic!("{error}"));
        Self { url: renamed(url, &name), server, name }
    }
}

/// Locked tables, for as long as this value lives.
#[derive(Debug)]
pub struct TableLock {
    url: String,
    release: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl TableLock {
    /// Waits until this many connections wait for them.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn wait_for(&self, waiters: usize) {
        let server: Config = self.url.parse().unwrap_or_else(|error| panic!("{error}"));
        let ask = format!(
            "DO $$ BEGIN WHILE (SELECT COUNT(DISTINCT pid) FROM pg_locks WHERE NOT granted AND database = \
             (SELECT oid FROM pg_database WHERE datname = current_database())) < {waiters} LOOP END LOOP; END $$"
        );
        run(&server, &ask).unwrap_or_else(|error| panic!("{error}"));
    }
}

impl Drop for TableLock {
    fn drop(&mut self) {
        self.release = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        for name in [self.name.clone(), self.copy()] {
            if let Err(error) = run(&self.server, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")) {
                drop(writeln!(std::io::stderr(), "the test database {name} was left behind: {error}"));
            }
        }
    }
}

fn plan(server: Option<String>, strict: Option<String>) -> TestDatabasePlan {
    match (server, strict) {
        (Some(url), _) => TestDatabasePlan::Use(url),
        (None, None) => TestDatabasePlan::Skip("no PostgreSQL (`cargo xtask pg` starts one and says how to name it)"),
        (None, Some(_)) => TestDatabasePlan::Fail("SLUICE_TEST_STRICT is set and SLUICE_TEST_POSTGRES is not"),
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the edge: tests have no other configuration")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The URL of another database on the same server.
fn renamed(url: &str, name: &str) -> String {
    let (address, options) = url.split_once('?').map_or((url, None), |(address, options)| (address, Some(options)));
    let host_at = address.find("://").map_or(0, |at| at + 3);
    let path_at = address.get(host_at..).and_then(|rest| rest.find('/')).map(|at| host_at + at);
    let server = path_at.and_then(|at| address.get(..at)).unwrap_or(address);
    options.map_or_else(|| format!("{server}/{name}"), |options| format!("{server}/{name}?{options}"))
}

/// Runs one statement on its own connection and its own thread: the caller may be inside a runtime, and a runtime must
/// not be blocked on from within another.
fn run(server: &Config, statement: &str) -> Result<(), String> {
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| error.to_string())?.block_on(async {
            let (client, connection) =
                server.connect(NoTls).await.map_err(|error| format!("no connection: {error}"))?;
            let asked = async {
                let answer = client.batch_execute(statement).await;
                drop(client); // ends the connection, and with it the join below
                answer
            };
            let (answer, _) = tokio::join!(asked, connection);
            answer.map_err(|error| format!("`{statement}`: {error}"))
        })
    };
    std::thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|_| Err("the connecting thread died".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_server_a_test_is_skipped_and_a_strict_run_fails() {
        assert!(matches!(plan(None, None), TestDatabasePlan::Skip(_)));
        assert!(matches!(plan(None, Some("1".into())), TestDatabasePlan::Fail(_)));
        assert_eq!(plan(Some("postgres://x".into()), Some("1".into())), TestDatabasePlan::Use("postgres://x".into()));
    }

    #[test]
    fn only_the_database_in_the_url_is_replaced() {
        assert_eq!(renamed("postgres://u@h:5/postgres", "t"), "postgres://u@h:5/t");
        assert_eq!(renamed("postgres://u@h:5", "t"), "postgres://u@h:5/t");
        assert_eq!(renamed("postgres://u@h/a?sslmode=disable", "t"), "postgres://u@h/t?sslmode=disable");
    }

    #[test]
    fn two_tests_get_two_databases_and_both_are_gone_afterwards() {
        let Some(one) = TestDatabase::fresh() else { return };
        let Some(two) = TestDatabase::fresh() else { return };
        let there = |database: &TestDatabase| run(&database.url().parse().unwrap(), "CREATE TABLE mark (n int)");
        assert_eq!(there(&one), Ok(()));
        assert_eq!(there(&two), Ok(()), "the table of the first is not in the second");
        let (server, name) = (one.server.clone(), one.name.clone());
        drop(one);
        let again = run(&server, &format!("CREATE DATABASE {name}"));
        assert_eq!(again, Ok(()), "the name is free again");
        drop(TestDatabase { server, name, url: String::new() });
    }

    #[tokio::test]
    async fn a_database_can_be_had_inside_a_runtime() {
        let Some(database) = TestDatabase::fresh() else { return };
        assert!(database.url().contains("/sluice_test_"));
    }
}
