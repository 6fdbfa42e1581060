//! Speed of the policy engine.
//!
//! `cargo bench --bench policy` measures decisions, loading, and arguments of 10 MiB. With `-- --calls 1000000` it makes one
//! journal of that many tool calls (in `ASSAY_BENCH_DIR`, else the system's temporary directory), once without arguments and
//! once with 200 bytes of them stored, and prints how long one dry run over each takes.
#![allow(clippy::pedantic, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use assay::policy::{Arguments, Call, Dns, Evaluator, Policy, Surroundings, Verdict, dry_run};
use assay_support::{
    rig::bench_scratch,
    sessions::{self, Plan},
};
use criterion::{Criterion, Throughput};
use std::{
    fmt::Write as _,
    fs::File,
    hint::black_box,
    io::{BufRead as _, BufReader, BufWriter, Write as _},
    ops::ControlFlow,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// A policy of `rules` rules: 70 % exact names, 20 % globs, 10 % constraints.
fn policy(rules: usize) -> String {
    let mut text =
        "version: \"1\"\ndefault: deny\nallowlist: [fetch, read_file, query, schema, plain]\ndenylist:\n".to_owned();
    for n in 0..rules * 7 / 20 {
        let _ = writeln!(text, "  - danger_{n}");
    }
    for n in 0..rules / 10 {
        let _ = writeln!(text, "  - \"ns{n}.*_delete\"");
    }
    text.push_str("constraints:\n  fetch: {deny_private_hosts: true}\n  read_file: {allowed_paths: [\"/workspace/**\", \"!**/.env\"]}\n");
    text.push_str(
        "  query: {deny_patterns: ['(?i)drop\\s+table', 'AKIA[0-9A-Z]{16}', '-----BEGIN [A-Z ]+PRIVATE KEY']}\n",
    );
    text.push_str("  schema: {arguments: {type: object, properties: {text: {type: string, maxLength: 100000000}}}}\n");
    for n in 0..rules / 10 {
        let _ = writeln!(text, "  tool_{n}: {{deny_patterns: ['secret{n}', '(?i)tok[e3]n_{n}'], max_calls: 1000000}}");
    }
    let mut allow = String::new();
    for n in 0..rules * 7 / 20 {
        let _ = write!(allow, "tool_{n}, ");
    }
    for n in 0..rules / 10 {
        let _ = write!(allow, "\"ns{n}.get_*\", ");
    }
    text.replace("allowlist: [", &format!("allowlist: [{allow}"))
}

fn evaluator(text: &str) -> Evaluator {
    let policy = Policy::parse(text.as_bytes(), "bench.yaml").unwrap_or_else(|e| panic!("{e}"));
    Evaluator::new(Arc::new(policy), around())
}

fn around() -> Arc<Surroundings> {
    Arc::new(Surroundings { cwd: "/workspace".into(), home: Some("/home/me".into()), dns: Dns::Off })
}

fn decide(e: &mut Evaluator, tool: &str, json: &[u8]) -> Verdict {
    e.decide(&Call { tool, arguments: Arguments::Raw(json) }, Duration::ZERO).verdict
}

fn criterion() {
    let mut c = Criterion::default().configure_from_args();
    let words =
        "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et ";
    let small = |key: &str, value: &str| {
        format!("{{\"{key}\":\"{value}\",\"text\":\"{words}\",\"limit\":10,\"deep\":[true,{{}}]}}")
    };
    let calls = [
        ("exact name", "plain", small("a", "b"), Verdict::Allowed),
        ("glob", "ns3.get_all", small("a", "b"), Verdict::Allowed),
        ("denied", "danger_30", small("a", "b"), Verdict::Denied),
        ("unknown tool", "nobody", small("a", "b"), Verdict::Denied),
        ("patterns", "query", small("sql", "SELECT 1"), Verdict::Allowed),
        ("schema", "schema", small("a", "b"), Verdict::Allowed),
        ("hosts, no DNS", "fetch", small("url", "https://93.184.216.34/index.html"), Verdict::Allowed),
        ("paths, with lstat", "read_file", small("path", "/workspace/src/main.rs"), Verdict::Allowed),
    ];
    let text = policy(100);
    let mut group = c.benchmark_group("200-byte call, 100 rules");
    for (name, tool, json, verdict) in &calls {
        let mut e = evaluator(&text);
        assert_eq!(decide(&mut e, tool, json.as_bytes()), *verdict, "{name}");
        group.bench_function(*name, |b| b.iter(|| decide(&mut e, black_box(tool), black_box(json.as_bytes()))));
    }
    group.finish();

    let mut group = c.benchmark_group("load");
    for rules in [100, 10_000] {
        let text = policy(rules);
        group.sample_size(20);
        group.bench_function(format!("{rules} rules"), |b| b.iter(|| Policy::parse(text.as_bytes(), "p").unwrap()));
    }
    let text = policy(10_000);
    let loaded = Arc::new(Policy::parse(text.as_bytes(), "p").unwrap());
    group.bench_function("10000 rules, first call of a session", |b| {
        b.iter(|| decide(&mut Evaluator::new(Arc::clone(&loaded), around()), "ns3.get_all", b"{}"));
    });
    group.finish();

    let big = format!("{{\"text\":\"{}\"}}", words.repeat((10 << 20) / words.len()));
    let mut group = c.benchmark_group("10 MiB argument");
    group.sample_size(10);
    group.throughput(Throughput::Bytes(big.len() as u64));
    let texts = format!("{{\"text\":[{}\"\"]}}", "\"text: x\",".repeat((10 << 20) / 10));
    for (what, json) in [("one text", big), ("a million texts", texts)] {
        for tool in ["plain", "query", "schema", "fetch", "read_file"] {
            let mut e = evaluator(
                &policy(100).replace("properties: {text: {type: string, maxLength: 100000000}}", "minProperties: 1"),
            );
            assert_eq!(decide(&mut e, tool, json.as_bytes()), Verdict::Allowed, "{what} {tool}");
            group.bench_function(format!("{what}, {tool}"), |b| b.iter(|| decide(&mut e, tool, json.as_bytes())));
        }
    }
    group.finish();
    c.final_summary();
}

/// The same receipts with 200 bytes of arguments in each.
fn stored(receipts: &Path) {
    let new = receipts.with_extension("new");
    let mut out = BufWriter::new(File::create(&new).unwrap());
    for (n, line) in BufReader::new(File::open(receipts).unwrap()).lines().enumerate() {
        let content =
            format!("{{\"path\":\"/workspace/{n}\",\"q\":\"{}\",\"url\":\"https://8.8.8.8/\"}}", "x".repeat(130));
        let line = line.unwrap().replace("\"arguments_content\":null", &format!("\"arguments_content\":{content}"));
        writeln!(out, "{line}").unwrap();
    }
    out.into_inner().unwrap().sync_all().unwrap();
    std::fs::rename(new, receipts).unwrap();
}

fn big(calls: u64) {
    let tmp = bench_scratch();
    let started = Instant::now();
    let written = sessions::write(&Plan { calls, ..Plan::default() }, tmp.path()).unwrap();
    std::fs::remove_file(&written.paths.segment).unwrap();
    println!("made in {:.1} s", started.elapsed().as_secs_f64());
    let rules = policy(100)
        .replace("read_file: {", "read_file: {deny_private_hosts: true, ")
        .replace("query, schema, plain]", "query, schema, plain, search, \"*\"]\n")
        + "  search: {deny_patterns: ['(?i)drop\\s+table', 'AKIA[0-9A-Z]{16}']}\n";
    let policy = Arc::new(Policy::parse(rules.as_bytes(), "p").unwrap_or_else(|e| panic!("{e}")));
    for what in ["not stored", "stored"] {
        if what == "stored" {
            stored(&written.paths.receipts);
        }
        let sources = dry_run::sources(tmp.path()).unwrap();
        for _ in 0..3 {
            let started = Instant::now();
            let report =
                dry_run::run(Arc::clone(&policy), around(), &sources, &mut |_, _| ControlFlow::Continue(())).unwrap();
            let seconds = started.elapsed().as_secs_f64();
            let t = report.total;
            println!(
                "arguments {what}: {} calls, {} allowed, {} denied, {} unknown: {seconds:.2} s",
                t.calls, t.allowed, t.denied, t.unknown
            );
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.iter().position(|a| a == "--calls").and_then(|i| args.get(i + 1)) {
        Some(calls) => big(calls.parse().unwrap()),
        None => criterion(),
    }
}
