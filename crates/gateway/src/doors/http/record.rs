//! The record, for operators: entries as they stand, and proofs.

use serde_json::{Value, json};
use sluice_core::NodeName;
use sluice_core::refusal::Code;

use super::reply::Reply;
use super::route::Visit;
use super::views::Page;
use crate::No;
use crate::value::at;

/// `GET /v1/audit/entries`.
pub(super) async fn entries(visit: Visit) -> Result<Reply, No> {
    let limit = visit.limit()?;
    let gw = &visit.gw;
    let log: NodeName = visit.asked("log")?.unwrap_or_else(|| gw.store.node().clone());
    let from = match visit.asked::<u64>("cursor")? {
        Some(from) => from,
        None => match visit.asked::<bool>("last")?.unwrap_or(false) {
            true => {
                let head = gw.store.logs().await?.into_iter().find(|(name, _)| *name == log).map(|(_, head)| head);
                head.map_or(0, |head| head.size.saturating_sub(u64::from(limit)))
            }
            false => 0,
        },
    };
    let found = gw.store.entries(log, from, limit + 1).await?;
    let data: Vec<Value> = found
        .iter()
        .map(|sealed| {
            let entry: Value = serde_json::from_slice(&sealed.body).unwrap_or(Value::Null);
            json!({"seq": sealed.seq, "hash": sealed.hash.to_string(), "entry": entry})
        })
        .collect();
    let cursor = |entry: &Value| (at(entry, "/seq").as_u64().unwrap_or(0) + 1).to_string();
    Ok(Reply::json(200, &Page::of(data, limit, cursor)))
}

/// `GET /v1/audit/checkpoint`: the newest signed end of a log.
pub(super) async fn checkpoint(visit: Visit) -> Result<Reply, No> {
    let gw = &visit.gw;
    let log: NodeName = visit.asked("log")?.unwrap_or_else(|| gw.store.node().clone());
    let signed = gw.store.last_checkpoint(log).await?.ok_or_else(|| No::new(Code::StoreNotFound))?;
    Ok(Reply::bytes(200, "text/plain; charset=utf-8", signed.note.to_string().into_bytes()))
}
