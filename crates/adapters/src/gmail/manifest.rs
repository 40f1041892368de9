//! What Gmail offers: the catalogue's `email.*`, and how its writes are put before people.

use sluice_core::ServiceName;
use sluice_core::capability::{Catalogue, CatalogueError};

use crate::manifest::{Manifest, Preview};

const PREVIEWS: [Preview; 8] = [
    Preview {
        capability: "email.send",
        title: "Send a mail to {to}",
        fields: &["from", "to", "cc", "bcc", "subject", "body", "body_html", "attachments"],
    },
    Preview {
        capability: "email.reply",
        title: "Answer the message {message_id}",
        fields: &["message_id", "reply_all", "to", "cc", "bcc", "body", "body_html", "attachments"],
    },
    Preview {
        capability: "email.forward",
        title: "Pass the message {message_id} on to {to}",
        fields: &["message_id", "to", "cc", "bcc", "body"],
    },
    Preview { capability: "email.delete", title: "Move a message to the trash", fields: &["message_id"] },
    Preview { capability: "email.bulk_delete", title: "Move messages to the trash", fields: &["message_ids"] },
    Preview {
        capability: "email.label",
        title: "Change the labels of a message",
        fields: &["message_id", "add_labels", "remove_labels"],
    },
    Preview {
        capability: "email.move",
        title: "Move a message between labels",
        fields: &["message_id", "add_labels", "remove_labels"],
    },
    Preview {
        capability: "email.draft",
        title: "Leave a draft to {to}",
        fields: &["from", "to", "cc", "bcc", "subject", "body"],
    },
];

/// Reads it from the catalogue.
pub fn read() -> Result<Manifest, CatalogueError> {
    let catalogue = Catalogue::builtin()?;
    let email = ServiceName::new("email").map_err(|error| CatalogueError::Syntax(error.to_string()))?;
    let mut manifest = Manifest::of(&catalogue, &email, "gmail");
    manifest.previews = &PREVIEWS;
    // The gateway stops what it holds itself; the service never hears of it.
    manifest.by_gateway = &["email.cancel"];
    Ok(manifest)
}
