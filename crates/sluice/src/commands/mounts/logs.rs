//! `sluice mounts logs`: the error output of a mounted server.
//!
//! Takes a name; prints its lines, oldest first. Promise: nothing that a server wrote reaches the terminal unescaped.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::path;
use crate::client::{ApiRequest, GatewayClient, display_field, text_field};
use crate::console::CommandConsole;
use crate::escape;
use crate::failure::{CliError, CommandExit};

/// How often new lines are asked for.
const EVERY: Duration = Duration::from_secs(1);

/// Show the error output of a server.
#[derive(Debug, Args)]
pub(super) struct MountsLogsArgs {
    /// Name of the server
    name: String,
    /// How many lines to show
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=5000))]
    lines: u32,
    /// Keep printing new lines
    #[arg(long, short, conflicts_with = "json")]
    follow: bool,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

impl MountsLogsArgs {
    pub(super) fn run(&self, client: &GatewayClient, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let ask = |after: u64, lines: u32| {
            let ask = ApiRequest::get(path(&self.name, "/logs")).with("limit", Some(lines));
            client.send(&ask.with("after", Some(after)))
        };
        let mut found = ask(0, self.lines)?;
        if self.json {
            screen.json(&found)?;
            return Ok(CommandExit::Ok);
        }
        if super::list(&found, "data").is_empty() {
            screen.note(format_args!("`{}` has written nothing yet", escape::escape_line(&self.name)));
        }
        let dropped = found.get("dropped").and_then(Value::as_u64).unwrap_or(0);
        if dropped > 0 {
            screen.note(format_args!("{dropped} older lines are no longer kept"));
        }
        let mut last = 0;
        loop {
            for line in super::list(&found, "data") {
                last = line.get("number").and_then(Value::as_u64).unwrap_or(0).max(last);
                let mark = if text_field(line, "from") == "gateway" { "# " } else { "" };
                screen.line(format_args!(
                    "{}  {mark}{}",
                    display_field(line, "at"),
                    escape::escape_line(text_field(line, "text"))
                ))?;
            }
            if !self.follow {
                return Ok(CommandExit::Ok);
            }
            client.pause(EVERY);
            found = ask(last, 5_000)?;
        }
    }
}
