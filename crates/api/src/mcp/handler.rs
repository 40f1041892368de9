//! The handler: passes protocol requests to the modules that answer them.
//!
//! Takes the SDK's requests; gives its results. It keeps nothing between two requests. Promise: the principal is read
//! from the request itself, each time.

use std::borrow::Cow;
use std::sync::Arc;

use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestMethod,
    CompleteRequestParams, CompleteResult, GetTaskParams, GetTaskResult, Implementation, ListPromptsRequestMethod,
    ListPromptsResult, ListResourceTemplatesRequestMethod, ListResourceTemplatesResult, ListResourcesRequestMethod,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig,
    SubscriptionFilter, Tool,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use sluice_gateway::Gateway;
use sluice_services::CallError;

use super::client_lists::ClientToolLists;
use super::names::LiveToolNames;
use super::recent::RecentCalls;
use super::{McpCaller, call, pages, stream, tasks, tools};

/// How long a client may use a list that it has, in milliseconds.
const FRESH_MS: u64 = 60_000;
/// Revisions spoken, the oldest first.
const REVISIONS: [ProtocolVersion; 3] =
    [ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28];
/// What a model is told about all tools at once.
const INSTRUCTIONS: &str = "Every tool call goes through a gate that people set up. Reads are answered at once. Writes \
may be `held` for a while before they leave or may be `awaiting_approval` by a person: both answer with a `call_id` and \
both are accepted, so do not make the same call again. Use sluice_status, sluice_wait and sluice_cancel with the \
`call_id`. A refusal says what to do instead. If sluice_find_tools is listed, it finds tools that your list does not have.";

/// Answers one request. What is kept between two requests only saves work or shortens lists.
#[derive(Clone)]
pub(super) struct McpHandler {
    pub gw: Arc<Gateway>,
    pub names: Arc<LiveToolNames>,
    pub lists: Arc<ClientToolLists>,
    pub recent: Arc<RecentCalls>,
}

/// The sender of a request.
pub(super) fn guest_of(context: &RequestContext<RoleServer>) -> Result<Arc<McpCaller>, ErrorData> {
    let parts = context.extensions.get::<http::request::Parts>();
    let guest = parts.and_then(|parts| parts.extensions.get::<Arc<McpCaller>>());
    guest.cloned().ok_or_else(|| ErrorData::internal_error("the request has no known sender", None))
}

/// The name that the client program gives itself.
pub(super) fn client_of(guest: &McpCaller, context: &RequestContext<RoleServer>) -> Option<String> {
    let kept = guest.session.as_ref().and_then(|session| session.client.clone());
    kept.or_else(|| context.meta.client_info().map(|client| client.name))
}

/// An error of the gateway, where the protocol has no other form for it.
pub(super) fn broken(no: &CallError) -> ErrorData {
    ErrorData::internal_error(
        no.refusal.text().to_owned(),
        Some(serde_json::json!({"code": no.refusal.code().as_str()})),
    )
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().enable_tasks().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("sluicegate", self.gw.about.release))
            .with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(&REVISIONS)
    }

    async fn list_tools(
        &self,
        params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let guest = guest_of(&context)?;
        let client = client_of(&guest, &context);
        let viewer = guest.viewer(client.as_deref(), &self.lists);
        let names = self.names.now();
        let list = Box::pin(tools::list(&self.gw, &names, viewer)).await;
        let list: Vec<Tool> = list.map_err(|no| broken(&no))?;
        self.lists.note_listed(&guest.list_owner(client.as_deref()), tools::fingerprint(&list));
        let cursor = params.and_then(|params| params.cursor);
        let (page, next) = pages::page(list, cursor.as_deref())?;
        let mut result = ListToolsResult::with_all_items(page);
        result.next_cursor = next;
        Ok(result.with_ttl_ms(FRESH_MS).with_cache_scope(CacheScope::Private))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        // The SDK moves this future from task to task: moving a pointer is cheaper than moving the whole corridor.
        Box::pin(call::make(self, request, &context)).await
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        Box::pin(tasks::get(self, &request.task_id, &*guest_of(&context)?)).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Box::pin(tasks::cancel(self, &request.task_id, &*guest_of(&context)?)).await
    }

    // The gate has tools only; features that are not announced are not answered.
    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourcesRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourceTemplatesRequestMethod>())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        Box::pin(stream::listen(self, context)).await
    }
}
