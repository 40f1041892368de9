//! The manual of the configuration, as it is printed.

#[test]
fn the_manual_of_the_configuration_is_what_the_code_says() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    #[expect(clippy::disallowed_methods, reason = "the switch of this test is its edge; nothing else reads it")]
    let update = std::env::var("UPDATE_DOCS").is_ok_and(|value| value == "1");
    for (name, text) in [("config.md", sluice_config::markdown()), ("sluice.schema.json", sluice_config::schema())] {
        let path = folder.join(name);
        if update {
            std::fs::write(&path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == text, "docs/{name} is stale: run this test with UPDATE_DOCS=1");
    }
}
