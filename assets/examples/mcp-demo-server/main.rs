//! A small MCP server that records its own calls: three tools over stdio, or over HTTP.
//!
//! usage: mcp-demo-server [--http ADDRESS] [--files DIR] [--policy FILE]
//!
//! Over HTTP it prints its URL; port 0 is any free port. Evidence goes where `$ASSAY_AUDIT_DIR` says, else to `.assay/mcp`.

use assay::receipts::Recorder;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use rmcp::{
    ServerHandler, ServiceExt,
    handler::server::{
        router::tool::ToolRouter,
        wrapper::{Json, Parameters},
    },
    model::{Implementation, ServerCapabilities, ServerConfig},
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
use std::{error::Error, fs, io, path::PathBuf, sync::Arc};

/// All of the web, as this server knows it: address and text.
const PAGES: &[(&str, &str)] = &[
    ("https://example.com/receipts", "A receipt says what was asked for before anything runs"),
    ("https://example.com/chain", "In a hash chain each line holds the hash of the one before"),
    ("https://example.com/packs", "A proof pack holds receipts and their chain, and is signed"),
];

#[derive(Clone)]
struct DemoServer {
    files: Arc<PathBuf>,
    tool_router: ToolRouter<Self>,
}

#[derive(Deserialize, JsonSchema)]
struct Query {
    query: String,
}

#[derive(Serialize, JsonSchema)]
struct Results {
    results: Vec<Page>,
}

#[derive(Serialize, JsonSchema)]
struct Page {
    url: String,
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct File {
    /// A file below the server's directory of files.
    path: PathBuf,
}

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[tool_router]
impl DemoServer {
    fn new(files: PathBuf) -> Self {
        Self { files: Arc::new(files), tool_router: Self::tool_router() }
    }

    #[tool(description = "Finds pages that contain a text")]
    async fn web_search(&self, Parameters(Query { query }): Parameters<Query>) -> Json<Results> {
        let query = query.to_lowercase();
        let found = PAGES.iter().filter(|(_, text)| text.to_lowercase().contains(&query));
        Json(Results { results: found.map(|(url, text)| Page { url: (*url).into(), text: (*text).into() }).collect() })
    }

    #[tool(description = "Reads a file")]
    async fn read_file(&self, Parameters(File { path }): Parameters<File>) -> Result<String, String> {
        self.read(&path).map_err(|e| format!("{} cannot be read: {e}", path.display()))
    }

    #[tool(description = "Says the same again")]
    async fn echo(&self, Parameters(Text { text }): Parameters<Text>) -> String {
        text
    }
}

impl DemoServer {
    /// The policy refuses other paths before this runs. A server checks for itself all the same.
    fn read(&self, path: &std::path::Path) -> io::Result<String> {
        let path = path.canonicalize()?;
        if !path.starts_with(self.files.canonicalize()?) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not below the directory of files"));
        }
        fs::read_to_string(path)
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for DemoServer {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        info
    }
}

/// Serves until the process is ended.
async fn serve_http(server: impl ServerHandler + Clone, address: &str) -> Result<(), Box<dyn Error>> {
    let config = StreamableHttpServerConfig::default().with_json_response(true);
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}/mcp", listener.local_addr()?);
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
    let (mut http, mut files, mut policy) = (None, "files".to_owned(), "assay.mcp-policy.yaml".to_owned());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
        match &*arg {
            "--http" => http = Some(value),
            "--files" => files = value,
            "--policy" => policy = value,
            _ => return Err(format!("there is no option {arg}; there are --http, --files and --policy").into()),
        }
    }
    let recorder = Recorder::builder(concat!(env!("CARGO_PKG_NAME"), "@", env!("CARGO_PKG_VERSION")))
        .policy_file(policy)
        .cleartext("web_search", ["query"])
        .auto_pack(true)
        .open()?;
    let server = recorder.receipts().wrap(DemoServer::new(files.into()));
    match http {
        // SIGTERM and SIGINT end it; the recorder seals before that.
        Some(address) => serve_http(server, &address).await?,
        None => drop(server.serve(stdio()).await?.waiting().await?),
    }
    for sealed in recorder.close().packs {
        eprintln!("pack {}", sealed.pack.unwrap_or_default().display());
    }
    Ok(())
}
