//! Checks of the database: it opens, is not damaged, is durable, and so is its standby.

use sluice_config::{Config, DatabaseLocation};
use sluice_store::ServerReplication;

use super::{DoctorCheckStatus, DoctorFinding};

/// Checks the database. Another process may be using it.
pub(super) fn database(config: &Config) -> Vec<DoctorFinding> {
    let path = match &config.database {
        DatabaseLocation::Server(url) => return server(url.expose()),
        DatabaseLocation::File(path) => path,
    };
    if !path.exists() {
        let finding =
            DoctorFinding::new("database", DoctorCheckStatus::Warn, format!("{} does not exist yet", path.display()));
        return vec![
            finding.hint("the gateway creates it when it starts; to create it with the first keys: sluice init"),
        ];
    }
    vec![match sluice_store::examine_file(path) {
        Ok(found) => {
            let entries = found.entries.unwrap_or(0);
            let message = format!("{} opens and is not damaged, {entries} audit entries", path.display());
            schema_of(DoctorFinding::new("database", DoctorCheckStatus::Ok, message), found.schema)
        }
        Err(error) => DoctorFinding::new("database", DoctorCheckStatus::Fail, format!("{} ({})", error, error.code()))
            .hint("keep the file unchanged and verify a copy: sluice audit verify --data PATH"),
    }]
}

fn server(url: &str) -> Vec<DoctorFinding> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else {
        return vec![DoctorFinding::new("database", DoctorCheckStatus::Warn, "the server could not be checked")];
    };
    match runtime.block_on(sluice_store::examine_server(url)) {
        Ok(found) => {
            let words = match found.schema {
                0 => "the PostgreSQL server responds; its database is empty and is set up at the first start",
                _ => "the PostgreSQL server responds and its commits are durable",
            };
            let answers = schema_of(DoctorFinding::new("database", DoctorCheckStatus::Ok, words), found.schema);
            std::iter::once(answers).chain(found.replication.map(replication)).collect()
        }
        // SECURITY: an error of the client may contain the address, and the address contains a password.
        Err(error) => {
            let message = format!("the PostgreSQL server cannot be used ({})", error.code());
            vec![DoctorFinding::new("database", DoctorCheckStatus::Fail, message).hint(match error.code() {
                "store.durability_off" => {
                    "the server may lose acknowledged commits: set `fsync`, `full_page_writes` and `synchronous_commit` to on"
                }
                _ => "check `database.url` or `database.url_file`, that the server runs, and that it accepts this user",
            })]
        }
    }
}

/// Checks what a failover would lose.
fn replication(found: ServerReplication) -> DoctorFinding {
    let lost = "a failover to it loses the last acknowledged commits; the gateway detects that, freezes everything and waits for a person";
    match found {
        ServerReplication { is_synchronous: true, standbys: 0 } => {
            let message = "commits wait for a synchronous standby, and none is connected";
            DoctorFinding::new("replication", DoctorCheckStatus::Warn, message)
                .hint("until one is connected the gateway waits: start a standby")
        }
        ServerReplication { is_synchronous: true, .. } => {
            DoctorFinding::new("replication", DoctorCheckStatus::Ok, "commits wait for a synchronous standby")
        }
        ServerReplication { is_synchronous: false, standbys: 0 } => DoctorFinding::new(
            "replication",
            DoctorCheckStatus::Info,
            "the server has no standby: data it loses can only come from a backup",
        )
        .hint("if you add one, make it synchronous: synchronous_standby_names (docs/recovery.md)"),
        ServerReplication { is_synchronous: false, .. } => DoctorFinding::new(
            "replication",
            DoctorCheckStatus::Warn,
            format!("the standby of the server is asynchronous: {lost}"),
        )
        .hint("set synchronous_standby_names on the server (docs/recovery.md)"),
    }
}

fn schema_of(finding: DoctorFinding, schema: i64) -> DoctorFinding {
    if schema == 0 || schema == sluice_store::SCHEMA {
        return finding;
    }
    finding
        .hint(format!("its schema is {schema}; the next start of the gateway upgrades it to {}", sluice_store::SCHEMA))
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
        assert!(
            matches!(state, DoctorCheckStatus::Warn) && message.contains("loses the last acknowledged commits"),
            "{message}"
        );
        assert!(matches!(look(true, 1).0, DoctorCheckStatus::Ok));
        assert!(matches!(look(true, 0).0, DoctorCheckStatus::Warn), "no standby is connected");
        let (state, message) = look(false, 0);
        assert!(matches!(state, DoctorCheckStatus::Info) && message.contains("no standby"), "{message}");
    }
}
