//! The JSON Schema of policy files, for editors. The engine checks more than a schema can say.

/// JSON Schema (draft 2020-12) of `org.yaml` and `agents/<name>.yaml`.
pub const SCHEMA: &str = include_str!("../../../../policies/schema.json");

#[cfg(test)]
mod tests {
    use super::super::fault::FaultCollector;
    use super::super::{SYSTEM, TEMPLATES, yaml};
    use super::*;
    use serde_json::Value;

    /// Checks a value against the part of JSON Schema that our schema uses.
    fn fits(schema: &Value, value: &Value, root: &Value) -> Result<(), String> {
        let Some(rules) = schema.as_object() else { return Ok(()) };
        let problem = |what: &str| Err(format!("{what}: {value}"));
        for (keyword, expected) in rules {
            match keyword.as_str() {
                "$ref" => {
                    let path = expected.as_str().unwrap().strip_prefix('#').unwrap();
                    fits(root.pointer(path).unwrap(), value, root)?;
                }
                "anyOf" => {
                    if expected.as_array().unwrap().iter().all(|one| fits(one, value, root).is_err()) {
                        return problem("none of anyOf");
                    }
                }
                "enum" if !expected.as_array().unwrap().contains(value) => return problem("enum"),
                "type" => {
                    let is = |name: &Value| match name.as_str().unwrap() {
                        "object" => value.is_object(),
                        "array" => value.is_array(),
                        "string" => value.is_string(),
                        "integer" => value.is_i64(),
                        "number" => value.is_number(),
                        "boolean" => value.is_boolean(),
                        "null" => value.is_null(),
                        other => panic!("type {other}"),
                    };
                    let one_fits = expected.as_array().map_or_else(|| is(expected), |list| list.iter().any(is));
                    if !one_fits {
                        return problem("type");
                    }
                }
                "required" => {
                    for name in expected.as_array().unwrap() {
                        if value.as_object().is_some_and(|object| !object.contains_key(name.as_str().unwrap())) {
                            return problem("required");
                        }
                    }
                }
                "items" => value.as_array().into_iter().flatten().try_for_each(|item| fits(expected, item, root))?,
                "minItems" if value.as_array().is_some_and(|list| list.len() < expected.as_u64().unwrap() as usize) => {
                    return problem("minItems");
                }
                "minimum" if value.as_i64().is_some_and(|n| n < expected.as_i64().unwrap()) => {
                    return problem("minimum");
                }
                "minLength" if value.as_str() == Some("") => return problem("minLength"),
                "pattern" => {
                    let regex = regex::Regex::new(expected.as_str().unwrap()).unwrap();
                    if value.as_str().is_some_and(|text| !regex.is_match(text)) {
                        return problem("pattern");
                    }
                }
                "additionalProperties" => {
                    let empty = serde_json::Map::new();
                    let listed = rules.get("properties").and_then(Value::as_object).unwrap_or(&empty);
                    let patterns = rules.get("patternProperties").and_then(Value::as_object).unwrap_or(&empty);
                    for (name, member) in value.as_object().into_iter().flatten() {
                        let by_pattern = patterns.iter().find(|(p, _)| regex::Regex::new(p).unwrap().is_match(name));
                        match listed.get(name).or(by_pattern.map(|(_, schema)| schema)) {
                            Some(schema) => fits(schema, member, root)?,
                            None => return Err(format!("unknown key {name}")),
                        }
                    }
                }
                "enum" | "minItems" | "minimum" | "minLength" | "maxItems" | "maxLength" | "properties"
                | "patternProperties" | "$schema" | "title" | "description" | "$defs" => {}
                other => panic!("the checker does not know `{other}`"),
            }
        }
        Ok(())
    }

    fn check(text: &str) -> Result<(), String> {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        let document = yaml::parse(text, &mut FaultCollector::new("f", text)).unwrap();
        fits(&schema, &document.root.unwrap().to_json(), &schema)
    }

    #[test]
    fn every_file_we_ship_fits_the_schema() {
        check(SYSTEM).unwrap();
        for file in TEMPLATES.iter().flat_map(|template| template.files) {
            check(file.text).unwrap_or_else(|why| panic!("{}: {why}", file.path));
        }
    }

    #[test]
    fn what_the_engine_refuses_by_shape_the_schema_refuses_too() {
        for bad in [
            "rules: [{capabilty: email.send, tier: notify}]",
            "rules: [{capability: email.send, tier: never}]",
            "rules: [{capability: email.send}]",
            "rules: [{capability: 'em*il', tier: notify}]",
            "rules: [{capability: email.send, tier: notify, conditions: {colour: red}}]",
            "rules: [{capability: email.send, tier: notify, conditions: {recipients_within: []}}]",
            "rules: [{capability: email.send, tier: notify, conditions: {recipients_max: 0}}]",
            "rules: [{capability: email.send, tier: notify, conditions: {hours: {from: '08:00', to: '09:00'}}}]",
            "rules: [{capability: email.send, tier: notify, conditions: {rate_limit: {max: 5, window: fast}}}]",
            "overrides: []\nrules: []",
            "tests: [{given: {capability: email.send}}]",
        ] {
            assert!(check(bad).is_err(), "{bad}");
            let is_org = bad.contains("overrides");
            let loaded = if is_org {
                super::super::tests::load(bad, &[])
            } else {
                super::super::tests::load("", &[("clerk", bad)])
            };
            assert!(loaded.is_err(), "{bad}");
        }
    }
}
