//! A server on the official SDK whose calls are recorded, in each way that the library has. What its tools do is what handlers do
//! well and badly.
//!
//! usage: receipted [--mode whole|router|tools|both] [--http] [--policy FILE] [--deny-as-result] [--store] [--impatient]
//!                  [--require-evidence] [--pack-every N] [--drop]
//!
//! Over HTTP it serves a free port of 127.0.0.1 and prints its URL. Evidence goes where `$ASSAY_AUDIT_DIR` says.

use assay::receipts::{Denial, ReceiptedRouter, Receipts, Recorder};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use rmcp::{
    ErrorData, RoleServer, ServerHandler, Service, ServiceExt,
    handler::server::{
        router::{Router, tool::ToolRouter},
        tool::RequestState,
        wrapper::{Json, Parameters},
    },
    model::*,
    service::{NotificationContext, RequestContext},
    tool, tool_handler, tool_router,
    transport::{
        stdio,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
        },
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{error::Error, sync::Arc, time::Duration};

/// How long the impatient server lets a call run.
const PATIENCE: Duration = Duration::from_millis(100);

#[derive(Clone)]
struct Server {
    receipts: Receipts,
    tool_router: ToolRouter<Self>,
}

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Terms {
    left: i64,
    right: i64,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: i64,
}

#[tool_router]
impl Server {
    fn new(receipts: &Receipts) -> Self {
        Self { receipts: receipts.clone(), tool_router: Self::tool_router() }
    }

    #[tool(description = "Says how the recorder is")]
    async fn health(&self) -> String {
        format!("{:?}", self.receipts.health())
    }

    #[tool(description = "Gives back its text")]
    async fn echo(&self, Parameters(Text { text }): Parameters<Text>) -> String {
        text
    }

    #[tool(description = "Adds two numbers")]
    async fn add(&self, Parameters(Terms { left, right }): Parameters<Terms>) -> Json<Sum> {
        Json(Sum { sum: left.wrapping_add(right) })
    }

    #[tool(description = "Gives a list, which clients before 2026-07-28 get as text")]
    async fn list(&self) -> CallToolResult {
        CallToolResult::structured(serde_json::json!(["a", "b"]))
    }

    #[tool(description = "Fails as tools do")]
    async fn fail(&self) -> CallToolResult {
        CallToolResult::error(vec![ContentBlock::text("it failed on s3cret")])
    }

    #[tool(description = "Fails as the protocol does")]
    async fn refuse(&self) -> Result<String, ErrorData> {
        Err(ErrorData::internal_error("it broke on s3cret", None))
    }

    #[tool(description = "Panics")]
    async fn panic(&self) -> String {
        panic!("as a test wants it")
    }

    #[tool(description = "Never answers")]
    async fn stuck(&self) -> String {
        std::future::pending().await
    }

    #[tool(description = "Waits until it is cancelled, and answers all the same")]
    async fn dawdle(&self, context: RequestContext<RoleServer>) -> String {
        context.ct.cancelled().await;
        "late".to_owned()
    }

    #[tool(description = "Asks for more before it answers")]
    async fn ask(&self, RequestState(state): RequestState) -> Result<CallToolResponse, ErrorData> {
        match state.as_deref() {
            None => {
                let question = serde_json::from_value(serde_json::json!({
                    "answer": {"method": "elicitation/create", "params": {
                        "mode": "form", "message": "Name?", "requestedSchema": {
                            "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}}
                }))
                .map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
                Ok(InputRequiredResult::new(Some(question), Some("asked once".to_owned())).into())
            }
            Some(_) => Ok(CallToolResult::success(vec![ContentBlock::text("thank you")]).into()),
        }
    }

    #[tool(description = "Answers with a task")]
    async fn task(&self) -> CallToolResponse {
        CallToolResponse::Task(CreateTaskResult::new(a_task(TaskStatus::Working)))
    }
}

fn a_task(status: TaskStatus) -> Task {
    Task::new("task-1", status, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tasks().build())
    }

    async fn get_task(&self, _: GetTaskParams, _: RequestContext<RoleServer>) -> Result<GetTaskResult, ErrorData> {
        let result = CallToolResult::success(vec![ContentBlock::text("the task is done")]);
        let result = serde_json::to_value(result).map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
        let result = result.as_object().cloned().unwrap_or_default();
        Ok(GetTaskResult::new(DetailedTask::new(a_task(TaskStatus::Completed), TaskPayload::Completed { result })))
    }
}

/// Gives up on calls that take long, as a layer in front of a server may: their futures are dropped.
#[derive(Clone)]
struct Impatient<S>(S);

impl<S: Service<RoleServer>> Service<RoleServer> for Impatient<S> {
    async fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        tokio::time::timeout(PATIENCE, self.0.handle_request(request, context))
            .await
            .unwrap_or_else(|_| Err(ErrorData::internal_error("given up", None)))
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.0.handle_notification(notification, context).await
    }

    fn get_info(&self) -> ServerConfig {
        self.0.get_info()
    }
}

async fn serve<S: Service<RoleServer>>(service: S) -> Result<(), Box<dyn Error>> {
    service.serve(stdio()).await?.waiting().await?;
    Ok(())
}

async fn serve_http<H: ServerHandler + Clone>(handler: H) -> Result<(), Box<dyn Error>> {
    let config = StreamableHttpServerConfig::default().with_json_response(true);
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(handler.clone()), sessions, config);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/mcp", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn run(mode: &str, http: bool, impatient: bool, receipts: Receipts) -> Result<(), Box<dyn Error>> {
    let server = Server::new(&receipts);
    let some = |mut server: Server| {
        server.tool_router = server.tool_router.receipted(&receipts, ["echo", "add", "none"]);
        server
    };
    match (mode, http) {
        ("whole", false) if impatient => serve(Impatient(receipts.wrap(server))).await,
        ("whole", false) => serve(receipts.wrap(server)).await,
        ("whole", true) => serve_http(receipts.wrap(server)).await,
        ("tools", false) => serve(some(server)).await,
        ("both", false) => serve(receipts.wrap(some(server))).await,
        ("router", false) => {
            let tools = Server::tool_router().map.into_values();
            serve(receipts.wrap_service(Router::new(server).with_tools(tools))).await
        }
        _ => Err(format!("there is no mode {mode:?}").into()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (mut mode, mut http, mut impatient, mut is_dropped) = ("whole".to_owned(), false, false, false);
    let mut builder = Recorder::builder("receipted@1.0.0").auto_pack(true).cleartext("echo", ["text"]);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match &*arg {
            "--mode" => mode = args.next().unwrap_or_default(),
            "--http" => http = true,
            "--impatient" => impatient = true,
            "--policy" => builder = builder.policy_file(args.next().unwrap_or_default()),
            "--deny-as-result" => builder = builder.deny_as(Denial::ToolResult),
            "--store" => builder = builder.store_arguments(true).store_results(true),
            "--require-evidence" => builder = builder.require_evidence(),
            "--pack-every" => builder = builder.pack_every(args.next().unwrap_or_default().parse()?),
            "--drop" => is_dropped = true,
            other => return Err(format!("what is {other}?").into()),
        }
    }
    let recorder = builder.open()?;
    let ended = run(&mode, http, impatient, recorder.receipts()).await;
    if is_dropped {
        drop(recorder);
        return ended;
    }
    for pack in recorder.close().packs.into_iter().filter_map(|sealed| sealed.pack) {
        eprintln!("pack {}", pack.display());
    }
    ended
}
