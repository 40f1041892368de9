//! The schema and the manual of `sluice.yaml`, generated from the sections themselves.

use std::fmt::Write as _;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::reader::variable;
use super::section::{ConfigField, ConfigSection, key, properties};
use super::setting::word;
use super::{
    Approvals, Audit, Batch, Budgets, ConfigSections, Connected, Content, DatabaseSettings, Disk, Egress, Email, FILE,
    Filesystem, General, Git, Holds, Inbox, Leak, Limits, Log, OauthClient, Process, Recovery, Release, Retention,
    Sessions, State, Telegram, TlsFiles, ToolSettings, Vault, Workers,
};

/// A section of the manual.
struct ManualSection {
    name: &'static str,
    meaning: String,
    fields: Vec<ConfigField>,
}

fn page<S: ConfigSection>() -> ManualSection {
    ManualSection { name: S::NAME, meaning: S::meaning(), fields: S::fields() }
}

fn pages() -> [ManualSection; 30] {
    [
        page::<General>(),
        page::<TlsFiles>(),
        page::<DatabaseSettings>(),
        page::<Limits>(),
        page::<Holds>(),
        page::<Release>(),
        page::<Batch>(),
        page::<Budgets>(),
        page::<Retention>(),
        page::<Approvals>(),
        page::<Telegram>(),
        page::<Email>(),
        page::<Inbox>(),
        page::<Filesystem>(),
        page::<Git>(),
        page::<Process>(),
        page::<State>(),
        page::<Disk>(),
        page::<Sessions>(),
        page::<Content>(),
        page::<Leak>(),
        page::<Log>(),
        page::<ToolSettings>(),
        page::<Workers>(),
        page::<Connected>(),
        page::<OauthClient>(),
        page::<Vault>(),
        page::<Egress>(),
        page::<Audit>(),
        page::<Recovery>(),
    ]
}

/// All keys, such as `listen` and `limits.body`.
pub(crate) fn known_keys() -> Vec<String> {
    pages().iter().flat_map(|page| page.fields.iter().map(|field| key(page.name, field.name))).collect()
}

impl JsonSchema for ConfigSections {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        FILE.into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let sections = [
            ("tls", generator.subschema_for::<TlsFiles>()),
            ("database", generator.subschema_for::<DatabaseSettings>()),
            ("limits", generator.subschema_for::<Limits>()),
            ("holds", generator.subschema_for::<Holds>()),
            ("release", generator.subschema_for::<Release>()),
            ("batch", generator.subschema_for::<Batch>()),
            ("approvals", generator.subschema_for::<Approvals>()),
            ("telegram", generator.subschema_for::<Telegram>()),
            ("email", generator.subschema_for::<Email>()),
            ("inbox", generator.subschema_for::<Inbox>()),
            ("budgets", generator.subschema_for::<Budgets>()),
            ("retention", generator.subschema_for::<Retention>()),
            ("filesystem", generator.subschema_for::<Filesystem>()),
            ("git", generator.subschema_for::<Git>()),
            ("process", generator.subschema_for::<Process>()),
            ("state", generator.subschema_for::<State>()),
            ("disk", generator.subschema_for::<Disk>()),
            ("sessions", generator.subschema_for::<Sessions>()),
            ("content", generator.subschema_for::<Content>()),
            ("leak", generator.subschema_for::<Leak>()),
            ("log", generator.subschema_for::<Log>()),
            ("tools", generator.subschema_for::<ToolSettings>()),
            ("workers", generator.subschema_for::<Workers>()),
            ("services", generator.subschema_for::<Connected>()),
            ("oauth", generator.subschema_for::<OauthClient>()),
            ("vault", generator.subschema_for::<Vault>()),
            ("egress", generator.subschema_for::<Egress>()),
            ("audit", generator.subschema_for::<Audit>()),
            ("recovery", generator.subschema_for::<Recovery>()),
        ];
        let mut all = properties(&General::fields());
        all.extend(sections.map(|(name, schema)| (name.to_owned(), Value::from(schema))));
        json_schema!({
            "title": FILE,
            "description": "Configuration of a Sluicegate gateway. The gateway checks more than a schema can say.",
            "type": ["object", "null"],
            "additionalProperties": false,
            "properties": all,
        })
    }
}

/// JSON Schema (draft 2020-12) of `sluice.yaml`, for editors.
#[must_use]
pub fn schema() -> String {
    let schema = SchemaGenerator::default().into_root_schema_for::<ConfigSections>();
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

/// The manual of `sluice.yaml`, `docs/config.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(
        "# Configuration\n\n\
         Generated from the code; a test fails when this page is stale and rewrites it with `UPDATE_DOCS=1`.\n\n\
         The configuration is one file, `sluice.yaml`, and `SLUICE_…` variables. A flag wins over a variable, a \
         variable over the file, the file over the default; `sluice config show --origin` says which one won. Every \
         key has a variable: upper case, `__` for the dot. Lists are separated by commas there. An empty variable \
         counts as not set; \
         an unknown key or variable is an error. `SLUICE_DATABASE_URL` and `SLUICE_DATABASE_URL_FILE` are accepted \
         too. `SLUICE_CONFIG`, `SLUICE_URL`, `SLUICE_CA_FILE`, `SLUICE_TOKEN`, `SLUICE_TOKEN_FILE`, \
         `SLUICE_AGENT_KEY`, `SLUICE_AGENT_KEY_FILE`, `SLUICE_TASK_KEY`, `SLUICE_TASK_KEY_FILE` and `SLUICE_PAGER` belong \
         to the command line.\n\n\
         Durations are written `30s`, `10m`, `24h`, `7d`; sizes `1MB` (a million bytes) or `1MiB`. Relative paths of \
         the file begin at its folder, those of variables and flags where the program was started. \
         [`sluice.schema.json`](sluice.schema.json) completes and checks the file in an editor.\n",
    );
    for page in pages() {
        let title = if page.name.is_empty() { "At the top" } else { page.name };
        let _ = write!(
            text,
            "\n## {title}\n\n{}\n\n| key | default | meaning | variable |\n|---|---|---|---|\n",
            page.meaning
        );
        for field in &page.fields {
            let key = key(page.name, field.name);
            let default = match (field.by, &field.default) {
                (Some(by), _) => by.to_owned(),
                (None, value @ (Value::Array(_) | Value::Null)) => word(value),
                (None, Value::Object(map)) if map.is_empty() => "none".to_owned(),
                (None, value @ Value::Object(_)) => format!("`{value}`"),
                (None, value) => format!("`{}`", word(value)),
            };
            let meaning = field.meaning.replace('|', "\\|");
            let _ = writeln!(text, "| `{key}` | {default} | {meaning} | `{}` |", variable(&key));
        }
    }
    text.push_str(CODES);
    text
}

/// Problems have stable codes, like those of policy files.
const CODES: &str = "
## Problems

| code | what it means |
|---|---|
| `config.unreadable` | the file cannot be read |
| `config.not_utf8` | the file is not UTF-8 text |
| `config.too_large` | the file is larger than it may be |
| `config.syntax` | the file is not one plain YAML document |
| `config.alias` | anchors and aliases are not accepted |
| `config.key` | a value that cannot be a key is in the place of a key |
| `config.duplicate_key` | a key occurs twice |
| `config.unknown_key` | the key does not exist |
| `config.unknown_variable` | the `SLUICE_…` variable does not exist |
| `config.type` | a section is not a map of keys and values |
| `config.value` | a value is not what the key holds, or out of bounds |
| `config.conflict` | two values contradict each other |
| `config.many_problems` | there are more problems than are shown |
";
