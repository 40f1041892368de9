//! What a worker hands over during a sync: one change of a replica, or the message that it is about to open.
//!
//! Takes a change after all six stages; gives the JSON of an item. Promise: the contents of attachments travel beside
//! the item, as bytes.

use serde::{Deserialize, Serialize};
use sluice_core::mail::Mail;

/// One item of a sync.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WireSyncItem {
    /// The worker is about to open the message with this id.
    Opening(String),
    /// A message as it is now, after all stages.
    Put(Box<Mail>),
    /// A message that was not opened: its id, and none of its content.
    Aside(Box<Mail>),
    /// Only the labels of a message have changed.
    Labels {
        /// The id of the message.
        id: String,
        /// All labels it has now.
        labels: Vec<String>,
    },
    /// The message with this id is no longer there.
    Gone(String),
    /// The names of all labels, as a complete list.
    LabelNames(Vec<(String, String)>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_json_of_every_item_is_pinned() {
        let mail = Mail { id: "m1".into(), ..Mail::default() };
        let whole = serde_json::to_value(&mail).unwrap();
        for (item, json) in [
            (WireSyncItem::Opening("m1".into()), json!({"opening": "m1"})),
            (WireSyncItem::Put(Box::new(mail.clone())), json!({"put": whole})),
            (WireSyncItem::Aside(Box::new(mail)), json!({"aside": whole})),
            (
                WireSyncItem::Labels { id: "m1".into(), labels: vec!["INBOX".into()] },
                json!({"labels": {"id": "m1", "labels": ["INBOX"]}}),
            ),
            (WireSyncItem::Gone("m1".into()), json!({"gone": "m1"})),
            (WireSyncItem::LabelNames(vec![("1".into(), "A".into())]), json!({"label_names": [["1", "A"]]})),
        ] {
            assert_eq!(serde_json::to_value(&item).unwrap(), json);
            assert_eq!(serde_json::from_value::<WireSyncItem>(json).unwrap(), item);
        }
    }
}
