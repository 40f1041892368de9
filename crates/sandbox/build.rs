//! Compiles the commented list of system calls into the filter that is loaded.
//!
//! Takes `filters/worker.<arch>.json`; gives three arrays of instructions: for workers without and with a scratch
//! folder, and for a zygote. Promise: a list that does not compile fails the build; a processor without a list gets
//! empty filters, which the worker reports as a missing layer.

#![expect(clippy::disallowed_methods, reason = "cargo speaks to build scripts through the environment")]

use std::collections::HashMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use seccompiler::{BpfProgram, TargetArch, compile_from_json};
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=filters");
    println!("cargo::rerun-if-changed=build.rs");
    let arch = env::var("CARGO_CFG_TARGET_ARCH")?;
    let list = format!("filters/worker.{arch}.json");
    let text = fs::read_to_string(&list).ok();
    let mut code = String::new();
    for (name, more) in [("PLAIN", None), ("SCRATCH", Some("scratch")), ("MOULD", Some("mould"))] {
        let program = match &text {
            Some(text) => compiled(text, more, TargetArch::try_from(arch.as_str())?)?,
            None => BpfProgram::new(),
        };
        writeln!(code, "const {name}: &[(u16, u8, u8, u32)] = &[")?;
        for step in program {
            writeln!(code, "    ({}, {}, {}, {}),", step.code, step.jt, step.jf, step.k)?;
        }
        writeln!(code, "];")?;
    }
    fs::write(Path::new(&env::var("OUT_DIR")?).join("filters.rs"), code)?;
    Ok(())
}

/// The list for every worker, plus one additional list.
fn compiled(text: &str, more: Option<&str>, arch: TargetArch) -> Result<BpfProgram, Box<dyn Error>> {
    let lists: HashMap<String, Value> = serde_json::from_str(text)?;
    let rules = |name: &str| lists.get(name).and_then(|list| list.get("filter")?.as_array()).cloned();
    let mut all = rules("always").ok_or("there is no list `always`")?;
    if let Some(more) = more {
        let more = rules(more).ok_or_else(|| format!("there is no list `{more}`"))?;
        // A call that the second list allows without a condition loses its conditions.
        let free = |rule: &&Value| rule.get("args").is_none();
        let freed: Vec<_> = more.iter().filter(free).filter_map(|rule| rule.get("syscall").cloned()).collect();
        all.retain(|rule| rule.get("syscall").is_none_or(|call| !freed.contains(call)));
        all.extend(more);
    }
    if let Some(bare) = all.iter().find(|rule| rule.get("comment").and_then(Value::as_str).is_none_or(str::is_empty)) {
        return Err(format!("a call without a reason: {bare}").into());
    }
    let mut whole = lists.get("always").cloned().ok_or("there is no list `always`")?;
    if let Value::Object(parts) = &mut whole {
        parts.insert("filter".into(), Value::Array(all));
    }
    let whole = serde_json::to_vec(&HashMap::from([("worker", whole)]))?;
    let mut programs = compile_from_json(whole.as_slice(), arch)?;
    programs.remove("worker").ok_or_else(|| "the filter was not compiled".into())
}
