//! Ids by their first characters: finds the one id that begins with what a person typed.
//!
//! Promise: a complete id is used as it is; a beginning that matches several ids is refused.

use super::{ApiRequest, GatewayClient, entries, text_field};
use crate::escape;
use crate::failure::{CliError, CommandExit};

/// Most entries that are searched for a beginning.
const SEEN: usize = 20_000;
/// Most matching ids that are listed in an error.
const NAMED: usize = 5;
/// Hex digits of a complete id.
const WHOLE: usize = 32;

/// The kind of object an id names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ListedIdKind {
    Approvals,
    Holds,
    Calls,
    Keys,
    Alerts,
    Allowances,
    Findings,
    Sessions,
}

impl ListedIdKind {
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

    /// The JSON field that holds the id.
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

    /// The typed text as the beginning of an id of this kind; `None` if it cannot be one.
    fn beginning(self, typed: &str) -> Option<String> {
        let typed = typed.trim();
        let (prefix, digits) = typed.split_once('_').unwrap_or((self.prefix(), typed));
        // A call and its held write share one number: either id leads to the other.
        let twins = ["buf", "call"];
        let ours = prefix == self.prefix() || (twins.contains(&prefix) && twins.contains(&self.prefix()));
        let hex = !digits.is_empty() && digits.len() <= WHOLE && digits.bytes().all(|b| b.is_ascii_hexdigit());
        (ours && hex).then(|| format!("{}_{}", self.prefix(), digits.to_ascii_lowercase()))
    }
}

impl GatewayClient {
    /// The id that begins with the typed text.
    pub(crate) fn resolve_id(&self, kind: ListedIdKind, typed: &str) -> Result<String, CliError> {
        let Some(start) = kind.beginning(typed) else {
            return Err(CliError::new(
                CommandExit::NotFound,
                format!("`{}` is not the id of a{} {}", escape::escape_line(typed), an(kind.noun()), kind.noun()),
            )
            .why(format!(
                "an id looks like {}_0193f2…; its first characters are enough if they match only one",
                kind.prefix()
            ))
            .hint(list_hint(kind)));
        };
        if start.len() == kind.prefix().len() + 1 + WHOLE {
            return Ok(start);
        }
        let found = self.list_ids_with_prefix(kind, &start)?;
        match found.as_slice() {
            [only] => Ok(only.clone()),
            [] => Err(CliError::new(CommandExit::NotFound, format!("no {} starts with `{start}`", kind.noun()))
                .hint(list_hint(kind))),
            several => {
                let named: Vec<&str> = several.iter().take(NAMED).map(String::as_str).collect();
                let more = if several.len() > NAMED { " and more" } else { "" };
                Err(CliError::new(
                    CommandExit::Usage,
                    format!("{} {}s start with `{start}`", several.len(), kind.noun()),
                )
                .why(format!("{}{more}", named.join(", ")))
                .hint("type more characters"))
            }
        }
    }

    /// All ids that begin with this.
    pub(crate) fn list_ids_with_prefix(&self, kind: ListedIdKind, start: &str) -> Result<Vec<String>, CliError> {
        let list = match kind {
            ListedIdKind::Keys => self.get_all(kind.path())?,
            ListedIdKind::Allowances | ListedIdKind::Findings | ListedIdKind::Sessions => {
                self.list(&ApiRequest::get(kind.path()), SEEN)?
            }
            // Requests that stop something must find them too, even when the gateway is busy.
            ListedIdKind::Approvals | ListedIdKind::Holds | ListedIdKind::Calls | ListedIdKind::Alerts => {
                self.list(&ApiRequest::get(kind.path()).via_stop_lane(), SEEN)?
            }
        };
        let ids = entries(&list).iter().map(|entry| text_field(entry, kind.field()).to_owned());
        Ok(ids.filter(|id| id.starts_with(start)).collect())
    }
}

fn an(noun: &str) -> &'static str {
    if noun.starts_with('a') { "n" } else { "" }
}

fn list_hint(kind: ListedIdKind) -> String {
    format!("see them: sluice {}s list", kind.noun())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::ids::{AllowanceId, FindingId, KeyId, MessageId, SessionId};
    use sluice_core::{ApprovalId, CallId, HoldId};

    #[test]
    fn the_prefixes_are_those_of_the_gateway() {
        for (kind, id) in [
            (ListedIdKind::Approvals, ApprovalId::from_bits(7).to_string()),
            (ListedIdKind::Holds, HoldId::from_bits(7).to_string()),
            (ListedIdKind::Calls, CallId::from_bits(7).to_string()),
            (ListedIdKind::Keys, KeyId::from_bits(7).to_string()),
            (ListedIdKind::Alerts, MessageId::from_bits(7).to_string()),
            (ListedIdKind::Allowances, AllowanceId::from_bits(7).to_string()),
            (ListedIdKind::Findings, FindingId::from_bits(7).to_string()),
            (ListedIdKind::Sessions, SessionId::from_bits(7).to_string()),
        ] {
            assert_eq!(kind.beginning(&id), Some(id.clone()), "{kind:?}");
        }
    }

    #[test]
    fn a_beginning_may_leave_the_prefix_out_and_a_call_leads_to_its_write() {
        assert_eq!(ListedIdKind::Holds.beginning("0193F2"), Some("buf_0193f2".into()));
        assert_eq!(ListedIdKind::Holds.beginning("call_0193"), Some("buf_0193".into()));
        assert_eq!(ListedIdKind::Calls.beginning("buf_0193"), Some("call_0193".into()));
        for wrong in ["", "appr_1", "buf_", "xyz", "buf_../x", &"1".repeat(33)] {
            assert_eq!(ListedIdKind::Holds.beginning(wrong), None, "{wrong}");
        }
    }
}
