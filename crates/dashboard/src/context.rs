//! What every page and action gets: the gateway, the person who is signed in, and the query.

use std::sync::Arc;

use sluice_core::ids::DashboardSessionId;
use sluice_core::refusal::Code;
use sluice_core::{Actor, ApprovalId, CallId, UtcMillis};
use sluice_gateway::Gateway;
use sluice_gateway::rooms::identity::Principal;
use sluice_services::CallError;
use sluice_store::OperatorRole;

use crate::fields::FormFields;

/// A person who is signed in.
#[derive(Debug, Clone)]
pub(crate) struct SignedInVisitor {
    /// The operator's credential behind the session.
    pub(crate) principal: Principal,
    /// The person's name.
    pub(crate) person: String,
    /// What the credential may do now.
    pub(crate) role: OperatorRole,
    /// The person, for the audit log.
    pub(crate) by: Actor,
    /// The hash of the session's cookie.
    pub(crate) cookie_hash: [u8; 32],
    /// The session.
    pub(crate) session: DashboardSessionId,
    /// The token of this session's forms.
    pub(crate) csrf: String,
    /// `auto`, `light` or `dark`.
    pub(crate) theme: &'static str,
}

impl SignedInVisitor {
    /// Refuses a person whose role is too small.
    pub(crate) fn require(&self, least: OperatorRole) -> Result<(), CallError> {
        if self.role >= least {
            return Ok(());
        }
        let text = format!("your role is {}, and this needs the role {}", self.role.as_str(), least.as_str());
        Err(CallError::with_text(Code::IdentityNotAllowed, &text))
    }

    /// Whether the person may decide and stop things.
    pub(crate) fn can_act(&self) -> bool {
        self.role >= OperatorRole::Approver
    }
}

/// What a page is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageContext<'a> {
    pub(crate) gw: &'a Arc<Gateway>,
    pub(crate) visitor: &'a SignedInVisitor,
    pub(crate) query: &'a FormFields,
    /// The form that was refused, so that nothing typed is lost.
    pub(crate) typed: Option<&'a FormFields>,
}

impl PageContext<'_> {
    pub(crate) fn now(&self) -> UtcMillis {
        self.gw.now()
    }

    /// What was typed into a field of a refused form; empty otherwise.
    pub(crate) fn typed(&self, name: &str) -> String {
        self.typed.map_or("", |form| form.get(name)).to_owned()
    }
}

/// A page of the dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageAddress {
    /// Everything at a glance.
    Overview,
    /// The list of approvals.
    Approvals,
    /// One approval.
    Approval(ApprovalId),
    /// Writes that have not left.
    Pending,
    /// One call with its timeline.
    Call(CallId),
    /// What is frozen, and the form that freezes.
    Freeze,
    /// Writes that failed for good.
    Dead,
    /// What people were told.
    Alerts,
    /// Sessions of browsers.
    Sessions,
}

impl PageAddress {
    /// The page at a path.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let rest = path.strip_prefix("/ui")?.trim_end_matches('/');
        Some(match rest {
            "" => Self::Overview,
            "/approvals" => Self::Approvals,
            "/pending" => Self::Pending,
            "/freeze" => Self::Freeze,
            "/dead" => Self::Dead,
            "/alerts" => Self::Alerts,
            "/sessions" => Self::Sessions,
            other => match other.strip_prefix("/approvals/") {
                Some(id) => Self::Approval(id.parse().ok()?),
                None => Self::Call(other.strip_prefix("/calls/")?.parse().ok()?),
            },
        })
    }

    /// The path of the page.
    pub(crate) fn path(self) -> String {
        match self {
            Self::Overview => "/ui".into(),
            Self::Approvals => "/ui/approvals".into(),
            Self::Approval(id) => format!("/ui/approvals/{id}"),
            Self::Pending => "/ui/pending".into(),
            Self::Call(id) => format!("/ui/calls/{id}"),
            Self::Freeze => "/ui/freeze".into(),
            Self::Dead => "/ui/dead".into(),
            Self::Alerts => "/ui/alerts".into(),
            Self::Sessions => "/ui/sessions".into(),
        }
    }

    /// The entry of the navigation that it belongs to.
    pub(crate) const fn section(self) -> &'static str {
        match self {
            Self::Overview => "overview",
            Self::Approvals | Self::Approval(_) => "approvals",
            Self::Pending => "pending",
            Self::Call(_) => "call",
            Self::Freeze => "freeze",
            Self::Dead => "dead",
            Self::Alerts => "alerts",
            Self::Sessions => "sessions",
        }
    }
}

/// An address below `/ui` as a form or link may name it; the overview for anything else. SECURITY: nothing leads away.
pub(crate) fn own_address(text: &str) -> String {
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let is_plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/_-.:=&%+*>,".contains(&b));
    match PageAddress::parse(path) {
        Some(page) if query.is_empty() => page.path(),
        Some(page) if is_plain(query) => format!("{}?{query}", page.path()),
        Some(_) | None => PageAddress::Overview.path(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_leads_away() {
        let id = "appr_0000000000000000000000000000000a";
        assert_eq!(own_address(&format!("/ui/approvals/{id}")), format!("/ui/approvals/{id}"));
        assert_eq!(own_address("/ui/pending?agent=clerk"), "/ui/pending?agent=clerk");
        for bad in [
            "",
            "/",
            "//evil.example",
            "https://evil.example/ui",
            "/ui//evil.example",
            "/ui/../v1/status",
            "/uix",
            "\\evil",
            "/ui/login",
            "/ui/stream",
            "javascript:alert(1)",
            "/ui\r\nset-cookie: a=b",
            "/ui?a=\r\nb",
            "/ui?a=<script>",
        ] {
            assert_eq!(own_address(bad), "/ui", "{bad:?}");
        }
    }
}
