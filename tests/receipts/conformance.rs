//! What the official conformance suite asks of a server for MCP 2025-11-25, on the SDK, with a recorder or without: what the suite
//! finds must be the same.
//!
//! usage: receipted-conformance --bare|--recorded ADDRESS
//!
//! What it offers is in `conformance.json`.
#![expect(deprecated, reason = "the suite asks for what clients before 2026-07-28 have")]

use assay::receipts::Recorder;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::*,
    service::RequestContext,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{error::Error, sync::Arc, time::Duration};

/// Between two messages of a tool that runs.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone)]
struct Server(Arc<Value>);

fn parsed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|e| ErrorData::internal_error(e.to_string(), None))
}

fn text(text: String) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

impl Server {
    /// What a list offers, as the SDK has it.
    fn all<T: DeserializeOwned>(&self, list: &str) -> Result<T, ErrorData> {
        parsed(self.0[list].clone())
    }

    fn named<'v>(&'v self, list: &str, name: &str) -> Result<&'v Value, ErrorData> {
        self.0[list].get(name).ok_or_else(|| ErrorData::invalid_params(format!("there is no {name}"), None))
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let all = ServerCapabilities::builder().enable_prompts().enable_resources().enable_resources_subscribe();
        ServerConfig::new(all.enable_tools().enable_logging().enable_completions().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let names = self.0["results"].as_object().into_iter().flat_map(|all| all.keys());
        let plain = json!({"type": "object", "properties": {}});
        let tool = |name: &String| {
            let schema = self.0["schemas"].get(name).unwrap_or(&plain);
            json!({"name": name, "description": format!("The suite's {name}"), "inputSchema": schema})
        };
        Ok(ListToolsResult::with_all_items(parsed(names.map(tool).collect())?))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let result = self.named("results", &request.name)?.clone();
        match &*request.name {
            "test_tool_with_logging" => {
                for said in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                    let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(said));
                    let _ = context.peer.notify_logging_message(message).await;
                    tokio::time::sleep(PAUSE).await;
                }
            }
            "test_tool_with_progress" => {
                for done in [0.0, 50.0, 100.0] {
                    if let Some(token) = context.meta.get_progress_token() {
                        let progress = ProgressNotificationParam::new(token, done).with_total(100.0);
                        let _ = context.peer.notify_progress(progress).await;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
            "test_sampling" => {
                let prompt = request.arguments.unwrap_or_default()["prompt"].as_str().unwrap_or("Hello").to_owned();
                let question = CreateMessageRequestParams::new(vec![SamplingMessage::user_text(prompt)], 100);
                return Ok(match context.peer.create_message(question).await {
                    Ok(answer) => text(format!("LLM response: {:?}", answer.message.content)).into(),
                    Err(e) => CallToolResult::error(vec![ContentBlock::text(e.to_string())]).into(),
                });
            }
            name if self.0["questions"].get(name).is_some() => {
                let question = json!({
                    "mode": "form", "message": "Please answer", "requestedSchema": self.0["questions"][name],
                });
                let question = ServerRequest::ElicitRequest(ElicitRequest::new(parsed(question)?));
                return Ok(match context.peer.send_request(question).await {
                    Ok(ClientResult::ElicitResult(answer)) => {
                        let answer = json!(answer);
                        let action = answer["action"].as_str().unwrap_or_default();
                        text(format!("User response: action={action}, content={}", answer["content"])).into()
                    }
                    other => CallToolResult::error(vec![ContentBlock::text(format!("{other:?}"))]).into(),
                });
            }
            _ => {}
        }
        Ok(parsed::<CallToolResult>(result)?.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(self.all("resources")?))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(self.all("templates")?))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = &*request.uri;
        let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
        let content = match id {
            Some(id) => {
                let data = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
                json!({"uri": uri, "mimeType": "application/json", "text": data.to_string()})
            }
            None => self.0["contents"].get(uri).cloned().ok_or_else(|| {
                ErrorData::resource_not_found(format!("there is no {uri}"), Some(json!({"uri": uri})))
            })?,
        };
        Ok(ReadResourceResult::new(parsed(json!([content]))?).into())
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(self.all("prompts")?))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let mut messages = self.named("messages", &request.name)?.to_string();
        let arguments = request.arguments.unwrap_or_default();
        for (place, name) in [("ARG1", "arg1"), ("ARG2", "arg2"), ("RESOURCE", "resourceUri")] {
            messages = messages.replace(place, arguments.get(name).and_then(Value::as_str).unwrap_or("test://none"));
        }
        let messages = serde_json::from_str(&messages).map_err(|e| ErrorData::invalid_params(e.to_string(), None))?;
        Ok(GetPromptResult::new(messages).into())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let values = CompletionInfo::new(vec!["1".into(), "2".into()]);
        Ok(CompleteResult::new(values.map_err(|e| ErrorData::internal_error(e, None))?))
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }
}

async fn serve(server: impl ServerHandler + Clone, address: &str) -> Result<(), Box<dyn Error>> {
    let sessions = Arc::new(LocalSessionManager::default());
    let service =
        StreamableHttpService::new(move || Ok(server.clone()), sessions, StreamableHttpServerConfig::default());
    let listener = tokio::net::TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let server = Server(Arc::new(serde_json::from_str(include_str!("conformance.json"))?));
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--bare", address] => serve(server, address).await,
        ["--recorded", address] => {
            let recorder = Recorder::builder("conformance@1.0.0").auto_pack(true).open()?;
            serve(recorder.receipts().wrap(server), address).await
        }
        _ => Err("usage: receipted-conformance --bare|--recorded ADDRESS".into()),
    }
}
