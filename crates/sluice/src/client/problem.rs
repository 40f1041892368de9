//! Turns errors of the gateway and of the connection into failures with a message and an exit code.

use serde_json::Value;

use super::text_field;
use crate::escape;
use crate::failure::{CliError, CommandExit};

/// A problem document as a failure.
pub(super) fn failure(problem: &Value) -> CliError {
    let code = text_field(problem, "code");
    let status = problem.get("status").and_then(Value::as_u64).unwrap_or(0);
    let (title, detail) = (text_field(problem, "title"), text_field(problem, "detail"));
    let message = [detail, title, "the gateway refused the request"]
        .into_iter()
        .find(|words| !words.is_empty())
        .unwrap_or_default();
    let mut failure = CliError::new(exit(code, status), escape::escape_line(message));
    let rule = text_field(problem, "rule");
    if !rule.is_empty() {
        failure = failure.why(format!("rule {}", escape::escape_line(rule)));
    } else if title != message && !title.is_empty() {
        failure = failure.why(escape::escape_line(title));
    }
    let hint = hint(code).unwrap_or_else(|| text_field(problem, "hint"));
    if !hint.is_empty() {
        failure = failure.hint(escape::escape_line(hint));
    }
    let request = text_field(problem, "request_id");
    let request =
        if request.is_empty() { String::new() } else { format!("   (request {})", escape::escape_line(request)) };
    failure.problem = Some(Box::new(problem.clone()));
    failure.docs(format!("docs/errors.md, {}{request}", escape::escape_line(code)))
}

/// The hints of the API are for agents; these are for a person at a shell.
fn hint(code: &str) -> Option<&'static str> {
    Some(match code {
        "identity.missing" | "identity.unknown" => {
            "check SLUICE_TOKEN, SLUICE_TOKEN_FILE or data/operator.token; an admin creates tokens: sluice keys create"
        }
        "identity.revoked" | "identity.expired" => {
            "an admin creates a new one: sluice keys create --operator NAME --role ROLE"
        }
        "identity.not_allowed" => {
            "this needs a token with a higher role: sluice keys create --operator NAME --role approver"
        }
        "identity.wrong_kind" => {
            "operators use SLUICE_TOKEN, agents SLUICE_AGENT_KEY; neither works in place of the other"
        }
        "hold.too_late" => {
            "see its state: sluice holds show ID; to undo a write that was sent: sluice rollback plan ID"
        }
        "oauth.issuer" => "check that address; if it is right, accept it: sluice mounts connect NAME --issuer URL",
        "oauth.client" => {
            "register the gateway there, then: sluice mounts connect NAME --client-id ID --client-secret-file FILE"
        }
        "mount.sign_in" => "sign in: sluice mounts connect NAME",
        "door.parameter" => "see the parameters: the same command with --help",
        "identity.agent_exists" => "choose another name, or create another key for it: sluice keys create --agent NAME",
        "approval.already_decided" => "see the decision: sluice approvals show ID",
        "approval.grown" => "see the new writes: sluice approvals show ID",
        "approval.not_found" => "see all approvals: sluice approvals list",
        "hold.not_found" => "see all held writes: sluice holds list",
        "call.not_found" => "see all calls: sluice calls list",
        _ => return None,
    })
}

/// The exit code of a command after a problem.
pub(crate) fn exit(code: &str, status: u64) -> CommandExit {
    match (code, status) {
        ("identity.missing", _) => CommandExit::NotSignedIn,
        ("door.parameter", _) => CommandExit::Usage,
        ("approval.denied" | "approval.expired", _) => CommandExit::Denied,
        (_, 401) => CommandExit::CredentialRefused,
        (_, 403 | 423) => CommandExit::Forbidden,
        (_, 404 | 410) => CommandExit::NotFound,
        (_, 409 | 412) => CommandExit::Conflict,
        (_, 0..=400 | 402 | 405..) => CommandExit::Failed,
    }
}

/// The failure when no gateway responds.
pub(super) fn unreachable(base: &str, error: &reqwest::Error) -> CliError {
    if let Some(why) = of_certificate(error) {
        return CliError::new(
            CommandExit::Unreachable,
            format!("the certificate of the gateway at {base} is not trusted"),
        )
        .why(why)
        .hint(
            "name the certificate authority: SLUICE_CA_FILE, or `tls.ca_file` in sluice.yaml; \
                 and use a host name of the certificate: --url https://NAME:PORT",
        );
    }
    let why = if error.is_timeout() { "it did not respond in time".to_owned() } else { innermost(error) };
    CliError::new(CommandExit::Unreachable, format!("the gateway at {base} does not respond"))
        .why(why)
        .hint("start it: sluice serve; or name another gateway: --url URL or SLUICE_URL")
}

/// The reason why the certificate was not accepted, if that is the cause.
fn of_certificate(error: &reqwest::Error) -> Option<String> {
    let first: &dyn std::error::Error = error;
    let mut chain = std::iter::successors(Some(first), |error| error.source());
    let text =
        chain.find_map(|error| Some(error.to_string()).filter(|text| text.starts_with("invalid peer certificate")))?;
    Some(escape::escape_line(&text.to_lowercase()))
}

/// The failure when something other than a gateway responds.
pub(super) fn not_a_gateway_error(base: &str, why: &str) -> CliError {
    CliError::new(CommandExit::Unreachable, format!("the server at {base} is not a sluice gateway"))
        .why(why)
        .hint("check the address: --url URL, SLUICE_URL or `listen` in sluice.yaml")
}

/// The root cause of an error, which says the most to people.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(next) = inner.source() {
        inner = next;
    }
    escape::escape_line(&inner.to_string().to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sluice_core::refusal::Code;

    #[test]
    fn every_code_of_the_gateway_has_its_exit_code() {
        for (code, wanted) in [
            (Code::IdentityMissing, CommandExit::NotSignedIn),
            (Code::IdentityUnknown, CommandExit::CredentialRefused),
            (Code::IdentityExpired, CommandExit::CredentialRefused),
            (Code::IdentityNotAllowed, CommandExit::Forbidden),
            (Code::PolicyBlocked, CommandExit::Forbidden),
            (Code::FreezeActive, CommandExit::Forbidden),
            (Code::ApprovalDenied, CommandExit::Denied),
            (Code::ApprovalExpired, CommandExit::Denied),
            (Code::HoldNotFound, CommandExit::NotFound),
            (Code::HoldTooLate, CommandExit::Conflict),
            (Code::ApprovalAlreadyDecided, CommandExit::Conflict),
            (Code::SchemaWrongType, CommandExit::Failed),
            (Code::DoorParameter, CommandExit::Usage),
            (Code::GatewayInternal, CommandExit::Failed),
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
        assert_eq!(failure.exit, CommandExit::Conflict);
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
