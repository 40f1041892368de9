//! `sluice proxies budget` and `review`: the remaining budget of a day, and unusual activity.

use serde_json::{Value, json};
use sluice_core::Millis;

use super::{list, path};
use crate::client::{ApiRequest, GatewayClient, display_field, entries, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::table::TextTable;

/// The options of a review.
pub(super) struct ProxyReviewOptions {
    /// Length of the period.
    pub since: Millis,
    /// Whether a deviation is a failure.
    pub strict: bool,
    /// Whether to print JSON.
    pub json: bool,
}

/// The given name, or the names of all proxies that run.
fn names(client: &GatewayClient, name: Option<&str>) -> Result<Vec<String>, CliError> {
    if let Some(name) = name {
        return Ok(vec![name.to_owned()]);
    }
    let all = client.get_all("/v1/proxies")?;
    let running = entries(&all).iter().filter(|proxy| text_field(proxy, "state") != "flawed");
    Ok(running.map(|proxy| text_field(proxy, "name").to_owned()).collect())
}

fn ask_each(client: &GatewayClient, names: &[String], rest: &str) -> Result<Vec<Value>, CliError> {
    names.iter().map(|name| client.send(&ApiRequest::get(path(name, rest)))).collect()
}

/// A usage in one line.
fn usage(value: &Value, field: &str) -> String {
    let Some(found) = value.get(field) else { return String::new() };
    let seconds = found.get("milliseconds").and_then(Value::as_u64).unwrap_or(0) / 1000;
    let (requests, bytes, cost) =
        (display_field(found, "requests"), display_field(found, "bytes"), display_field(found, "cost"));
    format!("{requests} requests, {bytes} bytes, {seconds} s, cost {cost}")
}

pub(super) fn budget(
    client: &GatewayClient,
    screen: &CommandConsole,
    name: Option<&str>,
    (days, as_json): (u32, bool),
) -> Result<CommandExit, CliError> {
    let found = ask_each(client, &names(client, name)?, &format!("/budget?days={days}"))?;
    if as_json {
        screen.json(&json!({"data": found}))?;
        return Ok(CommandExit::Ok);
    }
    if found.is_empty() {
        screen.note(format_args!("no proxies; add a declaration to proxies/"));
    }
    for one in &found {
        let line = |name: &str, value: String| screen.line(format_args!("{name:<13} {value}"));
        line("proxy", display_field(one, "proxy"))?;
        line("daily limit", usage(one, "limits"))?;
        line("used today", format!("{} ({} %)", usage(one, "used"), display_field(one, "percent")))?;
        line("reserved", usage(one, "reserved"))?;
        let fits = one.get("fits") == Some(&Value::Bool(true));
        let full = format!("; no more tasks until {}", display_field(one, "resets_at"));
        line("left", format!("{}{}", usage(one, "left"), if fits { "" } else { full.as_str() }))?;
        line("per task", format!("at most {}", usage(one, "estimate")))?;
        let mut table = TextTable::new(&["day", "tasks", "requests", "bytes", "ms", "cost", "percent"]);
        for day in list(one, "days") {
            let used = |field| day.get("used").map(|used| display_field(used, field)).unwrap_or_default();
            table.row(&[
                display_field(day, "day"),
                display_field(day, "tasks"),
                used("requests"),
                used("bytes"),
                used("milliseconds"),
                used("cost"),
                display_field(day, "percent"),
            ]);
        }
        table.print(screen, "no tasks on these days")?;
    }
    Ok(CommandExit::Ok)
}

pub(super) fn review(
    client: &GatewayClient,
    screen: &CommandConsole,
    name: Option<&str>,
    wanted: &ProxyReviewOptions,
) -> Result<CommandExit, CliError> {
    let period = format!("/review?period={}s", wanted.since.as_secs());
    let found = ask_each(client, &names(client, name)?, &period)?;
    let deviates = found.iter().any(|one| list(one, "deviations").next().is_some());
    let exit = if wanted.strict && deviates { CommandExit::Failed } else { CommandExit::Ok };
    if wanted.json {
        screen.json(&json!({"data": found}))?;
        return Ok(exit);
    }
    if found.is_empty() {
        screen.note(format_args!("no proxies; add a declaration to proxies/"));
    }
    for one in &found {
        let (proxy, since) = (display_field(one, "proxy"), display_field(one, "since"));
        let period = |name: &str| {
            one.get(name).map(|figures| (display_field(figures, "tasks"), display_field(figures, "failures")))
        };
        let ((tasks, failed), (before, failed_before)) =
            (period("now").unwrap_or_default(), period("earlier").unwrap_or_default());
        screen.line(format_args!(
            "{proxy} since {since}: {tasks} tasks, {failed} failed (history: {before} tasks, {failed_before} failed)"
        ))?;
        if one.get("has_history") == Some(&Value::Bool(false)) {
            screen.line(format_args!("  too little history to compare rates, sizes and times"))?;
        }
        let mut count = 0;
        for deviation in list(one, "deviations") {
            count += 1;
            screen.line(format_args!(
                "  {}: {}",
                display_field(deviation, "code"),
                display_field(deviation, "text")
            ))?;
        }
        if count == 0 {
            screen.line(format_args!("  no deviations"))?;
        }
    }
    Ok(exit)
}
