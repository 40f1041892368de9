//! The machine of a report: its kind, never its identity.

use std::fs::read_to_string;

use anyhow::Context as _;
use tokio_postgres::NoTls;

/// The variable with the address of the PostgreSQL server for measurements.
const SERVER: &str = "SLUICE_TEST_POSTGRES";

/// Processor, system and engines, as a Markdown list.
pub fn facts() -> anyhow::Result<String> {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let model = line_of("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.into());
    let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let memory = line_of("/proc/meminfo", "MemTotal").and_then(|text| gibibytes(&text)).unwrap_or_default();
    let postgres = postgres_version()?.unwrap_or_else(|| "none".into());
    Ok(format!(
        "* {processors} processors ({model}), {memory}\n* Linux {}\n* SQLite {}, WAL, `synchronous=FULL`\n* PostgreSQL {postgres}, \
         on the same machine, `fsync`, `synchronous_commit` and `full_page_writes` on\n",
        kernel.trim(),
        rusqlite::version(),
    ))
}

/// The server's address, if there is one.
pub fn server() -> Option<String> {
    std::env::var(SERVER).ok().filter(|url| !url.is_empty())
}

fn postgres_version() -> anyhow::Result<Option<String>> {
    let Some(url) = server() else { return Ok(None) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.context("connecting to PostgreSQL")?;
        let asked = async {
            let row = client.query_one("SHOW server_version", &[]).await;
            drop(client); // ends the connection, and with it the join below
            row
        };
        let (row, _) = tokio::join!(asked, connection);
        let text: String = row?.try_get(0)?;
        Ok(text.split_whitespace().next().map(str::to_owned))
    })
}

fn line_of(file: &str, name: &str) -> Option<String> {
    let text = read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn gibibytes(text: &str) -> Option<String> {
    let kibibytes: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(format!("{:.0} GiB of memory", kibibytes / 1024.0 / 1024.0))
}
