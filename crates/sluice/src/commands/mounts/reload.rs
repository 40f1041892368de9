//! Makes the running gateway reload `mounts` from `sluice.yaml`.
//!
//! Takes the change; prints its result for people. Promise: the command says if no gateway responds or if it cannot be
//! contacted from here; a mount that does not start is not reported as done.

use std::path::Path;

use serde_json::Value;
use sluice_core::Millis;

use super::{MountsNameArgs, path, say};
use crate::client::{ApiRequest, GatewayArgs, display_field, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};

/// How long the gateway may take to stop removed mounts and to start new ones.
const PATIENCE: Millis = Millis::from_mins(5);

/// Makes the gateway load a changed file, and shows each new mount.
pub(super) fn reload_and_show(
    reach: &GatewayArgs,
    screen: &CommandConsole,
    file: &Path,
    new: Vec<String>,
) -> Result<CommandExit, CliError> {
    let asked = reach.open_operator_client().and_then(|client| {
        let done = client.send(&ApiRequest::post("/v1/mounts/reload").with_wait(PATIENCE))?;
        Ok((client, done))
    });
    let (client, done) = match asked {
        Ok(asked) => asked,
        Err(failure) if failure.exit == CommandExit::Unreachable => {
            screen.note(format_args!(
                "{} was changed; no gateway responds here: the change is loaded when one starts",
                file.display()
            ));
            return Ok(CommandExit::Ok);
        }
        Err(failure) if failure.exit == CommandExit::NotSignedIn => {
            screen.note(format_args!(
                "{} was changed, but no operator token was found to notify a running gateway: run sluice mounts reload, or send SIGHUP",
                file.display()
            ));
            return Ok(CommandExit::Ok);
        }
        Err(failure) => {
            return Err(CliError { message: format!("sluice.yaml was changed, but {}", failure.message), ..failure });
        }
    };
    print_reload(screen, &done)?;
    let mut exit = CommandExit::Ok;
    for name in new {
        let one = MountsNameArgs { name, json: false };
        let mount = match client.send(&ApiRequest::post(path(&one.name, "/test")).with_wait(PATIENCE)) {
            Err(failure) if failure.exit == CommandExit::NotFound => {
                let why = format!("the gateway at {} uses another file than `{}`", client.address(), file.display());
                return Err(
                    CliError::new(CommandExit::Failed, format!("the gateway has no mount `{}`", one.name)).why(why)
                );
            }
            answered => answered?,
        };
        say(screen, &one, &mount)?;
        if text_field(&mount, "state") != "open" {
            exit = CommandExit::Failed;
        }
    }
    Ok(exit)
}

/// Prints what a reload did.
pub(super) fn print_reload(screen: &CommandConsole, done: &Value) -> Result<(), CliError> {
    let mut any = false;
    for (field, word) in
        [("added", "new"), ("changed", "restarted"), ("restated", "facts changed"), ("removed", "removed")]
    {
        for name in done.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            any = true;
            screen.line(format_args!("{}: {word}", crate::escape::escape_line(name)))?;
        }
    }
    if !any {
        screen.line("the mounts did not change")?;
    }
    let cancelled = done.get("cancelled").and_then(Value::as_array).map_or(0, Vec::len);
    if cancelled > 0 {
        screen.line(format_args!("held writes cancelled: {cancelled}"))?;
    }
    if done.get("after_restart").and_then(Value::as_array).is_some_and(|keys| !keys.is_empty()) {
        screen.note(format_args!("these keys take effect after a restart: {}", display_field(done, "after_restart")));
    }
    Ok(())
}
