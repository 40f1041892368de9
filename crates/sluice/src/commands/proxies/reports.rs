//! `sluice proxies budget` and `review`: what a day still holds, and what was not usual.

use serde_json::{Value, json};
use sluice_core::Span;

use super::{list, path};
use crate::client::{Ask, Client, entries, shown, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::table::Table;

/// What a review is asked for.
pub(super) struct Wanted {
    /// How long the period is.
    pub since: Span,
    /// Whether a deviation is a failure.
    pub strict: bool,
    /// For machines.
    pub json: bool,
}

/// The names that are meant: the one given, or all that run.
fn names(client: &Client, name: Option<&str>) -> Result<Vec<String>, Failure> {
    if let Some(name) = name {
        return Ok(vec![name.to_owned()]);
    }
    let all = client.whole("/v1/proxies")?;
    let running = entries(&all).iter().filter(|proxy| text(proxy, "state") != "flawed");
    Ok(running.map(|proxy| text(proxy, "name").to_owned()).collect())
}

fn ask_each(client: &Client, names: &[String], rest: &str) -> Result<Vec<Value>, Failure> {
    names.iter().map(|name| client.ask(&Ask::get(path(name, rest)))).collect()
}

/// A usage in a line.
fn usage(value: &Value, field: &str) -> String {
    let Some(found) = value.get(field) else { return String::new() };
    let seconds = found.get("milliseconds").and_then(Value::as_u64).unwrap_or(0) / 1000;
    let (requests, bytes, cost) = (shown(found, "requests"), shown(found, "bytes"), shown(found, "cost"));
    format!("{requests} requests, {bytes} bytes, {seconds} s, cost {cost}")
}

pub(super) fn budget(
    client: &Client,
    screen: &Screen,
    name: Option<&str>,
    (days, as_json): (u32, bool),
) -> Result<Exit, Failure> {
    let found = ask_each(client, &names(client, name)?, &format!("/budget?days={days}"))?;
    if as_json {
        screen.json(&json!({"data": found}))?;
        return Ok(Exit::Ok);
    }
    if found.is_empty() {
        screen.note(format_args!("there are no proxies: put a declaration into proxies/"));
    }
    for one in &found {
        let line = |name: &str, value: String| screen.line(format_args!("{name:<13} {value}"));
        line("proxy", shown(one, "proxy"))?;
        line("a day allows", usage(one, "limits"))?;
        line("used today", format!("{} ({} %)", usage(one, "used"), shown(one, "percent")))?;
        line("reserved", usage(one, "reserved"))?;
        let fits = one.get("fits") == Some(&Value::Bool(true));
        let full = format!("; no further task until {}", shown(one, "resets_at"));
        line("left", format!("{}{}", usage(one, "left"), if fits { "" } else { full.as_str() }))?;
        line("per spawn", format!("at most {}", usage(one, "estimate")))?;
        let mut table = Table::new(&["day", "tasks", "requests", "bytes", "ms", "cost", "percent"]);
        for day in list(one, "days") {
            let used = |field| day.get("used").map(|used| shown(used, field)).unwrap_or_default();
            table.row(&[
                shown(day, "day"),
                shown(day, "tasks"),
                used("requests"),
                used("bytes"),
                used("milliseconds"),
                used("cost"),
                shown(day, "percent"),
            ]);
        }
        table.print(screen, "no task on these days")?;
    }
    Ok(Exit::Ok)
}

pub(super) fn review(client: &Client, screen: &Screen, name: Option<&str>, wanted: &Wanted) -> Result<Exit, Failure> {
    let period = format!("/review?period={}s", wanted.since.as_secs());
    let found = ask_each(client, &names(client, name)?, &period)?;
    let deviates = found.iter().any(|one| list(one, "deviations").next().is_some());
    let exit = if wanted.strict && deviates { Exit::Failed } else { Exit::Ok };
    if wanted.json {
        screen.json(&json!({"data": found}))?;
        return Ok(exit);
    }
    if found.is_empty() {
        screen.note(format_args!("there are no proxies: put a declaration into proxies/"));
    }
    for one in &found {
        let (proxy, since) = (shown(one, "proxy"), shown(one, "since"));
        let period = |name: &str| one.get(name).map(|figures| (shown(figures, "tasks"), shown(figures, "failures")));
        let ((tasks, failed), (before, failed_before)) =
            (period("now").unwrap_or_default(), period("earlier").unwrap_or_default());
        screen.line(format_args!(
            "{proxy} since {since}: {tasks} tasks, {failed} failed (history: {before} tasks, {failed_before} failed)"
        ))?;
        if one.get("has_history") == Some(&Value::Bool(false)) {
            screen.line(format_args!("  there is too little history to compare rates, sizes and times with"))?;
        }
        let mut count = 0;
        for deviation in list(one, "deviations") {
            count += 1;
            screen.line(format_args!("  {}: {}", shown(deviation, "code"), shown(deviation, "text")))?;
        }
        if count == 0 {
            screen.line(format_args!("  nothing unusual"))?;
        }
    }
    Ok(exit)
}
