//! Signing in: one-time codes, operator tokens, and the session behind a cookie.
//!
//! Takes a code or a token from a form; gives a session. Promise: neither is ever part of an address that a server sees;
//! a session may do what its credential may do at that moment, and ends with it; a wrong code, a used code and a wrong
//! token look the same.

use std::net::IpAddr;
use std::sync::Arc;

use askama::Template;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};
use sluice_core::ids::DashboardSessionId;
use sluice_core::refusal::Code;
use sluice_core::{Actor, UtcMillis};
use sluice_gateway::rooms::identity::{self, Principal};
use sluice_gateway::{Gateway, keys};
use sluice_services::CallError;
use sluice_store::{OpenDashboardSession, SignInProof};
use subtle::ConstantTimeEq as _;

use crate::context::{SignedInVisitor, own_address};
use crate::cookies;
use crate::fields::FormFields;
use crate::guard;
use crate::kept_form::KeptForm;
use crate::lockout::SignInLockout;
use crate::pages::layout;
use crate::reply::{DashboardReply, DashboardRequest};

/// Random bytes of a code and of a cookie.
const BYTES: usize = 32;
/// Characters of a code.
const CHARACTERS: usize = 43;

/// A one-time code, shown once.
#[expect(missing_debug_implementations, reason = "a secret must not end up in a log by way of its owner")]
pub struct SignInCode {
    text: String,
    /// Until when it works.
    pub expires_at: UtcMillis,
}

impl SignInCode {
    /// The code itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }
}

/// Makes a one-time code that signs in the holder of an operator's credential.
///
/// # Errors
/// When the principal is no operator, or the code cannot be recorded.
pub async fn make_sign_in_code(gw: &Gateway, principal: &Principal) -> Result<SignInCode, CallError> {
    let (Some(by), Some(_)) = (principal.actor(), principal.operator()) else {
        return Err(CallError::new(Code::IdentityWrongKind));
    };
    let text = random_text(gw);
    let expires_at = gw.store.make_sign_in_code(hash(&text), principal.key(), by).await?;
    gw.signals.events.notify_written();
    Ok(SignInCode { text, expires_at })
}

fn random_text(gw: &Gateway) -> String {
    let mut bytes = [0; BYTES];
    gw.entropy.fill(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// The person behind the cookie of a request.
pub(crate) async fn visitor(
    gw: &Gateway,
    headers: &HeaderMap,
    is_tls: bool,
) -> Result<Option<SignedInVisitor>, CallError> {
    let Some(cookie) = cookies::session(headers, is_tls).filter(|cookie| cookie.len() == CHARACTERS) else {
        return Ok(None);
    };
    let now = gw.now();
    let found = gw.store.dashboard_session(hash(cookie)).await?;
    let Some(session) = found.filter(|session| session.is_live(now)) else { return Ok(None) };
    gw.keyring.follow(&gw.store).await?;
    let principal = match identity::principal_of_key(gw, &session.key_hash) {
        Ok(principal) => principal,
        Err(no) if no.refusal.code() == Code::GatewayStarting => return Err(no),
        Err(_) => return Ok(None),
    };
    let Some((person, role)) = principal.operator().map(|(person, role)| (person.clone(), role)) else {
        return Ok(None);
    };
    if session.should_note_use(now) {
        gw.store.note_dashboard_use(session.id).await?;
    }
    let theme = theme(headers);
    let (csrf, session) = (guard::form_token(cookie), session.id);
    let by = Actor::Operator(person.clone());
    let cookie_hash = hash(cookie);
    Ok(Some(SignedInVisitor { principal, cookie_hash, person: person.to_string(), role, by, session, csrf, theme }))
}

/// The chosen colours.
pub(crate) fn theme(headers: &HeaderMap) -> &'static str {
    match cookies::value(headers, cookies::THEME) {
        Some("light") => "light",
        Some("dark") => "dark",
        _ => "auto",
    }
}

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInTemplate<'a> {
    form: &'a str,
    next: &'a str,
    problem: Option<&'a str>,
    kept: Option<&'a KeptForm>,
    signed_in_as: Option<&'a str>,
}

/// The page with the sign-in form.
pub(crate) struct SignInPage<'a> {
    pub(crate) next: &'a str,
    pub(crate) problem: Option<&'a str>,
    pub(crate) kept: Option<&'a KeptForm>,
    pub(crate) signed_in_as: Option<&'a str>,
}

impl SignInPage<'_> {
    /// Renders it, with a new proof that its form is ours.
    pub(crate) fn reply(self, gw: &Gateway, headers: &HeaderMap, status: u16) -> Result<DashboardReply, CallError> {
        let form = random_text(gw);
        let Self { next, problem, kept, signed_in_as } = self;
        let inside = layout::html(&SignInTemplate { form: &form, next, problem, kept, signed_in_as })?;
        let html = layout::bare("Sign in", theme(headers), inside)?;
        Ok(DashboardReply::page(status, html).with(header::SET_COOKIE, cookies::keep_form(&form)))
    }
}

/// Takes a sign-in form.
pub(crate) async fn submit(
    gw: &Arc<Gateway>,
    lockout: &SignInLockout,
    request: &DashboardRequest,
    form: &FormFields,
) -> Result<DashboardReply, CallError> {
    let kept = KeptForm::carried(form);
    let next = own_address(form.get("next"));
    let again = |status: u16, problem: &str| {
        SignInPage { next: &next, problem: Some(problem), kept: kept.as_ref(), signed_in_as: None }.reply(
            gw,
            &request.headers,
            status,
        )
    };
    let own = cookies::value(&request.headers, cookies::SIGN_IN).unwrap_or_default();
    if own.len() != CHARACTERS || !bool::from(own.as_bytes().ct_eq(form.get("form").as_bytes())) {
        return again(403, "This form was not opened in this browser, or cookies are off. Please try again.");
    }
    if let Some(wait) = lockout.wait(request.peer, gw.now()) {
        return again(
            429,
            &format!("Too many attempts from this address. Wait {wait}, or sign in on the machine itself."),
        );
    }
    let browser = request.headers.get(header::USER_AGENT).and_then(|name| name.to_str().ok()).unwrap_or_default();
    let cookie = random_text(gw);
    let Some(proof) = proof(gw, form.get("secret")).await? else {
        return refused(gw, lockout, request.peer, &again);
    };
    let id = DashboardSessionId::mint(gw.ids.as_ref());
    let open = OpenDashboardSession { id, hash: hash(&cookie), browser: browser.to_owned(), proof };
    if gw.store.open_dashboard_session(open).await?.is_none() {
        return refused(gw, lockout, request.peer, &again);
    }
    gw.signals.events.notify_written();
    lockout.succeeded(request.peer);
    let secure = guard::is_secure(&request.headers, request.is_tls);
    let reply = match &kept {
        Some(kept) => DashboardReply::page(200, kept.ask_again(&guard::form_token(&cookie), theme(&request.headers))?),
        None => DashboardReply::see_other(&next),
    };
    Ok(reply.with(header::SET_COOKIE, cookies::keep_session(&cookie, secure)))
}

fn refused(
    gw: &Gateway,
    lockout: &SignInLockout,
    peer: IpAddr,
    again: &dyn Fn(u16, &str) -> Result<DashboardReply, CallError>,
) -> Result<DashboardReply, CallError> {
    lockout.failed(peer, gw.now());
    tracing::warn!(%peer, "a sign-in to the dashboard failed");
    again(
        401,
        "This did not work: a code works once, for 10 minutes, and a token must belong to an operator. For a new code: \
         sluice login",
    )
}

/// The proof in a form: a code, a link that ends with one, or an operator's token.
async fn proof(gw: &Gateway, text: &str) -> Result<Option<SignInProof>, CallError> {
    let text = text.trim();
    let code = text.rsplit_once('#').map_or(text, |(_, code)| code);
    let is_code = code.len() == CHARACTERS && code.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    if is_code {
        return Ok(Some(SignInProof::Code(hash(code))));
    }
    if keys::hash_of(text).is_none() {
        return Ok(None);
    }
    let principal = match identity::principal(gw, text) {
        Err(no) if gw.store.is_shared() && no.refusal.code() == Code::IdentityUnknown => {
            gw.keyring.look_for_unknown(&gw.store).await?;
            identity::principal(gw, text)
        }
        known => known,
    };
    Ok(principal.ok().filter(|known| known.operator().is_some()).map(|known| SignInProof::Key(known.key())))
}
