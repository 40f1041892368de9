//! Checks of the database: it opens, is whole, keeps what it acknowledges, and so does what it fails over to.

use sluice_gateway::config::{Config, Database};
use sluice_store::ServerReplication;

use super::{Finding, State};

/// Somebody else may be using it.
pub(super) fn database(config: &Config) -> Vec<Finding> {
    let path = match &config.database {
        Database::Server(url) => return server(url.expose()),
        Database::File(path) => path,
    };
    if !path.exists() {
        let finding = Finding::new("database", State::Warn, format!("there is no {} yet", path.display()));
        return vec![finding.hint("the gateway makes one when it starts; without keys nobody can use it: sluice init")];
    }
    vec![match sluice_store::examine_file(path) {
        Ok(found) => {
            let entries = found.entries.unwrap_or(0);
            let message = format!("{} opens and is whole, {entries} entries on record", path.display());
            schema_of(Finding::new("database", State::Ok, message), found.schema)
        }
        Err(error) => Finding::new("database", State::Fail, format!("{} ({})", error, error.code()))
            .hint("keep the file as it is and look at a copy: sluice audit verify --data PATH"),
    }]
}

fn server(url: &str) -> Vec<Finding> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else {
        return vec![Finding::new("database", State::Warn, "the server could not be asked")];
    };
    match runtime.block_on(sluice_store::examine_server(url)) {
        Ok(found) => {
            let words = match found.schema {
                0 => "the PostgreSQL server answers; its database is empty, and the first start fills it",
                _ => "the PostgreSQL server answers and keeps what it acknowledges",
            };
            let answers = schema_of(Finding::new("database", State::Ok, words), found.schema);
            std::iter::once(answers).chain(found.replication.map(replication)).collect()
        }
        // SECURITY: an error of the client may repeat the address, and the address holds a password.
        Err(error) => {
            let message = format!("the PostgreSQL server cannot be used ({})", error.code());
            vec![Finding::new("database", State::Fail, message).hint(match error.code() {
                "store.durability_off" => {
                    "the server may lose what it acknowledges: set `fsync`, `full_page_writes` and `synchronous_commit` to on"
                }
                _ => "check `database.url` or `database.url_file`; does the server run, and does it take this user?",
            })]
        }
    }
}

/// What a failover would lose.
fn replication(found: ServerReplication) -> Finding {
    let lost =
        "a failover to it loses what was acknowledged last; the gateway notices, freezes everything and asks a person";
    match found {
        ServerReplication { is_synchronous: true, standbys: 0 } => {
            let message = "commits wait for a synchronous standby, and none is connected";
            Finding::new("replication", State::Warn, message)
                .hint("without one the gateway stands still: start a standby")
        }
        ServerReplication { is_synchronous: true, .. } => {
            Finding::new("replication", State::Ok, "commits wait for a synchronous standby")
        }
        ServerReplication { is_synchronous: false, standbys: 0 } => Finding::new(
            "replication",
            State::Info,
            "the server has no standby: what it loses is lost, except for a backup",
        )
        .hint("if you add one, make it synchronous: synchronous_standby_names (docs/recovery.md)"),
        ServerReplication { is_synchronous: false, .. } => {
            Finding::new("replication", State::Warn, format!("the standby of the server is asynchronous: {lost}"))
                .hint("set synchronous_standby_names on the server (docs/recovery.md)")
        }
    }
}

fn schema_of(finding: Finding, schema: i64) -> Finding {
    if schema == 0 || schema == sluice_store::SCHEMA {
        return finding;
    }
    finding.hint(format!("its schema is {schema}; the next start of the gateway brings it to {}", sluice_store::SCHEMA))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_asynchronous_standby_is_a_warning_that_says_what_is_lost() {
        let look = |is_synchronous, standbys| {
            let finding = replication(ServerReplication { is_synchronous, standbys });
            (finding.state, finding.message.clone())
        };
        let (state, message) = look(false, 1);
        assert!(matches!(state, State::Warn) && message.contains("loses what was acknowledged last"), "{message}");
        assert!(matches!(look(true, 1).0, State::Ok));
        assert!(matches!(look(true, 0).0, State::Warn), "nobody is there to wait for");
        let (state, message) = look(false, 0);
        assert!(matches!(state, State::Info) && message.contains("no standby"), "{message}");
    }
}
