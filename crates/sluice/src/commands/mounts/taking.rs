//! Has the running gateway take up what `sluice.yaml` says of the mounts now.
//!
//! Takes what was changed; gives what became of it, for people. Promise: a gateway that is not there, or cannot be
//! asked from here, is said to be so; what does not come up is not reported as done.

use std::path::Path;

use serde_json::Value;
use sluice_core::Span;

use super::{One, path, say};
use crate::client::{Ask, Reach, shown, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// How long the gateway may take to end what is gone, and to look at what is new.
const PATIENCE: Span = Span::from_mins(5);

/// Has the gateway take up a changed file, and shows each mount that is new.
pub(super) fn up(reach: &Reach, screen: &Screen, file: &Path, new: Vec<String>) -> Result<Exit, Failure> {
    let asked = reach.operator().and_then(|client| {
        let done = client.ask(&Ask::post("/v1/mounts/reload").waits(PATIENCE))?;
        Ok((client, done))
    });
    let (client, done) = match asked {
        Ok(asked) => asked,
        Err(failure) if failure.exit == Exit::Unreachable => {
            screen.note(format_args!(
                "{} is changed; no gateway answers here: it is taken up when one starts",
                file.display()
            ));
            return Ok(Exit::Ok);
        }
        Err(failure) if failure.exit == Exit::NotSignedIn => {
            screen.note(format_args!(
                "{} is changed; there is no operator token here to tell a running gateway: sluice mounts reload, or SIGHUP",
                file.display()
            ));
            return Ok(Exit::Ok);
        }
        Err(failure) => {
            return Err(Failure { message: format!("sluice.yaml is changed, but {}", failure.message), ..failure });
        }
    };
    tell(screen, &done)?;
    let mut exit = Exit::Ok;
    for name in new {
        let one = One { name, json: false };
        let mount = match client.ask(&Ask::post(path(&one.name, "/test")).waits(PATIENCE)) {
            Err(failure) if failure.exit == Exit::NotFound => {
                let why = format!("the gateway at {} reads another file than `{}`", client.address(), file.display());
                return Err(Failure::new(Exit::Failed, format!("`{}` is not there", one.name)).why(why));
            }
            answered => answered?,
        };
        say(screen, &one, &mount)?;
        if text(&mount, "state") != "open" {
            exit = Exit::Failed;
        }
    }
    Ok(exit)
}

/// What a reload did, in a few lines.
pub(super) fn tell(screen: &Screen, done: &Value) -> Result<(), Failure> {
    let mut any = false;
    for (field, word) in [("added", "new"), ("changed", "started again"), ("removed", "gone")] {
        for name in done.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            any = true;
            screen.line(format_args!("{}: {word}", crate::visible::line(name)))?;
        }
    }
    if !any {
        screen.line("the mounts are those already there")?;
    }
    let cancelled = done.get("cancelled").and_then(Value::as_array).map_or(0, Vec::len);
    if cancelled > 0 {
        screen.line(format_args!("held writes cancelled: {cancelled}"))?;
    }
    if done.get("after_restart").and_then(Value::as_array).is_some_and(|keys| !keys.is_empty()) {
        screen.note(format_args!(
            "these keys take effect when the gateway starts again: {}",
            shown(done, "after_restart")
        ));
    }
    Ok(())
}
