//! What a receipt costs: a call of a server on the SDK with and without a recorder, through a pipe in memory; and the recorder's
//! part alone, on one thread and on eight.
//!
//! Evidence is written below `$ASSAY_BENCH_DIR`, else where temporary files are.

use assay::receipts::{Builder, Outcome, Receipts, Recorder, Request};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt, model::*, service::RequestContext};
use std::{
    env, fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

/// Rounds in which the variants take turns, and calls of each in a round.
const ROUNDS: usize = 5;
const CALLS: usize = 4000;
const THREADS: usize = 8;
const ARGUMENTS: &str =
    r#"{"text":"a call of two hundred bytes, which is what most calls of tools are like, or nearly, as it crosses"}"#;
const RESULT: &[u8] = br#"{"content":[{"type":"text","text":"done"}],"isError":false}"#;

/// Does nothing.
#[derive(Clone)]
struct Bare;

impl ServerHandler for Bare {
    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(CallToolResult::success(vec![ContentBlock::text("done")]).into())
    }
}

fn call(id: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{ARGUMENTS}}}}}{}"#,
        "\n"
    )
}

/// Times of calls through a pipe in memory, one after the other.
async fn through_a_pipe(server: impl ServerHandler) -> Vec<Duration> {
    let (near, far) = tokio::io::duplex(1 << 16);
    let serving = tokio::spawn(async move {
        let running = server.serve(far).await.expect("a session");
        running.waiting().await.expect("its end");
    });
    let (answers, mut requests) = tokio::io::split(near);
    let mut answers = BufReader::new(answers).lines();
    let hello = concat!(
        r#"{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"#,
        r#""clientInfo":{"name":"bench","version":"1"}}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        "\n"
    );
    requests.write_all(hello.as_bytes()).await.expect("a pipe");
    answers.next_line().await.expect("a pipe");
    let mut took = Vec::with_capacity(CALLS);
    for id in 0..CALLS {
        let line = call(id);
        let began = Instant::now();
        requests.write_all(line.as_bytes()).await.expect("a pipe");
        answers.next_line().await.expect("a pipe");
        took.push(began.elapsed());
    }
    requests.shutdown().await.expect("a pipe");
    drop((requests, answers));
    serving.await.expect("the server");
    took
}

/// Times of the recorder's part of calls.
fn alone(receipts: &Receipts) -> Vec<Duration> {
    let one = |_| {
        let began = Instant::now();
        let request =
            Request { tool: "echo", arguments: Some(ARGUMENTS.as_bytes()), id: Some(b"7"), ..Request::default() };
        let mut running = receipts.request(&request).judge().expect("the policy allows it");
        running.start();
        running.finish(Outcome::Result(RESULT));
        began.elapsed()
    };
    (0..CALLS).map(one).collect()
}

/// Calls per second of threads that all record.
fn at_once(receipts: &Receipts) -> f64 {
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| alone(receipts));
        }
    });
    (THREADS * CALLS) as f64 / began.elapsed().as_secs_f64()
}

fn row(what: &str, mut took: Vec<Duration>) {
    took.sort();
    let at = |quantile: f64| took[((took.len() as f64 * quantile) as usize).min(took.len() - 1)].as_secs_f64() * 1e6;
    println!("| {what} | {:.1} µs | {:.1} µs |", at(0.5), at(0.99));
}

fn recorder(dir: &Path, with: impl FnOnce(Builder) -> Builder) -> Recorder {
    with(Recorder::builder("bench@1").audit_dir(dir)).open().expect("a recorder")
}

fn measure(dir: &Path) {
    let rules: String =
        (0..100).map(|n| format!("  tool_{n}: {{ deny_patterns: ['x{n}y'], max_calls: 9 }}\n")).collect();
    let policy = dir.join("policy.yaml");
    fs::write(&policy, format!("version: \"1\"\ndefault: allow\nconstraints:\n{rules}")).expect("a file");
    let plain = recorder(&dir.join("plain"), |b| b);
    let judged = recorder(&dir.join("judged"), |b| b.policy_file(&policy));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (mut bare, mut wrapped, mut ruled) = (Vec::new(), Vec::new(), Vec::new());
    let (mut core, mut many) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.extend(runtime.block_on(through_a_pipe(Bare)));
        wrapped.extend(runtime.block_on(through_a_pipe(plain.receipts().wrap(Bare))));
        ruled.extend(runtime.block_on(through_a_pipe(judged.receipts().wrap(Bare))));
        core.extend(alone(&plain.receipts()));
        many.push(at_once(&plain.receipts()));
    }
    println!("a call of {} bytes, {} of each kind\n\n| | p50 | p99 |\n|---|---|---|", call(0).len(), ROUNDS * CALLS);
    row("bare handler", bare);
    row("recorded", wrapped);
    row("recorded, a policy of 100 rules", ruled);
    row("the recorder's part alone", core);
    many.sort_by(f64::total_cmp);
    println!("\n{THREADS} threads at once: {:.0} calls/s (median of {ROUNDS})", many[ROUNDS / 2]);
    let health = plain.health();
    assert!(health.lost == 0 && health.open == 0, "{health:?}");
}

fn main() {
    if let Some(dir) = env::var_os("RECEIPTS_BENCH") {
        return measure(Path::new(&dir));
    }
    // What a recorder remembers of the user goes there, too.
    let root = env::var_os("ASSAY_BENCH_DIR").map_or_else(env::temp_dir, Into::into);
    let dir = tempfile::tempdir_in(root).expect("a directory");
    let mut again = Command::new(env::current_exe().expect("this program"));
    again.env("RECEIPTS_BENCH", dir.path()).env("ASSAY_HOME", dir.path().join("home"));
    assert!(again.status().expect("it starts").success());
}
