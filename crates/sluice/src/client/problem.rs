//! What went wrong between us and the gateway, in the words and exit codes of the house.

use serde_json::Value;

use super::text;
use crate::failure::{Exit, Failure};
use crate::visible;

/// A problem document as a failure.
pub(super) fn failure(problem: &Value) -> Failure {
    let code = text(problem, "code");
    let status = problem.get("status").and_then(Value::as_u64).unwrap_or(0);
    let (title, detail) = (text(problem, "title"), text(problem, "detail"));
    let message =
        [detail, title, "the gateway refused"].into_iter().find(|words| !words.is_empty()).unwrap_or_default();
    let mut failure = Failure::new(exit(code, status), visible::line(message));
    let rule = text(problem, "rule");
    if !rule.is_empty() {
        failure = failure.why(format!("rule {}", visible::line(rule)));
    } else if title != message && !title.is_empty() {
        failure = failure.why(visible::line(title));
    }
    let hint = hint(code).unwrap_or_else(|| text(problem, "hint"));
    if !hint.is_empty() {
        failure = failure.hint(visible::line(hint));
    }
    let request = text(problem, "request_id");
    let request = if request.is_empty() { String::new() } else { format!("   (request {})", visible::line(request)) };
    failure.problem = Some(Box::new(problem.clone()));
    failure.docs(format!("docs/errors.md, {}{request}", visible::line(code)))
}

/// The general hints speak to agents; some mean another thing to a person at a shell.
fn hint(code: &str) -> Option<&'static str> {
    Some(match code {
        "identity.missing" | "identity.unknown" => {
            "check SLUICE_TOKEN, SLUICE_TOKEN_FILE or data/operator.token; an admin makes tokens: sluice keys create"
        }
        "identity.revoked" | "identity.expired" => {
            "an admin makes another: sluice keys create --operator NAME --role ROLE"
        }
        "identity.not_allowed" => {
            "this needs a token with a higher role: sluice keys create --operator NAME --role approver"
        }
        "identity.wrong_kind" => "operators use SLUICE_TOKEN, agents SLUICE_AGENT_KEY; neither stands in for the other",
        "hold.too_late" => {
            "see what it is now: sluice holds show ID; what was done may be taken back: sluice rollback plan ID"
        }
        "door.parameter" => "the same command with --help says what it takes",
        "identity.agent_exists" => "choose another name, or make another key for it: sluice keys create --agent NAME",
        "approval.already_decided" => "see the decision: sluice approvals show ID",
        "approval.grown" => "look at what came in since: sluice approvals show ID",
        "approval.not_found" => "sluice approvals list shows what there is",
        "hold.not_found" => "sluice holds list shows what there is",
        "call.not_found" => "sluice calls list shows what there is",
        _ => return None,
    })
}

/// How a command ends after a problem.
pub(crate) fn exit(code: &str, status: u64) -> Exit {
    match (code, status) {
        ("identity.missing", _) => Exit::NotSignedIn,
        ("door.parameter", _) => Exit::Usage,
        ("approval.denied" | "approval.expired", _) => Exit::Denied,
        (_, 401) => Exit::CredentialRefused,
        (_, 403 | 423) => Exit::Forbidden,
        (_, 404 | 410) => Exit::NotFound,
        (_, 409 | 412) => Exit::Conflict,
        (_, 0..=400 | 402 | 405..) => Exit::Failed,
    }
}

/// Nobody answers.
pub(super) fn unreachable(base: &str, error: &reqwest::Error) -> Failure {
    if let Some(why) = of_certificate(error) {
        return Failure::new(Exit::Unreachable, format!("the gateway at {base} cannot be recognised")).why(why).hint(
            "name the authority that signed its certificate: SLUICE_CA_FILE, or `tls.ca_file` in sluice.yaml; \
                 and address it by a name in that certificate: --url https://NAME:PORT",
        );
    }
    let why = if error.is_timeout() { "it did not answer in time".to_owned() } else { innermost(error) };
    Failure::new(Exit::Unreachable, format!("the gateway at {base} does not answer"))
        .why(why)
        .hint("start it: sluice serve; or name another: --url URL or SLUICE_URL")
}

/// What is wrong with the certificate, if that is what is wrong.
fn of_certificate(error: &reqwest::Error) -> Option<String> {
    let first: &dyn std::error::Error = error;
    let mut chain = std::iter::successors(Some(first), |error| error.source());
    let text =
        chain.find_map(|error| Some(error.to_string()).filter(|text| text.starts_with("invalid peer certificate")))?;
    Some(visible::line(&text.to_lowercase()))
}

/// Somebody else answers.
pub(super) fn stranger(base: &str, why: &str) -> Failure {
    Failure::new(Exit::Unreachable, format!("what answers at {base} is not a gateway"))
        .why(why)
        .hint("check the address: --url URL, SLUICE_URL or `listen` in sluice.yaml")
}

/// The cause behind the causes, which is the one that means something to people.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(next) = inner.source() {
        inner = next;
    }
    visible::line(&inner.to_string().to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sluice_core::refusal::Code;

    #[test]
    fn every_code_of_the_gateway_has_its_exit_code() {
        for (code, wanted) in [
            (Code::IdentityMissing, Exit::NotSignedIn),
            (Code::IdentityUnknown, Exit::CredentialRefused),
            (Code::IdentityExpired, Exit::CredentialRefused),
            (Code::IdentityNotAllowed, Exit::Forbidden),
            (Code::PolicyBlocked, Exit::Forbidden),
            (Code::FreezeActive, Exit::Forbidden),
            (Code::ApprovalDenied, Exit::Denied),
            (Code::ApprovalExpired, Exit::Denied),
            (Code::HoldNotFound, Exit::NotFound),
            (Code::HoldTooLate, Exit::Conflict),
            (Code::ApprovalAlreadyDecided, Exit::Conflict),
            (Code::SchemaWrongType, Exit::Failed),
            (Code::DoorParameter, Exit::Usage),
            (Code::GatewayInternal, Exit::Failed),
        ] {
            assert_eq!(exit(code.as_str(), u64::from(code.status())), wanted, "{code}");
        }
    }

    #[test]
    fn a_problem_says_what_why_what_to_do_and_where_to_read_on() {
        let failure = failure(&json!({
            "title": "too late to stop it", "detail": "the write is already done", "status": 409,
            "code": "hold.too_late", "hint": "for agents", "request_id": "req_7f",
        }));
        assert_eq!(failure.exit, Exit::Conflict);
        assert_eq!(failure.message, "the write is already done");
        assert_eq!(failure.why.as_deref(), Some("too late to stop it"));
        assert!(failure.hint.unwrap().contains("sluice rollback plan"));
        assert_eq!(failure.docs.as_deref(), Some("docs/errors.md, hold.too_late   (request req_7f)"));
    }

    #[test]
    fn a_problem_cannot_steer_the_terminal() {
        let failure = failure(&json!({"detail": "a\u{1b}[2J", "code": "\u{202e}x", "status": 400}));
        assert_eq!(failure.message, "a\\u{1b}[2J");
        assert!(!failure.docs.unwrap().contains('\u{202e}'));
    }
}
