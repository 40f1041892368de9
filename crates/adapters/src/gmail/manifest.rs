//! The manifest of Gmail: the `email.*` capabilities of the catalogue, and how people see its writes.

use sluice_core::ServiceName;
use sluice_core::capability::{Catalogue, CatalogueError};

use crate::manifest::AdapterStep::{self, Effect, Look, Prepare};
use crate::manifest::{AllowedRequest, Manifest, WritePreview};
use crate::net::NetMethod;

const PREVIEWS: [WritePreview; 8] = [
    WritePreview {
        capability: "email.send",
        title: "Send a mail to {to}",
        fields: &["from", "to", "cc", "bcc", "subject", "body", "body_html", "attachments"],
    },
    WritePreview {
        capability: "email.reply",
        title: "Reply to the message {message_id}",
        fields: &["message_id", "reply_all", "to", "cc", "bcc", "body", "body_html", "attachments"],
    },
    WritePreview {
        capability: "email.forward",
        title: "Forward the message {message_id} to {to}",
        fields: &["message_id", "to", "cc", "bcc", "body", "attachments"],
    },
    WritePreview { capability: "email.delete", title: "Move a message to the trash", fields: &["message_id"] },
    WritePreview { capability: "email.bulk_delete", title: "Move messages to the trash", fields: &["message_ids"] },
    WritePreview {
        capability: "email.label",
        title: "Change the labels of a message",
        fields: &["message_id", "add_labels", "remove_labels"],
    },
    WritePreview {
        capability: "email.move",
        title: "Move a message between labels",
        fields: &["message_id", "add_labels", "remove_labels"],
    },
    WritePreview {
        capability: "email.draft",
        title: "Create a draft to {to}",
        fields: &["from", "to", "cc", "bcc", "subject", "body", "body_html", "attachments"],
    },
];

const HOME: &str = "https://gmail.googleapis.com";

const REACH: [AllowedRequest; 14] = [
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
    AllowedRequest { step: Effect, method: NetMethod::Delete, path: "/gmail/v1/users/me/drafts/{id}" },
];

const fn get(path: &'static str) -> AllowedRequest {
    AllowedRequest { step: Look, method: NetMethod::Get, path }
}

const fn post(step: AdapterStep, path: &'static str) -> AllowedRequest {
    AllowedRequest { step, method: NetMethod::Post, path }
}

/// Reads the manifest from the catalogue.
pub fn read() -> Result<Manifest, CatalogueError> {
    let catalogue = Catalogue::builtin()?;
    let email = ServiceName::new("email").map_err(|error| CatalogueError::Syntax(error.to_string()))?;
    let mut manifest = Manifest::of(&catalogue, &email, "gmail");
    manifest.previews = &PREVIEWS;
    // The gateway stops its own held writes; the service does not take part.
    manifest.by_gateway = &["email.cancel"];
    (manifest.home, manifest.reach) = (HOME, &REACH);
    Ok(manifest)
}
