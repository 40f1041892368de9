//! The targets that read whole mails. They are separate because the libraries they link take longest to build.
//!
//! Takes and promises the same as the other targets.

use serde_json::json;

use crate::targets::{CostMeter, FuzzTarget};

/// All targets of this file.
pub static TARGETS: [FuzzTarget; 2] = [
    FuzzTarget { name: "reply", base: 500_000, slope: 1_000, work: reply_mail },
    FuzzTarget { name: "mime", base: 500_000, slope: 1_000, work: mime },
];

fn reply_mail(first: u8, body: &[u8], meter: &mut CostMeter) {
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

fn mime(_: u8, body: &[u8], meter: &mut CostMeter) {
    let raw = meter.watch(|| sluice_adapters::mime::parse(body));
    assert_eq!(raw.contents.len(), raw.mail.attachments.len());
    // For any bytes: the sender to whom a reply would go is in the one head that a strict reading finds.
    if let Some(from) = &raw.mail.from {
        let head = sluice_core::mail::head::MailHead::of(body);
        let field = head.single_field("from").ok().flatten().map(|field| field.unfolded()).unwrap_or_default();
        assert!(field.replace('"', "").contains(&from.address.replace('"', "")), "{from} is not in {field:?}");
    }
}
