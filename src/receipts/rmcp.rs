//! The adapter for servers on the official SDK, `rmcp`: a whole server, a [`Router`](rmcp::handler::server::router::Router), or
//! some tools of a [`ToolRouter`] (docs/library.md).
//!
//! What a handler does is not changed: it is awaited where it was, its answer is given on as it is, and every method that is no
//! call goes through.
#![expect(deprecated, reason = "older methods of the protocol go through like newer ones")]
#![allow(clippy::wildcard_imports, reason = "most of the SDK's model")]

use super::{Denial, Denied, Outcome, Pending, Receipts, Request, Running, settings::Settings};
use crate::model::{PolicyReason, Transport};
use rmcp::{
    ErrorData, RoleServer, ServerHandler, Service,
    handler::server::tool::{ToolCallContext, ToolRoute, ToolRouter},
    model::*,
    service::{MaybeSend, MaybeSendFuture, NotificationContext, RequestContext, SubscriptionContext},
};
use serde::Serialize;
use std::{borrow::Cow, future::Future};
use tokio_util::sync::CancellationToken;

/// Code of the JSON-RPC error that a refused call is answered with, as the guard's is.
const DENIED: i32 = -32001;
/// The header that names an MCP session over HTTP (MCP 2025-03-26, Streamable HTTP).
const SESSION_HEADER: &str = "mcp-session-id";

/// A server whose calls are recorded; made by [`Receipts::wrap`].
#[derive(Clone)]
pub struct Receipted<H> {
    inner: H,
    receipts: Receipts,
}

/// A service whose calls are recorded; made by [`Receipts::wrap_service`].
#[derive(Clone)]
pub struct ReceiptedService<S> {
    inner: S,
    receipts: Receipts,
}

/// Tools of a router that are recorded.
pub trait ReceiptedRouter {
    /// Records the calls of these tools. A name that the router does not have is warned of: nothing is recorded for it.
    #[must_use]
    fn receipted<'t>(self, receipts: &Receipts, tools: impl IntoIterator<Item = &'t str>) -> Self;
}

impl Receipts {
    /// Records every call of this server. Making it costs nothing: servers over HTTP are made anew for each session or request.
    pub fn wrap<H: ServerHandler>(&self, inner: H) -> Receipted<H> {
        Receipted { inner, receipts: self.clone() }
    }

    /// The same for a service that is no [`ServerHandler`], as a router is.
    pub fn wrap_service<S: Service<RoleServer>>(&self, inner: S) -> ReceiptedService<S> {
        ReceiptedService { inner, receipts: self.clone() }
    }

    /// Records the calls of one tool. A call that the whole server records already is not recorded twice.
    #[must_use]
    pub fn route<S: MaybeSend + 'static>(&self, route: ToolRoute<S>) -> ToolRoute<S> {
        let (receipts, inner) = (self.clone(), route.call);
        ToolRoute::new_dyn(route.attr, move |context: ToolCallContext<'_, S>| {
            let (receipts, inner) = (receipts.clone(), inner.clone());
            Box::pin(async move {
                if context.request_context.extensions.get::<IsRecorded>().is_some() {
                    return inner(context).await;
                }
                let asked = Asked {
                    tool: &context.name,
                    arguments: context.arguments.as_ref(),
                    state: context.request_state.as_deref(),
                };
                let peer = Peer::of(&context.request_context);
                match receipts.begin(&asked, &context.request_context).await {
                    Ok(mut call) => {
                        call.start();
                        let response = inner(context).await;
                        call.end(|| peer.sent(&response));
                        response
                    }
                    Err(denied) => receipts.refusal(denied),
                }
            })
        })
    }

    /// A call begins: it is recorded as asked for, and judged.
    async fn begin(&self, asked: &Asked<'_>, context: &RequestContext<RoleServer>) -> Result<Call, Denied> {
        let parts = context.extensions.get::<http::request::Parts>();
        let session = parts.and_then(|parts| parts.headers.get(SESSION_HEADER)).and_then(|id| id.to_str().ok());
        let client = context.client_info();
        let version = context.protocol_version();
        let pending = self.request(&Request {
            tool: asked.tool,
            arguments: asked.arguments.map(json).as_deref(),
            id: Some(&json(&context.id)),
            meta: (!context.meta.is_empty()).then(|| json(&context.meta)).as_deref(),
            actor: client.as_ref().map(|client| &*client.name),
            protocol_version: version.as_ref().map(ProtocolVersion::as_str),
            transport: parts.map(|_| Transport::StreamableHttp),
            session,
            request_state: asked.state,
        });
        let running = if self.may_look_up() { judge_elsewhere(pending).await } else { pending.judge() };
        Ok(Call { running: Some(running?), cancel: context.ct.clone() })
    }

    /// Whether a verdict may have to wait for names to be resolved.
    #[cfg(feature = "policy")]
    fn may_look_up(&self) -> bool {
        self.0.settings.policy.as_ref().is_some_and(|(policy, _)| policy.resolves_names())
    }

    #[cfg(not(feature = "policy"))]
    #[allow(clippy::unused_self, reason = "as with the feature")]
    const fn may_look_up(&self) -> bool {
        false
    }

    fn refusal(&self, denied: Denied) -> Result<CallToolResponse, ErrorData> {
        match self.denial() {
            Denial::ToolResult => Ok(CallToolResult::error(vec![ContentBlock::text(denied.message)]).into()),
            Denial::Error => {
                let data = serde_json::json!({
                    "action": "deny", "policy_hash": denied.policy_hash, "rule": denied.rule,
                });
                Err(ErrorData::new(ErrorCode(DENIED), denied.message, Some(data)))
            }
        }
    }

    /// A task that a call began may be over.
    fn task(&self, answer: &GetTaskResult) {
        let id = &answer.task.task.task_id;
        match &answer.task.payload {
            TaskPayload::Completed { result } => drop(self.task_ended(id, Outcome::Result(&json(result)))),
            TaskPayload::Failed { error } => drop(self.task_ended(id, Outcome::Error(&json(error)))),
            _ => {}
        }
    }
}

/// What looks up names waits on a thread for that.
async fn judge_elsewhere(pending: Pending) -> Result<Running, Denied> {
    // It fails when the runtime shuts down: then nothing may begin any more.
    tokio::task::spawn_blocking(move || pending.judge()).await.unwrap_or_else(|_| {
        Err(Denied {
            message: "this call cannot be judged any more: the server shuts down".to_owned(),
            rule: PolicyReason::RecorderUnavailable.as_str().to_owned(),
            policy_hash: None,
            receipt: None,
        })
    })
}

/// The mark of a call that is recorded already.
#[derive(Clone)]
struct IsRecorded;

/// A call as the SDK has it.
struct Asked<'a> {
    tool: &'a str,
    arguments: Option<&'a JsonObject>,
    state: Option<&'a str>,
}

impl<'a> Asked<'a> {
    fn of(request: &'a CallToolRequestParams) -> Self {
        Self { tool: &request.name, arguments: request.arguments.as_ref(), state: request.request_state.as_deref() }
    }
}

/// A call that runs. Dropped before its end, it is recorded as dropped or panicked.
struct Call {
    running: Option<Running>,
    cancel: CancellationToken,
}

impl Call {
    fn start(&mut self) {
        if let Some(running) = &mut self.running {
            running.start();
        }
    }

    /// The handler is done; what its client is sent is made after the clock stops.
    fn end(mut self, sent: impl FnOnce() -> Result<Vec<u8>, Vec<u8>>) {
        let Some(mut running) = self.take() else { return };
        running.stop();
        match sent() {
            Ok(result) => running.finish(Outcome::Result(&result)),
            Err(error) => running.finish(Outcome::Error(&error)),
        };
    }

    fn take(&mut self) -> Option<Running> {
        let mut running = self.running.take()?;
        if self.cancel.is_cancelled() {
            running.cancelled();
        }
        Some(running)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// What the SDK goes by when it makes an answer fit its client.
struct Peer {
    is_modern: bool,
    takes_tasks: bool,
}

impl Peer {
    fn of(context: &RequestContext<RoleServer>) -> Self {
        let version = context.protocol_version();
        Self {
            is_modern: version.is_some_and(|v| v.as_str() >= ProtocolVersion::V_2026_07_28.as_str()),
            takes_tasks: context.client_capabilities().is_some_and(|c| c.supports_tasks()),
        }
    }

    /// The result, or the error, as the SDK sends it.
    fn sent(&self, response: &Result<CallToolResponse, ErrorData>) -> Result<Vec<u8>, Vec<u8>> {
        let error = match response {
            Ok(CallToolResponse::Task(_)) if !self.takes_tasks => {
                ErrorData::missing_required_client_capability(ClientCapabilities::builder().enable_tasks().build())
            }
            Ok(CallToolResponse::InputRequired(_)) if !self.is_modern => ErrorData::invalid_request(
                "InputRequiredResult requires negotiated protocol version 2026-07-28 or newer",
                None,
            ),
            Ok(CallToolResponse::Complete(result)) if self.is_modern => return Ok(json(result)),
            Ok(response) => {
                let mut result = ServerResult::from(response.clone());
                if !self.is_modern {
                    result.strip_result_type_for_legacy_peer();
                    result.strip_non_object_output_for_legacy_peer();
                }
                return Ok(json(&result));
            }
            Err(error) => {
                let mut error = error.clone();
                if self.is_modern && error.code == ErrorCode::RESOURCE_NOT_FOUND {
                    error.code = ErrorCode::INVALID_PARAMS;
                }
                error
            }
        };
        Err(json(&error))
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_else(|_| b"null".to_vec())
}

impl<S: MaybeSend + 'static> ReceiptedRouter for ToolRouter<S> {
    fn receipted<'t>(mut self, receipts: &Receipts, tools: impl IntoIterator<Item = &'t str>) -> Self {
        for tool in tools {
            match self.map.get_mut(tool) {
                Some(route) => *route = receipts.route(route.clone()),
                None => Settings::warn(&format!(
                    "the router has no tool {tool:?}: nothing is recorded for it; name tools as the router does"
                )),
            }
        }
        self
    }
}

impl<S: Service<RoleServer>> Service<RoleServer> for ReceiptedService<S> {
    async fn handle_request(
        &self,
        request: ClientRequest,
        mut context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        let ClientRequest::CallToolRequest(asked) = &request else {
            let answer = self.inner.handle_request(request, context).await;
            if let Ok(ServerResult::GetTaskResult(answer)) = &answer {
                self.receipts.task(answer);
            }
            return answer;
        };
        match self.receipts.begin(&Asked::of(&asked.params), &context).await {
            Ok(mut call) => {
                context.extensions.insert(IsRecorded);
                call.start();
                let answer = self.inner.handle_request(request, context).await;
                call.end(|| answer.as_ref().map(json).map_err(json));
                answer
            }
            Err(denied) => self.receipts.refusal(denied).map(ServerResult::from),
        }
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.inner.handle_notification(notification, context).await
    }

    fn get_info(&self) -> ServerConfig {
        self.inner.get_info()
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.inner.supported_protocol_versions()
    }
}

/// Methods that only go through. Each method of the trait has a default that answers "method not found": one that is
/// forgotten here would switch off a feature of the server. A test compares this with the SDK.
macro_rules! forward {
    (
        requests { $($request:ident($param:ty) -> $answer:ty;)* }
        notifications { $($notification:ident($what:ty);)* }
    ) => {
        $(fn $request(
            &self,
            request: $param,
            context: RequestContext<RoleServer>,
        ) -> impl Future<Output = Result<$answer, ErrorData>> + MaybeSendFuture + '_ {
            self.inner.$request(request, context)
        })*
        $(fn $notification(
            &self,
            notification: $what,
            context: NotificationContext<RoleServer>,
        ) -> impl Future<Output = ()> + MaybeSendFuture + '_ {
            self.inner.$notification(notification, context)
        })*
    };
}

impl<H: ServerHandler> ServerHandler for Receipted<H> {
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        mut context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match self.receipts.begin(&Asked::of(&request), &context).await {
            Ok(mut call) => {
                let peer = Peer::of(&context);
                context.extensions.insert(IsRecorded);
                call.start();
                let response = self.inner.call_tool(request, context).await;
                call.end(|| peer.sent(&response));
                response
            }
            Err(denied) => self.receipts.refusal(denied),
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let answer = self.inner.get_task(request, context).await;
        if let Ok(answer) = &answer {
            self.receipts.task(answer);
        }
        answer
    }

    fn ping(
        &self,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<(), ErrorData>> + MaybeSendFuture + '_ {
        self.inner.ping(context)
    }

    fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<DiscoverResult, ErrorData>> + MaybeSendFuture + '_ {
        self.inner.discover(context)
    }

    fn negotiate_initialize(&self, request: &InitializeRequestParams) -> Result<InitializeResult, ErrorData> {
        self.inner.negotiate_initialize(request)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.inner.supported_protocol_versions()
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.inner.accepted_subscription_filter(requested)
    }

    fn listen(
        &self,
        context: SubscriptionContext,
    ) -> impl Future<Output = Result<(), ErrorData>> + MaybeSendFuture + '_ {
        self.inner.listen(context)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.inner.get_tool(name)
    }

    fn on_initialized(
        &self,
        context: NotificationContext<RoleServer>,
    ) -> impl Future<Output = ()> + MaybeSendFuture + '_ {
        self.inner.on_initialized(context)
    }

    fn on_roots_list_changed(
        &self,
        context: NotificationContext<RoleServer>,
    ) -> impl Future<Output = ()> + MaybeSendFuture + '_ {
        self.inner.on_roots_list_changed(context)
    }

    fn get_info(&self) -> ServerConfig {
        self.inner.get_info()
    }

    forward! {
        requests {
            initialize(InitializeRequestParams) -> InitializeResult;
            complete(CompleteRequestParams) -> CompleteResult;
            set_level(SetLevelRequestParams) -> ();
            get_prompt(GetPromptRequestParams) -> GetPromptResponse;
            list_prompts(Option<PaginatedRequestParams>) -> ListPromptsResult;
            list_resources(Option<PaginatedRequestParams>) -> ListResourcesResult;
            list_resource_templates(Option<PaginatedRequestParams>) -> ListResourceTemplatesResult;
            read_resource(ReadResourceRequestParams) -> ReadResourceResponse;
            subscribe(SubscribeRequestParams) -> ();
            unsubscribe(UnsubscribeRequestParams) -> ();
            list_tools(Option<PaginatedRequestParams>) -> ListToolsResult;
            on_custom_request(CustomRequest) -> CustomResult;
            update_task(UpdateTaskParams) -> ();
            cancel_task(CancelTaskParams) -> ();
            list_skills(Option<PaginatedRequestParams>) -> ListSkillsResult;
            get_skill(GetSkillRequestParams) -> GetSkillResult;
            read_resource_directory(ReadResourceDirectoryRequestParams) -> ReadResourceDirectoryResult;
        }
        notifications {
            on_cancelled(CancelledNotificationParam);
            on_progress(ProgressNotificationParam);
            on_custom_notification(CustomNotification);
        }
    }
}
