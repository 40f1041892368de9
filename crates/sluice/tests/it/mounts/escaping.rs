//! What a mounted server escapes: no attack, no hidden character and no credential reaches an agent that way.

use super::*;
use crate::escaped::{assert_holds_nothing, assert_no_file_holds, attacks, spellings};

/// A server whose next result is what its file says, to the byte.
fn verbatim() -> (tempfile::NamedTempFile, MountTestGateway) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let more = format!("      STUB_FILE: \"{}\"\n", file.path().display());
    let lines = stub("odd", "verbatim", &more);
    let lines = lines.replace("files: {read: [", &format!("files: {{read: [\"{}\", ", file.path().display()));
    let scene = MountTestGateway::new(&lines, FREE);
    scene.open("odd");
    (file, scene)
}

#[test]
fn no_escape_of_a_mounted_server_hides_an_attack_or_a_character() {
    let (file, scene) = verbatim();
    let result = |result: &str| {
        fs::write(file.path(), result).unwrap();
        scene.call("odd.echo", "x")
    };
    for (how, text) in attacks() {
        for said in [
            format!("{{\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}]}}"),
            format!("{{\"content\":[],\"structuredContent\":{{\"a\":[\"{text}\"]}}}}"),
            format!("{{\"content\":[],\"structuredContent\":{{\"{text}\":1}}}}"),
            format!("{{\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}],\"isError\":true}}"),
            format!(
                "{{\"content\":[{{\"type\":\"resource\",\"resource\":{{\"uri\":\"file:///a\",\"text\":\"{text}\"}}}}]}}"
            ),
            format!("{{\"content\":[{{\"type\":\"resource_link\",\"uri\":\"file:///a\",\"name\":\"{text}\"}}]}}"),
        ] {
            let answer = result(&said);
            assert!(answer.body["result"]["data"]["withheld"].is_object(), "{how}: {said}: {answer:?}");
        }
    }
    let page = "<p>Tea</p>";
    let said = json!({"content": [{"type": "text", "text": page}], "structuredContent": {"page": page, "n": 1.5}});
    let escaped = said.to_string().replace('<', "\\u003c").replace("Tea", "T\\u202eea\\u0000\\u200b");
    let given = result(&escaped).body["result"]["data"].clone();
    assert_eq!(given["content"][0]["text"], "<p>T⟨U+202E⟩ea⟨U+0000⟩</p>", "{given}");
    let structured = &given["structured"];
    assert_eq!(structured["page"].as_str().map(str::trim), Some("T⟨U+202E⟩ea⟨U+0000⟩"), "{given}");
    assert_eq!(structured["n"], 1.5);
    for twice in [r#"{"content":[],"content":[]}"#, r#"{"content":[],"structuredContent":{"a":1,"\u0061":2}}"#] {
        let answer = result(twice);
        assert_eq!(
            (answer.status, &answer.body["code"]),
            (502, &json!("content.duplicate_key")),
            "{twice}: {answer:?}"
        );
    }
}

#[test]
fn no_spelling_of_a_credential_comes_back_through_a_mounted_server() {
    const SECRET: &str = "Zq3vK8mPw2Lx7Ry5Tn9Bd4Hf";
    let (file, scene) = verbatim();
    let secret = json!({"value": SECRET, "capabilities": ["odd.*"], "hosts": ["localhost"], "kind": "api_key"});
    let set = scene.operator("PUT", "/v1/secrets/odd%2Fkey", Some(&secret));
    assert!(set.status < 300, "{set:?}");
    for (how, spelled) in spellings(SECRET) {
        let said = format!(
            "{{\"content\":[{{\"type\":\"text\",\"text\":\"{spelled}\"}}],\"structuredContent\":{{\"echo\":\"{spelled}\"}}}}"
        );
        fs::write(file.path(), said).unwrap();
        let answer = scene.call("odd.echo", "x");
        assert_eq!(answer.status, 200, "{how}: {answer:?}");
        let mut shown = answer.body.clone();
        if how == "markup in between" {
            // A text of a tool stays as it was written, and in between its halves stand tags.
            shown["result"]["data"]["content"] = Value::Null;
        }
        assert_holds_nothing(&shown, SECRET, how);
        assert!(shown.to_string().contains("credential removed"), "{how}: {shown}");
    }
    assert_no_file_holds(&scene.place.folder.path().join("data"), SECRET);
}
