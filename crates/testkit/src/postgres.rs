//! A PostgreSQL database of one's own.
//!
//! Takes the server named by `SLUICE_TEST_POSTGRES`; gives a fresh database on it and drops it when
//! the test is over. Promise: two tests never share one, and without a server a test is skipped
//! aloud, or fails where `SLUICE_TEST_STRICT` is set.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write as _;

use tokio_postgres::{Config, NoTls};

/// Where the server is.
const SERVER: &str = "SLUICE_TEST_POSTGRES";
/// Set when nothing may be skipped.
const STRICT: &str = "SLUICE_TEST_STRICT";

/// A database that lives as long as this value.
#[derive(Debug)]
pub struct Database {
    server: Config,
    name: String,
    url: String,
}

/// What there is to do without looking further.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    Use(String),
    Skip(&'static str),
    Fail(&'static str),
}

impl Database {
    /// A fresh database, or nothing where there is no server.
    ///
    /// # Panics
    /// When there should be a server (it is named, or the run is strict) and there is none.
    #[must_use]
    pub fn fresh() -> Option<Self> {
        match plan(variable(SERVER), variable(STRICT)) {
            Plan::Use(url) => Some(Self::create(&url)),
            Plan::Skip(reason) => {
                // Past the test harness, which swallows what a passing test prints.
                drop(writeln!(std::io::stderr(), "skipped: {reason}"));
                None
            }
            Plan::Fail(reason) => panic!("{reason}"),
        }
    }

    /// Where the database is, as a connection URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The server goes away, as far as this database is concerned: connections are cut and new ones refused.
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

    /// It is back.
    ///
    /// # Panics
    /// When the server does not do it.
    pub fn come_back(&self) {
        let statement = format!("ALTER DATABASE {} WITH ALLOW_CONNECTIONS true", self.name);
        run(&self.server, &statement).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Cuts every connection; new ones are taken.
    ///
    /// # Panics
    /// When the server does not do it.
    pub fn cut(&self) {
        let name = &self.name;
        let statement = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
        run(&self.server, &statement).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Keeps a copy of the database as it is now, like a standby that follows no further. Every connection is cut for it.
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

    /// The copy takes the place of the database, as a standby that was behind does when it is promoted.
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

    /// Tables nobody gets into until what this gives is dropped.
    ///
    /// # Panics
    /// When the server does not do it.
    #[must_use]
    pub fn lock(&self, tables: &str) -> Lock {
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
        Lock { url: self.url.clone(), release: Some(release), thread: Some(thread) }
    }

    fn create(url: &str) -> Self {
        let server: Config = url.parse().unwrap_or_else(|error| panic!("{SERVER} is not a connection URL: {error}"));
        // Random and not counted: a server that outlives a killed test still has its database.
        let name = format!("sluice_test_{:016x}", RandomState::new().build_hasher().finish());
        run(&server, &format!("CREATE DATABASE {name} TEMPLATE template0")).unwrap_or_else(|error| panic!("{error}"));
        Self { url: renamed(url, &name), server, name }
    }
}

/// Tables nobody gets into while this lives.
#[derive(Debug)]
pub struct Lock {
    url: String,
    release: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Lock {
    /// Waits until this many connections stand before them.
    ///
    /// # Panics
    /// When the server cannot be asked.
    pub fn wait_for(&self, waiters: usize) {
        let server: Config = self.url.parse().unwrap_or_else(|error| panic!("{error}"));
        let ask = format!(
            "DO $$ BEGIN WHILE (SELECT COUNT(DISTINCT pid) FROM pg_locks WHERE NOT granted AND database = \
             (SELECT oid FROM pg_database WHERE datname = current_database())) < {waiters} LOOP END LOOP; END $$"
        );
        run(&server, &ask).unwrap_or_else(|error| panic!("{error}"));
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.release = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        for name in [self.name.clone(), self.copy()] {
            if let Err(error) = run(&self.server, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")) {
                drop(writeln!(std::io::stderr(), "the test database {name} was left behind: {error}"));
            }
        }
    }
}

fn plan(server: Option<String>, strict: Option<String>) -> Plan {
    match (server, strict) {
        (Some(url), _) => Plan::Use(url),
        (None, None) => Plan::Skip("no PostgreSQL (`cargo xtask pg` starts one and says how to name it)"),
        (None, Some(_)) => Plan::Fail("SLUICE_TEST_STRICT is set and SLUICE_TEST_POSTGRES is not"),
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the edge: tests have no other configuration")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The same server, another database.
fn renamed(url: &str, name: &str) -> String {
    let (address, options) = url.split_once('?').map_or((url, None), |(address, options)| (address, Some(options)));
    let host_at = address.find("://").map_or(0, |at| at + 3);
    let path_at = address.get(host_at..).and_then(|rest| rest.find('/')).map(|at| host_at + at);
    let server = path_at.and_then(|at| address.get(..at)).unwrap_or(address);
    options.map_or_else(|| format!("{server}/{name}"), |options| format!("{server}/{name}?{options}"))
}

/// One statement on a connection of its own, on a thread of its own: the caller may or may not be
/// inside a runtime, and a runtime must not be blocked on from within another.
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
        assert!(matches!(plan(None, None), Plan::Skip(_)));
        assert!(matches!(plan(None, Some("1".into())), Plan::Fail(_)));
        assert_eq!(plan(Some("postgres://x".into()), Some("1".into())), Plan::Use("postgres://x".into()));
    }

    #[test]
    fn only_the_database_in_the_url_is_replaced() {
        assert_eq!(renamed("postgres://u@h:5/postgres", "t"), "postgres://u@h:5/t");
        assert_eq!(renamed("postgres://u@h:5", "t"), "postgres://u@h:5/t");
        assert_eq!(renamed("postgres://u@h/a?sslmode=disable", "t"), "postgres://u@h/t?sslmode=disable");
    }

    #[test]
    fn two_tests_get_two_databases_and_both_are_gone_afterwards() {
        let Some(one) = Database::fresh() else { return };
        let Some(two) = Database::fresh() else { return };
        let there = |database: &Database| run(&database.url().parse().unwrap(), "CREATE TABLE mark (n int)");
        assert_eq!(there(&one), Ok(()));
        assert_eq!(there(&two), Ok(()), "the table of the first is not in the second");
        let (server, name) = (one.server.clone(), one.name.clone());
        drop(one);
        let again = run(&server, &format!("CREATE DATABASE {name}"));
        assert_eq!(again, Ok(()), "the name is free again");
        drop(Database { server, name, url: String::new() });
    }

    #[tokio::test]
    async fn a_database_can_be_had_inside_a_runtime() {
        let Some(database) = Database::fresh() else { return };
        assert!(database.url().contains("/sluice_test_"));
    }
}
