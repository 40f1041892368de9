//! What Gmail offers: the catalogue's `email.*`, and how its writes are put before people.

use sluice_core::ServiceName;
use sluice_core::capability::{Catalogue, CatalogueError};

use crate::manifest::Step::{self, Effect, Look, Prepare};
use crate::manifest::{Manifest, Preview, Reach};
use crate::net::Method;

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
        fields: &["message_id", "to", "cc", "bcc", "body", "attachments"],
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
        fields: &["from", "to", "cc", "bcc", "subject", "body", "body_html", "attachments"],
    },
];

const HOME: &str = "https://gmail.googleapis.com";

const REACH: [Reach; 14] = [
    get("/gmail/v1/users/me/profile"),
    get("/gmail/v1/users/me/labels"),
    get("/gmail/v1/users/me/history"),
    get("/gmail/v1/users/me/messages"),
    get("/gmail/v1/users/me/messages/{id}"),
    get("/gmail/v1/users/me/threads/{id}"),
    get("/gmail/v1/users/me/drafts"),
    get("/gmail/v1/users/me/drafts/{id}"),
    post(Prepare, "/gmail/v1/users/me/drafts"),
    post(Effect, "/gmail/v1/users/me/drafts/send"),
    post(Effect, "/gmail/v1/users/me/messages/{id}/modify"),
    post(Effect, "/gmail/v1/users/me/messages/{id}/trash"),
    post(Effect, "/gmail/v1/users/me/messages/{id}/untrash"),
    Reach { step: Effect, method: Method::Delete, path: "/gmail/v1/users/me/drafts/{id}" },
];

const fn get(path: &'static str) -> Reach {
    Reach { step: Look, method: Method::Get, path }
}

const fn post(step: Step, path: &'static str) -> Reach {
    Reach { step, method: Method::Post, path }
}

/// Reads it from the catalogue.
pub fn read() -> Result<Manifest, CatalogueError> {
    let catalogue = Catalogue::builtin()?;
    let email = ServiceName::new("email").map_err(|error| CatalogueError::Syntax(error.to_string()))?;
    let mut manifest = Manifest::of(&catalogue, &email, "gmail");
    manifest.previews = &PREVIEWS;
    // The gateway stops what it holds itself; the service never hears of it.
    manifest.by_gateway = &["email.cancel"];
    (manifest.home, manifest.reach) = (HOME, &REACH);
    Ok(manifest)
}
