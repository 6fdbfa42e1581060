//! The canonicalizer beside a tree of values and serde_jcs, and beside memory and SHA-256.
#![allow(clippy::pedantic)]
#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;

use assay::canon::{canonicalize, digest, is_canonical, scan, sha256};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};

const CALL: &[u8] = br#"{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"/workspace/src/main.rs","head":40},"_meta":{"progressToken":42}}}"#;

/// What the crate would do without `canon`.
fn by_tree(bytes: &[u8]) -> Vec<u8> {
    serde_jcs::to_vec(&serde_json::from_slice::<Value>(bytes).unwrap()).unwrap()
}

/// 10 MB of text with line ends and quotes, as a file read by a tool.
fn text_result() -> Vec<u8> {
    let line = "    let total = rows.iter().map(|row| row.\"price\" * 1.19).sum::<f64>();\n";
    let text = line.repeat(10_000_000 / line.len());
    let result = json!({"jsonrpc": "2.0", "id": 7, "result": {"content": [{"type": "text", "text": text}]}});
    serde_json::to_vec(&result).unwrap()
}

/// 10 MB of rows, as a database query.
fn rows_result() -> Vec<u8> {
    let row = |nth: u32| {
        format!(
            r#"{{"id":{nth},"name":"customer {nth}","price":{}.25,"tags":["a","b"],"active":true,"note":null}}"#,
            nth % 1000
        )
    };
    let rows: Vec<String> = (0..110_000).map(row).collect();
    format!(
        r#"{{"jsonrpc":"2.0","id":7,"result":{{"structuredContent":{{"rows":[{}]}},"isError":false}}}}"#,
        rows.join(",")
    )
    .into_bytes()
}

/// A receipt line of about 1.5 kB.
fn receipt() -> Vec<u8> {
    let hash = |nth: u8| format!("sha256:{}", hex::encode(sha256(&[nth])));
    let receipt = json!({
        "receipt_id": "mtc_0123456789abcdef", "type": "mcp_tool_call", "schema_version": "3.0",
        "timestamp": "2026-11-27T22:43:38.123456Z", "seq": 12345, "trace_id": "mcp_0123456789abcdef",
        "invocation_id": "inv_0123456789abcdef", "parent_receipt_id": null, "tool_name": "read_text_file",
        "server_id": "filesystem", "server_transport": "stdio", "mcp_request_id": "42", "arguments_hash": hash(1),
        "result_hash": hash(2), "result_is_error": false, "arguments_content": null, "result_content": null,
        "request_observed_at": "2026-11-27T22:43:38.123456Z", "response_observed_at": "2026-11-27T22:43:38.136123Z",
        "duration_ms": 12.667, "policy_verdict": "allowed", "policy_reason": "allowlist", "policy_hash": hash(3),
        "outcome": "forwarded", "outcome_reason": null, "anomalies": [], "result_type": "complete",
        "meta": {"progressToken": 42, "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
        "phases_us": {"policy_decided": 31, "request_forwarded": 45, "response_first_byte": 12412,
            "response_observed": 12640, "response_forwarded": 12661},
        "proof_tier": "signed-pack", "canonicalization": "RFC 8785", "wire_sha256": hash(4), "wire_bytes": 163,
        "session": {"client": "example-client 1.2.3", "server": "secure-filesystem-server 0.2.0", "note": "n\u{e9}e"},
    });
    serde_jcs::to_vec(&receipt).unwrap()
}

fn canonical_form(c: &mut Criterion) {
    let documents = [("call_200b", CALL.to_vec()), ("text_10mb", text_result()), ("rows_10mb", rows_result())];
    for (name, bytes) in &documents {
        assert_eq!(canonicalize(bytes).unwrap(), by_tree(bytes));
        let mut group = c.benchmark_group(format!("canonicalize/{name}"));
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.sample_size(if bytes.len() > 1000 { 10 } else { 60 });
        group.bench_function("canon", |b| b.iter(|| canonicalize(black_box(bytes)).unwrap()));
        group.bench_function("value_and_serde_jcs", |b| b.iter(|| by_tree(black_box(bytes))));
        group.bench_function("scan_only", |b| b.iter(|| scan(black_box(bytes)).unwrap()));
        group.finish();
    }
}

fn lines(c: &mut Criterion) {
    let line = receipt();
    let mut group = c.benchmark_group("receipt_line");
    group.throughput(Throughput::Bytes(line.len() as u64));
    group.bench_function("is_canonical", |b| b.iter(|| assert!(is_canonical(black_box(&line)))));
    group.bench_function("canonicalize", |b| b.iter(|| canonicalize(black_box(&line)).unwrap()));
    group.bench_function("value_and_serde_jcs", |b| b.iter(|| by_tree(black_box(&line))));
    group.bench_function("sha256", |b| b.iter(|| sha256(black_box(&line))));
    group.finish();
}

fn digests(c: &mut Criterion) {
    let size = 64 << 20;
    let ascii = format!(r#"{{"text":"{}"}}"#, "x".repeat(size)).into_bytes();
    let wide = format!(r#"{{"text":"{}"}}"#, "日本語のテキスト ".repeat(size / 25)).into_bytes();
    let lines = format!(
        r#"{{"text":"{}"}}"#,
        r"a line of sixty-four bytes, give or take a few of them, ok \n".repeat(size / 62)
    );
    let mut group = c.benchmark_group("digest_64mib_string");
    group.sample_size(10);
    for (name, bytes) in [("ascii", &ascii), ("wide", &wide), ("lines", &lines.into_bytes())] {
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(name, |b| b.iter(|| digest(black_box(bytes), None).unwrap()));
    }
    group.bench_function("sha256_alone", |b| b.iter(|| sha256(black_box(&ascii))));
    group.finish();
    let rows = rows_result();
    let mut group = c.benchmark_group("digest_10mb_rows");
    group.sample_size(10);
    group.throughput(Throughput::Bytes(rows.len() as u64));
    group.bench_function("digest", |b| b.iter(|| digest(black_box(&rows), None).unwrap()));
    group.finish();
}

criterion_group!(benches, canonical_form, lines, digests);
criterion_main!(benches);
