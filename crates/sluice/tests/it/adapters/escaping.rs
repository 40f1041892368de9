//! What a service behind an adapter of others escapes: no attack and no credential reaches an agent that way.

use serde_json::json;

use super::test_gateway::{AdapterTestGateway, TOKEN};
use crate::escaped::{assert_holds_nothing, assert_no_file_holds, attacks, spellings};

#[tokio::test]
async fn no_escape_behind_an_adapter_of_others_hides_an_attack_or_a_credential() {
    let house = AdapterTestGateway::connected().await;
    let item = |text: &str| {
        format!("{{\"items\": [{{\"id\": \"t1\", \"title\": \"{text}\", \"mark\": \"\", \"done\": false}}]}}")
    };
    for (how, spelled) in spellings(TOKEN) {
        house.todo.desk().verbatim = Some(item(&spelled));
        let list = house.read("todo.list").await;
        assert_holds_nothing(&list, TOKEN, how);
        assert!(list.to_string().contains("credential removed"), "{how}: {list}");
    }
    house.todo.desk().verbatim = Some(item("a\\u202eb\\u0000c\\u200bd"));
    assert_eq!(house.read("todo.list").await["data"]["items"][0]["title"], json!("a⟨U+202E⟩b⟨U+0000⟩cd"));
    for (how, text) in attacks() {
        house.todo.desk().verbatim = Some(item(&text));
        let list = house.read("todo.list").await;
        assert!(list["data"]["withheld"].is_object(), "{how}: {list}");
    }
    assert_no_file_holds(house.folder.path(), TOKEN);
}
