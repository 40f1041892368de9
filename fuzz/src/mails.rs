//! The targets that read whole mails. They are apart because what they link takes longest to build.
//!
//! Takes and promises what the other targets do.

use serde_json::json;

use crate::targets::{Meter, Target};

/// All of them.
pub static TARGETS: [Target; 2] = [
    Target { name: "reply", base: 500_000, slope: 1_000, work: reply_mail },
    Target { name: "mime", base: 500_000, slope: 1_000, work: mime },
];

fn reply_mail(first: u8, body: &[u8], meter: &mut Meter) {
    let records =
        json!({"sel._domainkey.example.test": ["v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="]});
    let task = match first % 2 {
        0 => json!({}),
        _ => json!({"forwarders": ["example.test"], "now": 1_800_000_000, "records": records}),
    };
    if let Ok(read) = meter.watch(|| sluice_worker::reply::read(task, body)) {
        assert_ne!(read["proof"], "pass", "nobody here can sign");
    }
}

fn mime(_: u8, body: &[u8], meter: &mut Meter) {
    let raw = meter.watch(|| sluice_adapters::mime::parse(body));
    assert_eq!(raw.contents.len(), raw.mail.attachments.len());
    // Whatever the bytes: the sender that an answer would go to stands in the one head that a strict reading finds.
    if let Some(from) = &raw.mail.from {
        let head = sluice_core::mail::head::Head::of(body);
        let field = head.one("from").ok().flatten().map(|field| field.unfolded()).unwrap_or_default();
        assert!(field.replace('"', "").contains(&from.address.replace('"', "")), "{from} is not in {field:?}");
    }
}
