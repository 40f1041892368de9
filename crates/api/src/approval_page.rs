//! The page: the target of a link in a message. It shows the approval and asks for an answer.
//!
//! Takes a link's token, or the id of a call, whose page only shows its state; gives HTML without scripts. Promise:
//! opening it, however often and by whatever machine, changes nothing (A7). Only a form of a page that we rendered
//! decides: it carries proof of what was on that page, it is submitted by the page itself, and it counts as the one
//! person the link was sent to, over the channel it was sent.

mod render;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use sha2::Sha256;
use sluice_config::Risk;
use sluice_core::approval::card_digest;
use sluice_core::approval::reply_meaning::{self, ReplyMeaning};
use sluice_core::ids::RequestId;
use sluice_core::refusal::Code;
use sluice_core::{Actor, CallId, Millis, UtcMillis};
use sluice_gateway::Gateway;
use sluice_gateway::channels::approval_message::hash;
use sluice_gateway::channels::links::PATH;
use sluice_gateway::channels::{email, telegram};
use sluice_gateway::gate::deciding::{self, AnswerOutcome, ApprovalRequest, DecisionSource};
use sluice_gateway::gate::rendering::{self, RenderedApproval};
use sluice_services::CallError;
use sluice_store::ApprovalLink;
use subtle::ConstantTimeEq as _;
use tokio::time::timeout;

use super::http::reply::{HttpReply, HttpReplyBody};
use super::http::{calls, check_host, query_of, text_header};
use super::telegram_webhook;

use render::ApprovalPageView;

/// How long an opened page can be answered.
const FRESH: Millis = Millis::from_mins(30);
/// Largest form that is read, in bytes.
const LONGEST: usize = 64 * 1024;
/// Characters of a token.
const TOKEN: usize = 43;

/// Whether a path belongs to a page, if the gateway has pages.
pub(crate) fn is_at(gw: &Gateway, path: &str) -> bool {
    gw.config.approvals.page.is_some() && path.starts_with(PATH)
}

/// Handles one request. Whatever happens, the person gets a readable page.
pub(crate) async fn visit(gw: &Gateway, request: Request<Incoming>, id: RequestId) -> Response<HttpReplyBody> {
    let (head, body) = request.into_parts();
    let token = head.uri.path().strip_prefix(PATH).unwrap_or_default().to_owned();
    let answered = match check(gw, &head.method, &head.headers) {
        Err(no) => Err(no),
        Ok(()) if head.method == Method::POST => post(gw, &token, &head.headers, body).await,
        Ok(()) => get(gw, &token).await,
    };
    let page = answered.unwrap_or_else(|no| {
        if no.refusal.code().status() >= 500 {
            tracing::error!(request = %id, code = no.refusal.code().as_str(), "a page could not be shown");
        }
        PageReply::html(no.refusal.code().status(), render::sorry(&no.refusal.to_string()))
    });
    page.into_response(id)
}

/// The answer to the browser.
struct PageReply {
    status: u16,
    html: String,
    /// The address to redirect to.
    to: Option<String>,
}

impl PageReply {
    fn html(status: u16, html: String) -> Self {
        Self { status, html, to: None }
    }

    fn into_response(self, id: RequestId) -> Response<HttpReplyBody> {
        let reply = HttpReply::bytes(self.status, "text/html; charset=utf-8", self.html.into_bytes());
        let mut response = reply.into_response(id);
        let set = [
            (header::CONTENT_SECURITY_POLICY, render::csp()),
            // The address holds the token, so the browser may send it to this gateway only.
            (header::REFERRER_POLICY, "same-origin".into()),
            (header::X_FRAME_OPTIONS, "DENY".into()),
            (header::HeaderName::from_static("x-robots-tag"), "noindex, nofollow".into()),
        ];
        for (name, value) in set {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(name, value);
            }
        }
        if let Some(to) = self.to.and_then(|to| HeaderValue::from_str(&to).ok()) {
            *response.status_mut() = StatusCode::SEE_OTHER;
            response.headers_mut().insert(header::LOCATION, to);
        }
        response
    }
}

/// SECURITY: refuses forms of other sites, whatever they know.
fn check(gw: &Gateway, method: &Method, headers: &HeaderMap) -> Result<(), CallError> {
    let base = gw.config.approvals.page.as_ref();
    if !telegram_webhook::is_at(headers, base.map(|base| base.authority())) {
        check_host(gw, headers)?;
    }
    if method == Method::GET || method == Method::HEAD {
        return Ok(());
    }
    if method != Method::POST {
        return Err(CallError::new(Code::DoorMethod));
    }
    let own = |origin: &str| base.is_some_and(|base| base.origin() == origin);
    let from_here = text_header(headers, "origin")?.is_none_or(own);
    let site = text_header(headers, "sec-fetch-site")?;
    if from_here && site.is_none_or(|site| site == "same-origin") {
        Ok(())
    } else {
        Err(CallError::new(Code::DoorOrigin))
    }
}

/// An approval that a person has opened.
struct OpenedApprovalLink {
    token: String,
    link: ApprovalLink,
    question: ApprovalRequest,
    sight: RenderedApproval,
    ceiling: Risk,
    channel: &'static str,
}

impl OpenedApprovalLink {
    async fn read(gw: &Gateway, token: &str) -> Result<Self, CallError> {
        let unknown = || CallError::with_text(Code::ApprovalNotFound, "this link is unknown, or no longer works");
        if token.len() != TOKEN {
            return Err(unknown());
        }
        let link = gw.store.link_by_token(hash(token)).await?.ok_or_else(unknown)?;
        // A person who no longer decides here has no link either.
        if !gw.config.approvals.people.iter().any(|person| person.name == link.person) {
            return Err(unknown());
        }
        let approvals = &gw.config.approvals;
        let (channel, ceiling) = match link.channel.as_str() {
            telegram::NAME => (rendering::TELEGRAM_PAGE, approvals.telegram_ceiling),
            email::NAME => (rendering::EMAIL_PAGE, approvals.email_ceiling),
            _ => return Err(unknown()),
        };
        let question = ApprovalRequest::read(gw, link.approval).await?;
        let sight = rendering::of(gw, &question, rendering::PAGE);
        Ok(Self { token: token.to_owned(), link, question, sight, ceiling, channel })
    }

    fn is_open(&self, now: UtcMillis) -> bool {
        let approval = &self.question.card.approval;
        approval.state.is_open() && !approval.is_over(now)
    }

    /// Proof of what a page showed, and when. Only the holder of the link can make or use one.
    fn proof(&self, at: UtcMillis) -> Option<String> {
        let approval = &self.question.card.approval;
        let mut mac = Hmac::<Sha256>::new_from_slice(self.token.as_bytes()).ok()?;
        let card = card_digest(self.question.card.items.iter().map(|item| &item.digest));
        let shown = format!("{}\n{}\n{}\n{card}", self.sight.title, self.sight.text, approval.items);
        mac.update(format!("sluice page\n{}\n{}\n{shown}", approval.id, at.as_millis()).as_bytes());
        Some(format!("{}.{}", at.as_millis(), URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())))
    }

    /// Whether a proof matches what this page would show now, and is not too old.
    fn proves(&self, given: &str, now: UtcMillis) -> bool {
        let at = given.split_once('.').and_then(|(at, _)| at.parse().ok()).map(UtcMillis::from_millis);
        let Some(at) = at.filter(|at| *at <= now && now.since(*at) < FRESH) else { return false };
        self.proof(at).is_some_and(|known| bool::from(known.as_bytes().ct_eq(given.as_bytes())))
    }

    fn render(&self, gw: &Gateway, notice: Option<&str>) -> String {
        let now = gw.now();
        let approval = &self.question.card.approval;
        let outcome = match (approval.is_over(now), self.is_open(now)) {
            (true, _) => Some("nobody answered in time, so it was denied".to_owned()),
            (false, false) => Some(deciding::describe_approval(approval)),
            (false, true) => None,
        };
        render::question(&ApprovalPageView {
            question: &self.question,
            sight: &self.sight,
            person: self.link.person.as_str(),
            allowed: self.sight.allows() && self.question.risk().rank() <= self.ceiling.rank(),
            two_people: gw.config.approvals.two_people.at(self.question.risk()),
            proof: self.proof(now).unwrap_or_default(),
            outcome,
            notice: notice.map(str::to_owned),
        })
    }
}

async fn get(gw: &Gateway, token: &str) -> Result<PageReply, CallError> {
    if let Ok(call) = token.parse::<CallId>() {
        return standing(gw, call).await;
    }
    let opened = OpenedApprovalLink::read(gw, token).await?;
    Ok(PageReply::html(200, opened.render(gw, None)))
}

/// The state of a call, for everyone who has its id: an agent, or the person at its client.
///
/// SECURITY: the reader of this address may be the agent itself. So there is no form, no token and no argument here;
/// the links that decide are sent to people over channels that no agent reads.
async fn standing(gw: &Gateway, call: CallId) -> Result<PageReply, CallError> {
    let unknown = || CallError::with_text(Code::CallNotFound, "there is no such call, or it did not have to wait");
    calls::own(&gw.store, call, None).await?.ok_or_else(unknown)?;
    let view = calls::call_status(gw, call, None, Millis::ZERO).await?;
    Ok(PageReply::html(200, render::standing(&view)))
}

async fn post(gw: &Gateway, token: &str, headers: &HeaderMap, body: Incoming) -> Result<PageReply, CallError> {
    let form = form(gw, headers, body).await?;
    let field = |name: &str| form.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str());
    let opened = OpenedApprovalLink::read(gw, token).await?;
    if !opened.is_open(gw.now()) {
        return Ok(PageReply::html(409, opened.render(gw, Some("Nothing changed: this was already decided."))));
    }
    if !opened.proves(field("page"), gw.now()) {
        let notice =
            "Nothing was decided: the page you answered is too old, or the request has changed. Please check it again.";
        return Ok(PageReply::html(409, opened.render(gw, Some(notice))));
    }
    let meaning = match reply_meaning::read(&words(field("answer"), field("words")), opened.question.form()) {
        Ok(meaning) => meaning,
        Err(unclear) => {
            return Ok(PageReply::html(422, opened.render(gw, Some(&format!("Nothing was decided: {unclear}.")))));
        }
    };
    let stops = matches!(meaning, ReplyMeaning::Freeze(_));
    let by = Actor::Person(opened.link.person.clone());
    let voice = DecisionSource { by, channel: opened.channel, ceiling: Some(opened.ceiling) };
    let bound = field("bound").parse::<u32>().ok();
    match deciding::decide_within(gw, &voice, &opened.question, (meaning, bound)).await {
        // Redirected, so that reloading the page does not send the form again.
        Ok(AnswerOutcome::Decided { .. }) => {
            Ok(PageReply { status: 303, html: String::new(), to: Some(format!("{PATH}{token}")) })
        }
        Ok(heard) => {
            let now = OpenedApprovalLink::read(gw, token).await?;
            let status = if matches!(heard, AnswerOutcome::Waiting { .. }) || stops { 200 } else { 409 };
            Ok(PageReply::html(status, now.render(gw, Some(&deciding::describe_outcome(&heard)))))
        }
        Err(no) if no.refusal.code().status() >= 500 => Err(no),
        Err(no) => {
            let notice = format!("Nothing was decided: {}.", no.refusal);
            Ok(PageReply::html(no.refusal.code().status(), opened.render(gw, Some(&notice))))
        }
    }
}

/// The form in the words of a reply: the answer of the button, and the text that was written with it.
fn words(answer: &str, words: &str) -> String {
    // Browsers use CR LF for the lines of a form.
    let words = words.replace("\r\n", "\n");
    if words.trim().is_empty() { answer.to_owned() } else { format!("{answer} {words}") }
}

async fn form(gw: &Gateway, headers: &HeaderMap, body: Incoming) -> Result<Vec<(String, String)>, CallError> {
    let kind = text_header(headers, "content-type")?.unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err(CallError::new(Code::DoorMediaType));
    }
    let patience = gw.config.limits.body_timeout.as_duration();
    let read = timeout(patience, Limited::new(body, LONGEST).collect())
        .await
        .map_err(|_| CallError::new(Code::DoorTooSlow))?;
    let bytes = read.map_err(|_| CallError::new(Code::DoorTooLarge))?.to_bytes();
    let text = std::str::from_utf8(&bytes).map_err(|_| CallError::new(Code::SchemaBadName))?;
    query_of(text)
}
