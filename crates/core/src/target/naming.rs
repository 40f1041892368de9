//! Splits names of tools and arguments into words, and reads their meaning.
//!
//! Takes a name such as `force_push` or `zipCode`; answers whether it deletes, pays, hands over, forces or is executed.
//! Promise: a name is split the same way everywhere, so that risk, learning and bounds agree about it.

use serde_json::{Map, Value};

/// Deepest nesting of arguments that is read.
const DEPTH: usize = 12;

/// Words of tools that remove something.
const DELETES: [&str; 14] = [
    "delete",
    "deletes",
    "remove",
    "destroy",
    "purge",
    "clear",
    "drop",
    "erase",
    "wipe",
    "truncate",
    "unlink",
    "rm",
    "trash",
    "uninstall",
];
/// Words of tools that move money.
const PAYS: [&str; 16] = [
    "pay",
    "pays",
    "payment",
    "payments",
    "payout",
    "purchase",
    "buy",
    "order",
    "checkout",
    "refund",
    "charge",
    "wire",
    "withdraw",
    "invoice",
    "subscribe",
    "transfer",
];
/// Words of arguments that say how much money is moved, or where it goes.
const MONEY: [&str; 11] =
    ["amount", "amounts", "price", "fee", "cost", "iban", "currency", "payment", "payments", "payout", "sum"];
/// Words of tools that change ownership or permissions.
const OWNS: [&str; 13] = [
    "owner",
    "owners",
    "ownership",
    "transfer",
    "grant",
    "chown",
    "chmod",
    "permission",
    "permissions",
    "admin",
    "admins",
    "sudo",
    "role",
];
/// Words of tools and switches that override a protection.
const FORCES: [&str; 6] = ["force", "forced", "overwrite", "override", "bypass", "unsafe"];
/// Words of arguments whose value is executed.
const EXECUTED: [&str; 20] = [
    "code",
    "command",
    "commands",
    "cmd",
    "script",
    "scripts",
    "sql",
    "query",
    "queries",
    "statement",
    "expression",
    "eval",
    "program",
    "shell",
    "bash",
    "python",
    "javascript",
    "snippet",
    "args",
    "argv",
];
/// Words that make an argument executable wherever they stand in its name: `script_content`.
const EXECUTED_ANYWHERE: [&str; 7] = ["command", "cmd", "script", "sql", "shell", "bash", "eval"];
/// Words before `code` that make it a number in a table.
const CODED: [&str; 12] =
    ["zip", "postal", "post", "country", "currency", "area", "status", "error", "exit", "language", "lang", "reason"];
/// Words of tools that execute what they are given.
const EXECUTES: [&str; 13] = [
    "bash",
    "sh",
    "zsh",
    "shell",
    "exec",
    "execute",
    "eval",
    "terminal",
    "powershell",
    "python",
    "repl",
    "sql",
    "javascript",
];

/// The words of a name in lower case: `event_title`, `eventTitle` and `event.title` have the same two.
pub(crate) fn words_of(name: &str) -> Vec<String> {
    let mut spaced = String::with_capacity(name.len() + 4);
    let mut small = false;
    for c in name.chars() {
        if c.is_uppercase() && small {
            spaced.push(' ');
        }
        small = c.is_lowercase();
        spaced.extend(c.to_lowercase());
    }
    spaced.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn has(name: &str, words: &[&str]) -> bool {
    words_of(name).iter().any(|word| words.contains(&word.as_str()))
}

/// The part of a capability's name that says what it does: `send` of `email.send`, `Bash` of `custom:Bash`.
pub(crate) fn verb_of(capability: &str) -> &str {
    capability.rsplit(['.', ':']).next().unwrap_or(capability)
}

/// Whether a tool of this name removes something.
pub(crate) fn deletes(verb: &str) -> bool {
    has(verb, &DELETES)
}

/// Whether a tool of this name moves money.
pub(crate) fn pays(name: &str) -> bool {
    has(name, &PAYS)
}

/// Whether a tool of this name executes what it is given.
pub(crate) fn executes(verb: &str) -> bool {
    has(verb, &EXECUTES)
}

/// Whether the value of an argument of this name is executed.
pub(crate) fn is_executed(argument: &str) -> bool {
    let words = words_of(argument);
    let is = |word: &String, list: &[&str]| list.contains(&word.as_str());
    if words.iter().any(|word| is(word, &EXECUTED_ANYWHERE)) {
        return true;
    }
    match words.as_slice() {
        [.., before, last] if last == "code" => !is(before, &CODED),
        [.., last] => is(last, &EXECUTED),
        [] => false,
    }
}

/// Whether the value of an argument of this name is one command line.
pub(crate) fn is_command(argument: &str) -> bool {
    matches!(words_of(argument).last().map(String::as_str), Some("command" | "cmd"))
}

/// Whether such a call must be approved each time: it deletes, pays, hands over or overrides.
pub(crate) fn is_decided_each_time(verb: &str, arguments: &Map<String, Value>) -> bool {
    [&DELETES[..], &PAYS, &OWNS, &FORCES].iter().any(|words| has(verb, words))
        || forces(arguments, 0)
        || names_money(arguments)
}

/// Whether a switch that overrides a protection is set anywhere.
fn forces(arguments: &Map<String, Value>, depth: usize) -> bool {
    arguments.iter().any(|(name, value)| {
        let set = !matches!(value, Value::Null | Value::Bool(false)) && *value != Value::String(String::new());
        (set && has(name, &FORCES)) || (depth < DEPTH && below(value, |map| forces(map, depth + 1)))
    })
}

/// Whether any object directly in a value, or in its list, satisfies the test.
fn below(value: &Value, is: impl Fn(&Map<String, Value>) -> bool + Copy) -> bool {
    match value {
        Value::Object(map) => is(map),
        Value::Array(list) => list.iter().any(|item| below(item, is)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Whether an argument at any depth is about money.
pub(crate) fn names_money(arguments: &Map<String, Value>) -> bool {
    any_name(arguments, 0, &|name| has(name, &MONEY))
}

fn any_name(arguments: &Map<String, Value>, depth: usize, is: &dyn Fn(&str) -> bool) -> bool {
    arguments
        .iter()
        .any(|(name, value)| is(name) || (depth < DEPTH && below(value, |map| any_name(map, depth + 1, is))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_name_is_cut_at_cases_and_signs() {
        assert_eq!(words_of("eventTitle"), ["event", "title"]);
        assert_eq!(words_of("force_push.now"), ["force", "push", "now"]);
        assert_eq!(verb_of("mount.shop.create_order"), "create_order");
    }

    #[test]
    fn what_is_carried_out_is_told_from_a_code_of_a_table() {
        for name in ["code", "command", "shell_command", "script_content", "sql", "sqlQuery", "args", "source_code"] {
            assert!(is_executed(name), "{name}");
        }
        for name in ["zip_code", "countryCode", "body", "message", "path", "commander"] {
            assert!(!is_executed(name), "{name}");
        }
    }

    #[test]
    fn deletion_payment_ownership_and_force_are_decided_each_time() {
        let each = |verb: &str, arguments: Value| is_decided_each_time(verb, arguments.as_object().unwrap());
        for verb in ["delete", "bulk_delete", "pay_invoice", "transfer_ownership", "force_push", "chmod"] {
            assert!(each(verb, json!({})), "{verb}");
        }
        assert!(each("push", json!({"force": true})));
        assert!(each("push", json!({"options": [{"force": "yes"}]})));
        assert!(!each("push", json!({"force": false})));
        assert!(!each("send", json!({"to": "a@b.example"})));
    }
}
