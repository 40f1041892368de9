//! Ids by their beginning: what a person types becomes the one id that starts like it.
//!
//! Promise: an id that is whole is used as it is; a beginning that fits several things fits none.

use super::{Ask, Client, entries, text};
use crate::failure::{Exit, Failure};
use crate::visible;

/// Most entries that are looked through for a beginning.
const SEEN: usize = 20_000;
/// Most candidates that are named.
const NAMED: usize = 5;
/// Hex digits of a whole id.
const WHOLE: usize = 32;

/// What an id is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Approvals,
    Holds,
    Calls,
    Keys,
    Alerts,
    Allowances,
    Findings,
    Sessions,
}

impl Kind {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Approvals => "appr",
            Self::Holds => "buf",
            Self::Calls => "call",
            Self::Keys => "key",
            Self::Alerts => "msg",
            Self::Allowances => "alw",
            Self::Findings => "fnd",
            Self::Sessions => "sess",
        }
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Approvals => "/v1/approvals",
            Self::Holds => "/v1/holds",
            Self::Calls => "/v1/calls",
            Self::Keys => "/v1/keys",
            Self::Alerts => "/v1/alerts",
            Self::Allowances => "/v1/allowances",
            Self::Findings => "/v1/findings",
            Self::Sessions => "/v1/sessions",
        }
    }

    /// The field of an entry.
    pub(crate) const fn field(self) -> &'static str {
        match self {
            Self::Approvals => "approval_id",
            Self::Holds => "buffer_id",
            Self::Calls => "call_id",
            Self::Keys => "key_id",
            Self::Alerts => "alert_id",
            Self::Allowances => "allowance_id",
            Self::Findings => "finding_id",
            Self::Sessions => "session_id",
        }
    }

    const fn noun(self) -> &'static str {
        match self {
            Self::Approvals => "approval",
            Self::Holds => "hold",
            Self::Calls => "call",
            Self::Keys => "key",
            Self::Alerts => "alert",
            Self::Allowances => "allowance",
            Self::Findings => "finding",
            Self::Sessions => "session",
        }
    }

    /// What was typed, as the beginning of an id of this kind; nothing if it cannot be one.
    fn beginning(self, typed: &str) -> Option<String> {
        let typed = typed.trim();
        let (prefix, digits) = typed.split_once('_').unwrap_or((self.prefix(), typed));
        // One number names a call and its write: either leads to the other.
        let twins = ["buf", "call"];
        let ours = prefix == self.prefix() || (twins.contains(&prefix) && twins.contains(&self.prefix()));
        let hex = !digits.is_empty() && digits.len() <= WHOLE && digits.bytes().all(|b| b.is_ascii_hexdigit());
        (ours && hex).then(|| format!("{}_{}", self.prefix(), digits.to_ascii_lowercase()))
    }
}

impl Client {
    /// The id that starts like this.
    pub(crate) fn id(&self, kind: Kind, typed: &str) -> Result<String, Failure> {
        let Some(start) = kind.beginning(typed) else {
            return Err(Failure::new(
                Exit::NotFound,
                format!("`{}` is not the id of a{} {}", visible::line(typed), an(kind.noun()), kind.noun()),
            )
            .why(format!("those look like {}_0193f2…; the beginning is enough if it is the only one", kind.prefix()))
            .hint(list_hint(kind)));
        };
        if start.len() == kind.prefix().len() + 1 + WHOLE {
            return Ok(start);
        }
        let found = self.starting(kind, &start)?;
        match found.as_slice() {
            [only] => Ok(only.clone()),
            [] => {
                Err(Failure::new(Exit::NotFound, format!("no {} starts with `{start}`", kind.noun()))
                    .hint(list_hint(kind)))
            }
            several => {
                let named: Vec<&str> = several.iter().take(NAMED).map(String::as_str).collect();
                let more = if several.len() > NAMED { " and others" } else { "" };
                Err(Failure::new(Exit::Usage, format!("{} {}s start with `{start}`", several.len(), kind.noun()))
                    .why(format!("{}{more}", named.join(", ")))
                    .hint("type more of it"))
            }
        }
    }

    /// All ids that start like this.
    pub(crate) fn starting(&self, kind: Kind, start: &str) -> Result<Vec<String>, Failure> {
        let list = match kind {
            Kind::Keys => self.whole(kind.path())?,
            Kind::Allowances | Kind::Findings | Kind::Sessions => self.list(&Ask::get(kind.path()), SEEN)?,
            // What stops things must find them too, however busy the gateway is.
            Kind::Approvals | Kind::Holds | Kind::Calls | Kind::Alerts => {
                self.list(&Ask::get(kind.path()).stops(), SEEN)?
            }
        };
        let ids = entries(&list).iter().map(|entry| text(entry, kind.field()).to_owned());
        Ok(ids.filter(|id| id.starts_with(start)).collect())
    }
}

fn an(noun: &str) -> &'static str {
    if noun.starts_with('a') { "n" } else { "" }
}

fn list_hint(kind: Kind) -> String {
    format!("sluice {}s list shows what there is", kind.noun())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::ids::{AllowanceId, FindingId, KeyId, MessageId, SessionId};
    use sluice_core::{ApprovalId, CallId, HoldId};

    #[test]
    fn the_prefixes_are_those_of_the_gateway() {
        for (kind, id) in [
            (Kind::Approvals, ApprovalId::from_bits(7).to_string()),
            (Kind::Holds, HoldId::from_bits(7).to_string()),
            (Kind::Calls, CallId::from_bits(7).to_string()),
            (Kind::Keys, KeyId::from_bits(7).to_string()),
            (Kind::Alerts, MessageId::from_bits(7).to_string()),
            (Kind::Allowances, AllowanceId::from_bits(7).to_string()),
            (Kind::Findings, FindingId::from_bits(7).to_string()),
            (Kind::Sessions, SessionId::from_bits(7).to_string()),
        ] {
            assert_eq!(kind.beginning(&id), Some(id.clone()), "{kind:?}");
        }
    }

    #[test]
    fn a_beginning_may_leave_the_prefix_out_and_a_call_leads_to_its_write() {
        assert_eq!(Kind::Holds.beginning("0193F2"), Some("buf_0193f2".into()));
        assert_eq!(Kind::Holds.beginning("call_0193"), Some("buf_0193".into()));
        assert_eq!(Kind::Calls.beginning("buf_0193"), Some("call_0193".into()));
        for wrong in ["", "appr_1", "buf_", "xyz", "buf_../x", &"1".repeat(33)] {
            assert_eq!(Kind::Holds.beginning(wrong), None, "{wrong}");
        }
    }
}
