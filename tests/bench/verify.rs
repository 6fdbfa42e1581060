//! Speed of the verifier.
//!
//! `cargo bench --bench verify` measures packs of 100 and 10 000 calls, and reading single lines. With
//! `-- --calls 1000000` it builds one pack of that many tool calls (in `ASSAY_BENCH_DIR`, else the system's temporary
//! directory; a million take 3.5 GB) and prints how long one verification takes and the peak memory of the process that
//! did nothing else.
#![allow(clippy::pedantic, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use assay::pack::verify::{VerifyOptions, VerifyReport, verify};
use assay_support::{
    alone::peak_kib,
    rig::bench_scratch,
    sessions::{self, Plan},
};
use criterion::{Criterion, Throughput};
use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Instant,
};

fn pack(root: &Path, calls: u64) -> PathBuf {
    let written = sessions::write(&Plan { calls, ..Plan::default() }, root.join("audit")).unwrap();
    let dir = written.pack();
    // The pack has its own copies.
    std::fs::remove_file(&written.paths.segment).unwrap();
    std::fs::remove_file(&written.paths.receipts).unwrap();
    dir
}

fn run(dir: &Path) -> VerifyReport {
    let report = verify(dir, &VerifyOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(report.authentic(), "{:#?}", report.errors);
    report
}

fn once(dir: &Path) {
    let started = Instant::now();
    let report = run(dir);
    let seconds = started.elapsed().as_secs_f64();
    let f = &report.facts;
    println!(
        "{} receipts, {} events, {:.2} GB: {seconds:.2} s, {:.0} MB/s, peak {} MiB",
        f.receipt_count,
        f.event_count,
        f.total_bytes as f64 / 1e9,
        f.total_bytes as f64 / 1e6 / seconds,
        peak_kib("self") / 1024
    );
}

fn big(calls: u64) {
    let tmp = bench_scratch();
    let started = Instant::now();
    let dir = pack(tmp.path(), calls);
    println!("built in {:.1} s", started.elapsed().as_secs_f64());
    let me = std::env::current_exe().unwrap();
    for _ in 0..3 {
        let status = std::process::Command::new(&me).arg("--verify").arg(&dir).status().unwrap();
        assert!(status.success());
    }
}

fn criterion() {
    let mut c = Criterion::default().configure_from_args();
    let tmp = tempfile::tempdir().unwrap();
    let mut group = c.benchmark_group("verify");
    for calls in [100, 10_000] {
        let dir = pack(&tmp.path().join(calls.to_string()), calls);
        group.throughput(Throughput::Elements(calls));
        group.bench_function(format!("{calls} calls"), |b| b.iter(|| run(&dir)));
    }
    group.finish();
    c.final_summary();
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
    match (value("--calls"), value("--verify")) {
        (Some(calls), _) => big(calls.parse().unwrap()),
        (None, Some(dir)) => once(Path::new(dir)),
        (None, None) => criterion(),
    }
}
