//! The way of one request to its page or action.

use std::sync::Arc;

use http::{Method, header};
use sluice_core::refusal::Code;
use sluice_gateway::{Gateway, GatewayPhase};
use sluice_services::CallError;

use crate::assets;
use crate::context::{PageAddress, PageContext, SignedInVisitor, own_address};
use crate::cookies;
use crate::fields::FormFields;
use crate::guard;
use crate::kept_form::KeptForm;
use crate::live;
use crate::lockout::SignInLockout;
use crate::pages::{self, layout};
use crate::reply::{DashboardReply, DashboardRequest};
use crate::sign_in::{self, SignInPage};

/// The sign-in page.
const SIGN_IN: &str = "/ui/login";
/// The stream of changes.
const STREAM: &str = "/ui/stream";

/// The dashboard of one gateway.
#[derive(Debug)]
pub struct Dashboard {
    gw: Arc<Gateway>,
    lockout: SignInLockout,
}

/// Whether a path belongs to the dashboard.
#[must_use]
pub fn is_at(path: &str) -> bool {
    path == "/ui" || path.starts_with("/ui/")
}

impl Dashboard {
    /// The dashboard of a gateway.
    #[must_use]
    pub fn new(gw: &Arc<Gateway>) -> Self {
        Self { gw: Arc::clone(gw), lockout: SignInLockout::default() }
    }

    /// Answers one request. Whatever happens, the person gets a readable page.
    pub async fn visit(&self, request: DashboardRequest) -> DashboardReply {
        match self.answer(&request).await {
            Ok(reply) => reply,
            Err(no) => {
                let code = no.refusal.code();
                if code.status() >= 500 && code != Code::GatewayStarting {
                    tracing::error!(code = code.as_str(), "a page of the dashboard could not be shown");
                }
                layout::sorry(&no, sign_in::theme(&request.headers))
            }
        }
    }

    async fn answer(&self, request: &DashboardRequest) -> Result<DashboardReply, CallError> {
        let path = request.path.as_str();
        let reads = request.method == Method::GET || request.method == Method::HEAD;
        if !reads && request.method != Method::POST {
            return Err(CallError::new(Code::DoorMethod));
        }
        if let Some(asset) = assets::at(path).filter(|_| reads) {
            return Ok(asset);
        }
        if self.gw.phase() == GatewayPhase::Starting {
            return Err(CallError::new(Code::GatewayStarting));
        }
        if reads { self.read(request, path).await } else { self.act(request, path).await }
    }

    async fn read(&self, request: &DashboardRequest, path: &str) -> Result<DashboardReply, CallError> {
        let query = FormFields::parse(&request.query)?;
        let visitor = sign_in::visitor(&self.gw, &request.headers, request.is_tls).await?;
        if path == SIGN_IN {
            let (next, signed_in_as) = (own_address(query.get("next")), visitor.map(|known| known.person));
            let page = SignInPage { next: &next, problem: None, kept: None, signed_in_as: signed_in_as.as_deref() };
            return page.reply(&self.gw, &request.headers, 200);
        }
        let Some(visitor) = visitor else {
            if path == STREAM {
                return Err(CallError::new(Code::IdentityMissing));
            }
            let page = PageAddress::parse(path).map_or_else(|| "/ui".to_owned(), PageAddress::path);
            return Ok(DashboardReply::see_other(&match page.as_str() {
                "/ui" => SIGN_IN.to_owned(),
                page => format!("{SIGN_IN}?next={page}"),
            }));
        };
        if path == STREAM {
            return live::open(&self.gw, visitor, &query, &request.headers).await;
        }
        if path == "/ui/go" {
            return pages::find::go(&self.gw, query.get("q")).await;
        }
        let page = PageAddress::parse(path).ok_or_else(|| CallError::new(Code::DoorNotFound))?;
        let context = PageContext { gw: &self.gw, visitor: &visitor, query: &query, typed: None };
        layout::page(&context, page, layout::PageNotice::of_query(&query), 200).await
    }

    async fn act(&self, request: &DashboardRequest, path: &str) -> Result<DashboardReply, CallError> {
        guard::check_source(&request.headers)?;
        let kind = request.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/x-www-form-urlencoded")
        {
            return Err(CallError::new(Code::DoorMediaType));
        }
        let text = std::str::from_utf8(&request.body)
            .map_err(|_| CallError::with_text(Code::DoorParameter, "the form is not valid UTF-8"))?;
        let form = FormFields::parse(text)?;
        if path == SIGN_IN {
            return sign_in::submit(&self.gw, &self.lockout, request, &form).await;
        }
        let Some(visitor) = sign_in::visitor(&self.gw, &request.headers, request.is_tls).await? else {
            return self.keep(request, path, form);
        };
        guard::check_token(form.get("csrf"), &visitor.csrf)?;
        if path == "/ui/logout" {
            return self.sign_out(&visitor).await;
        }
        if path == "/ui/theme" {
            let word = ["light", "dark"].into_iter().find(|word| *word == form.get("theme")).unwrap_or("auto");
            let back = DashboardReply::see_other(&own_address(form.get("back")));
            return Ok(back.with(header::SET_COOKIE, cookies::keep_theme(word)));
        }
        let query = FormFields::default();
        let context = PageContext { gw: &self.gw, visitor: &visitor, query: &query, typed: Some(&form) };
        pages::actions::act(&context, path, &form).await
    }

    /// Answers a form without a session: the person signs in, and nothing that was typed is lost.
    fn keep(&self, request: &DashboardRequest, path: &str, form: FormFields) -> Result<DashboardReply, CallError> {
        let problem = Some("You were signed out. Sign in, and send your input again: it is kept below.");
        let kept = KeptForm::arrived(path, form);
        let page = SignInPage { next: "/ui", problem, kept: Some(&kept), signed_in_as: None };
        page.reply(&self.gw, &request.headers, 401)
    }

    async fn sign_out(&self, visitor: &SignedInVisitor) -> Result<DashboardReply, CallError> {
        self.gw.store.end_dashboard_session(visitor.session, visitor.by.clone(), None).await?;
        self.gw.signals.events.notify_written();
        let reply = DashboardReply::see_other(SIGN_IN);
        Ok(cookies::forget_session().into_iter().fold(reply, |reply, cookie| reply.with(header::SET_COOKIE, cookie)))
    }
}
