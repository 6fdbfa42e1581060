//! Synthetic sessions for tests and benchmarks: the files that a recorder leaves, without a recorder.
//!
//! Everything follows from [`Plan::seed`] and the other fields, so two runs write the same bytes. Streams: memory does not
//! grow with the number of calls.

use assay::{
    model::{
        AuditEvent, Direction, DurationMs, EventKind, GENESIS, InvocationId, LedgerKind, LedgerLine, Outcome, Phases,
        PolicyVerdict, Profile, RECORDER_VERSION, ReceiptId, RpcId, SessionDoc, SessionEnd, SessionId, SessionStart,
        ToolCall, Transport, WallTime,
        event::{HASH_MEMBER_LEN, detail, hash_member, hash_of_line, version_of},
        http::InExchange,
        receipt::{self, Counts, PeerInfo},
        said::Said,
        sha256_hex, to_line,
    },
    pack::{
        build::{Input, build},
        keys::{Signer, SignerId},
    },
    paths::{AuditDir, SessionPaths},
};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use std::{
    fs::{File, OpenOptions},
    io::{self, BufWriter, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// How the session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// `chain_end` and `mcp.session_end` say complete.
    Complete,
    /// They say incomplete.
    Incomplete,
    /// There are none: the recorder died.
    Unterminated,
}

/// What to write.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Everything random follows from it, the session id too.
    pub seed: u64,
    /// Tool calls.
    pub calls: u64,
    /// When the session began, milliseconds since 1970.
    pub started_ms: i64,
    /// The profile.
    pub profile: Profile,
    /// Tool names, taken in turn; must not be empty.
    pub tools: Vec<String>,
    /// Call 0 stores a result of so many bytes.
    pub big_result: Option<usize>,
    /// Every n-th call is an error; 0 for none.
    pub error_every: u64,
    /// Every n-th call gets no response; 0 for none. Errors go first.
    pub timeout_every: u64,
    /// How it ends. A timeout makes a complete session incomplete.
    pub ending: Ending,
    /// `sha256:` of a policy file, where there is one.
    pub policy_hash: Option<String>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 1,
            calls: 20,
            started_ms: 1_773_574_200_000,
            profile: Profile::Audit,
            tools: vec!["read_file".into(), "search".into(), "日本語の道具".into()],
            big_result: None,
            error_every: 0,
            timeout_every: 0,
            ending: Ending::Complete,
            policy_hash: None,
        }
    }
}

impl Plan {
    fn started(&self) -> WallTime {
        WallTime::from_millis(self.started_ms)
    }
}

/// What was written.
#[derive(Debug, Clone)]
pub struct Written {
    /// Where.
    pub paths: SessionPaths,
    /// The session's document, as a recorder would hand it to the builder.
    pub doc: SessionDoc,
}

impl Written {
    /// Makes a pack of it, a second after its end, without policies: the same bytes every time.
    pub fn pack(&self) -> PathBuf {
        self.pack_with(None)
    }

    /// The same, with the policies of a directory of snapshots.
    pub fn pack_with(&self, policies: Option<&Path>) -> PathBuf {
        let now = WallTime::from_millis(self.doc.ended_at.millis() + 1000);
        let (paths, session) = (&self.paths, &self.doc);
        let input = Input {
            paths,
            session,
            policies,
            surface: None,
            decisions: None,
            signer: &signer(),
            ci_binding: None,
            now,
        };
        build(&input).unwrap().dir
    }
}

/// The seed of a key that everybody has.
pub const SEED: [u8; 32] = [9; 32];

/// A signer with that key.
pub fn signer() -> Signer {
    Signer::from_seed(SignerId::parse("tester").unwrap(), &SEED)
}

/// The pack of a session that is [written](write()).
pub fn packed(plan: &Plan, dir: impl AsRef<Path>) -> PathBuf {
    write(plan, dir).unwrap().pack()
}

/// Writes a session into an audit directory, chained to what its ledger holds.
///
/// # Errors
/// What the system says; a session that is there already is not replaced.
pub fn write(plan: &Plan, dir: impl AsRef<Path>) -> io::Result<Written> {
    let dir = AuditDir::at(dir.as_ref());
    dir.create().map_err(io::Error::other)?;
    let id = SessionId::from_bits(mix(plan.seed));
    let paths = dir.session(plan.started(), id);
    let mut ledger = Ledger::open(&dir.ledger())?;
    let mut w = Writer {
        plan,
        id,
        events: Out::create(&paths.segment)?,
        receipts: Out::create(&paths.receipts)?,
        prev: ledger.prev.clone(),
        first: String::new(),
        event_seq: 0,
        receipt_seq: 0,
        offsets: [0, 0],
        counts: Counts::default(),
        now_us: 0,
    };
    w.start()?;
    let segment = format!("segment_{}.jsonl", paths.stem);
    let ledger_hash = ledger.prev.clone();
    ledger.add(plan, id, LedgerKind::SegmentStart, &segment, &w.first, 1, None)?;
    for n in 0..plan.calls {
        w.call(n)?;
    }
    let complete = plan.ending == Ending::Complete && w.counts.timeouts == 0;
    if plan.ending != Ending::Unterminated {
        w.end(complete)?;
        ledger.add(plan, id, LedgerKind::SegmentEnd, &segment, &w.prev, w.event_seq, Some(complete))?;
    }
    w.events.finish()?;
    w.receipts.finish()?;
    let doc = w.doc(complete, ledger_hash);
    Ok(Written { paths, doc })
}

/// SplitMix64.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

struct Out(BufWriter<File>);

impl Out {
    fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Self(BufWriter::with_capacity(1 << 18, file)))
    }

    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        self.0.write_all(line)?;
        self.0.write_all(b"\n")
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Puts the hash into a line that was written with [`GENESIS`] in its place, and gives it back.
fn seal(line: &mut [u8]) -> io::Result<String> {
    let hash = hash_of_line(line).zip(hash_member(line));
    let (hash, at) = hash.ok_or_else(|| io::Error::other("the line has no place for its hash"))?;
    line[at + 8..at + HASH_MEMBER_LEN - 2].copy_from_slice(hash.as_bytes());
    Ok(hash)
}

struct Ledger {
    file: File,
    prev: String,
    seq: u64,
}

impl Ledger {
    fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::options().read(true).append(true).create(true).mode(0o600).open(path)?;
        let mut text = String::new();
        io::Read::read_to_string(&mut file, &mut text)?;
        let last = text.lines().next_back().and_then(|l| hash_of_line(l.as_bytes()));
        Ok(Self { file, prev: last.unwrap_or_else(|| GENESIS.to_owned()), seq: text.lines().count() as u64 })
    }

    #[allow(clippy::too_many_arguments)]
    fn add(
        &mut self,
        plan: &Plan,
        session_id: SessionId,
        kind: LedgerKind,
        segment: &str,
        segment_hash: &str,
        event_count: u64,
        complete: Option<bool>,
    ) -> io::Result<String> {
        let mut line = LedgerLine {
            anchored: None,
            at: plan.started(),
            complete,
            event_count,
            hash: GENESIS.to_owned(),
            kind,
            ledger_seq: self.seq,
            note: None,
            pack_manifest_sha256: None,
            prev_hash: self.prev.clone(),
            pruned: None,
            renewed: None,
            segment: segment.to_owned(),
            segment_hash: segment_hash.to_owned(),
            session_id: Some(session_id),
            session_key: None,
            tree_root: None,
            v: 1,
        };
        line.v = line.version();
        let mut line = to_line(&line)?;
        self.prev = seal(&mut line)?;
        self.seq += 1;
        line.push(b'\n');
        self.file.write_all(&line)?;
        Ok(self.prev.clone())
    }
}

struct Writer<'a> {
    plan: &'a Plan,
    id: SessionId,
    events: Out,
    receipts: Out,
    prev: String,
    first: String,
    event_seq: u64,
    receipt_seq: u64,
    offsets: [u64; 2],
    counts: Counts,
    now_us: u64,
}

/// The message that an event is about.
#[derive(Clone)]
struct Message {
    direction: Direction,
    invocation: InvocationId,
    rpc_id: RpcId,
    bytes: u64,
    sha256: String,
}

const SERVER_ID: &str = "synthetic";
/// Why a call that gets no response gets none.
const NO_RESPONSE: &str = "server_exited";

impl Writer<'_> {
    fn wall(&self) -> WallTime {
        WallTime::from_millis(self.plan.started().millis() + (self.now_us / 1000) as i64)
    }

    fn event<T: Serialize>(&mut self, event: EventKind, message: Option<&Message>, detail: &T) -> io::Result<()> {
        self.event_of(event, message, message.map(|m| m.invocation), detail)
    }

    fn event_of<T: Serialize>(
        &mut self,
        event: EventKind,
        message: Option<&Message>,
        invocation: Option<InvocationId>,
        detail: &T,
    ) -> io::Result<()> {
        // A decision is about a message, and says nothing of its bytes.
        let wire = message.filter(|_| event != EventKind::PolicyDecision);
        let event = AuditEvent {
            at: self.wall(),
            detail: to_raw_value(detail)?,
            direction: message.map(|m| m.direction),
            event,
            event_seq: self.event_seq,
            hash: GENESIS.to_owned(),
            invocation_id: invocation,
            method: message.map(|_| "tools/call".to_owned()),
            mono_us: self.now_us,
            prev_hash: std::mem::take(&mut self.prev),
            rpc_id: message.map(|m| m.rpc_id.clone()),
            session_id: self.id,
            transport: "stdio".to_owned(),
            v: version_of(Transport::Stdio, false),
            wire_bytes: wire.map(|m| m.bytes),
            wire_sha256: wire.map(|m| m.sha256.clone()),
        };
        let mut line = to_line(&event)?;
        self.prev = seal(&mut line)?;
        self.event_seq += 1;
        self.events.line(&line)
    }

    /// Writes a receipt and gives back its hash.
    fn receipt<T: Serialize>(&mut self, receipt: &T) -> io::Result<String> {
        let line = to_line(receipt)?;
        self.receipt_seq += 1;
        self.receipts.line(&line)?;
        Ok(sha256_hex(&line))
    }

    fn start(&mut self) -> io::Result<()> {
        let start = detail::ChainStart {
            carried_in: Vec::new(),
            command: None,
            command_digest: command_digest(),
            continues: None,
            policy_hash: self.plan.policy_hash.clone(),
            profile: self.plan.profile,
            recorder_version: RECORDER_VERSION.to_owned(),
            server_id: SERVER_ID.to_owned(),
        };
        self.event(EventKind::ChainStart, None, &start)?;
        self.first = self.prev.clone();
        let receipt = SessionStart {
            chain_head: self.first.clone(),
            client_info: Some(client()),
            command_digest: command_digest(),
            continues: None,
            integration_source: receipt::INTEGRATION_SOURCE.to_owned(),
            policy_hash: self.plan.policy_hash.clone(),
            profile: self.plan.profile,
            protocol_version: Some("2025-11-25".to_owned()),
            proxy_version: RECORDER_VERSION.to_owned(),
            receipt_id: ReceiptId::of_session(self.id, "session_start", 0),
            schema_version: receipt::PLAIN_SCHEMA.to_owned(),
            seq: 0,
            server_id: SERVER_ID.to_owned(),
            server_info: Some(server()),
            server_transport: "stdio".to_owned(),
            session_id: self.id,
            started_at: self.plan.started(),
            timestamp: self.plan.started(),
            trace_id: self.id,
            r#type: receipt::SESSION_START.to_owned(),
        };
        self.receipt(&receipt).map(drop)
    }

    fn message(
        &mut self,
        n: u64,
        direction: Direction,
        invocation: Option<InvocationId>,
        bytes: u64,
    ) -> (Message, u64) {
        let offset = self.offsets[direction as usize];
        self.offsets[direction as usize] += bytes + 1;
        let message = Message {
            direction,
            invocation: invocation.unwrap_or_else(|| InvocationId::of_message(self.id, direction, offset, None)),
            rpc_id: if n.is_multiple_of(2) { RpcId::Int(n as i64) } else { RpcId::Text(format!("id-{n}")) },
            bytes,
            sha256: sha256_hex(&[self.plan.seed.to_be_bytes(), offset.to_be_bytes(), [direction as u8; 8]].concat()),
        };
        (message, offset)
    }

    fn call(&mut self, n: u64) -> io::Result<()> {
        let every = |k: u64| k != 0 && n % k == k - 1;
        let error = every(self.plan.error_every);
        let timeout = !error && every(self.plan.timeout_every);
        self.now_us += 1_000 + mix(self.plan.seed ^ n) % 1_000;
        let observed = self.wall();
        let (request, offset) = self.message(n, Direction::ClientToServer, None, 180 + n % 40);
        let tool = self.plan.tools[(n % self.plan.tools.len() as u64) as usize].clone();
        let arguments_hash = format!("sha256:{}", sha256_hex(&n.to_be_bytes()));
        let received = detail::RequestReceived {
            exchange: InExchange::Unsaid,
            anomalies: Vec::new(),
            arguments_hash: Some(arguments_hash.clone()),
            era: "legacy".to_owned(),
            meta: None,
            offset,
            parent_receipt_id: None,
            tool_name: Some(tool.clone()),
        };
        self.event(EventKind::RequestReceived, Some(&request), &received)?;
        let mut forwarded =
            detail::Forwarded { exchange: InExchange::Unsaid, offset, receipt_id: None, receipt_sha256: None };
        let decided_at = self.wall();
        if let Some(policy) = &self.plan.policy_hash {
            let decision = detail::PolicyDecision {
                exchange: InExchange::Unsaid,
                enforced: self.plan.profile == Profile::Guard,
                offset,
                policy_hash: Some(policy.clone()),
                reason: "default".into(),
                rule: Some("default".to_owned()),
                unseen: Vec::new(),
                verdict: PolicyVerdict::Allowed,
            };
            self.event(EventKind::PolicyDecision, Some(&request), &decision)?;
        }
        self.now_us += 12;
        self.event(EventKind::RequestForwarded, Some(&request), &forwarded)?;
        let took_us = 200 + mix(n ^ self.plan.seed.rotate_left(17)) % 5_000;
        self.now_us += took_us - 12;
        let content = (n == 0 && !error && !timeout).then_some(self.plan.big_result).flatten().map(big).transpose()?;
        let result_hash = match &content {
            Some(raw) => sha256_hex(raw.get().as_bytes()),
            None => sha256_hex(&(!n).to_be_bytes()),
        };
        let result_hash = (!timeout).then(|| format!("sha256:{result_hash}"));
        let id = ReceiptId::from_bits(request.invocation.bits());
        self.now_us += if timeout { 0 } else { 9 };
        let timestamp = self.wall();
        self.now_us -= if timeout { 0 } else { 9 };
        let outcome = match (error, timeout) {
            (true, _) => Outcome::Error,
            (_, true) => Outcome::Timeout,
            _ => Outcome::Forwarded,
        };
        let receipt = ToolCall {
            anomalies: Vec::new(),
            arguments_content: None,
            arguments_hash,
            arguments_redacted: Said::Unsaid,
            duration_ms: Some(DurationMs(took_us)),
            integration_source: receipt::INTEGRATION_SOURCE.to_owned(),
            invocation_id: request.invocation,
            mcp_request_id: request.rpc_id.clone(),
            meta: None,
            outcome,
            outcome_reason: timeout.then(|| NO_RESPONSE.into()),
            parent_receipt_id: None,
            phases_us: Phases {
                policy_decided: self.plan.policy_hash.as_ref().map(|_| 0),
                request_forwarded: Some(12),
                response_first_byte: (!timeout).then_some(took_us - 5),
                response_forwarded: (!timeout).then_some(took_us + 9),
                response_observed: (!timeout).then_some(took_us),
            },
            policy_decided_at: self.plan.policy_hash.as_ref().map(|_| decided_at),
            policy_hash: self.plan.policy_hash.clone(),
            policy_reason: self.plan.policy_hash.as_ref().map(|_| "default".into()),
            policy_ref: self.plan.policy_hash.as_ref().map(|_| "default".to_owned()),
            policy_verdict: match self.plan.policy_hash {
                Some(_) => PolicyVerdict::Allowed,
                None => PolicyVerdict::NoPolicy,
            },
            proxy_version: RECORDER_VERSION.to_owned(),
            receipt_id: id,
            request_observed_at: observed,
            response_observed_at: (!timeout).then(|| self.wall()),
            result_content: content,
            result_hash: result_hash.clone(),
            result_is_error: (!timeout).then_some(error),
            result_type: (!timeout && !error).then(|| "complete".to_owned()),
            schema_version: receipt::PLAIN_SCHEMA.to_owned(),
            seq: self.receipt_seq,
            server_id: SERVER_ID.to_owned(),
            server_transport: "stdio".to_owned(),
            session_id: self.id,
            surface_age_ms: Said::Unsaid,
            surface_approval_id: Said::Unsaid,
            surface_item_hash: Said::Unsaid,
            surface_root: Said::Unsaid,
            surface_state: Said::Unsaid,
            timestamp,
            tool_name: tool,
            trace_id: self.id,
            r#type: receipt::TOOL_CALL.to_owned(),
        };
        let receipt_sha256 = Some(self.receipt(&receipt)?);
        self.counts.calls += 1;
        self.counts.requests += 1;
        self.counts.errors += u64::from(error);
        self.counts.timeouts += u64::from(timeout);
        if timeout {
            let anomaly = detail::Anomaly {
                exchange: InExchange::Unsaid,
                kind: "no_response".into(),
                note: Some(NO_RESPONSE.to_owned()),
                offset: None,
                receipt_id: Some(id),
                receipt_sha256,
            };
            return self.event_of(EventKind::Anomaly, None, Some(request.invocation), &anomaly);
        }
        let (response, offset) =
            self.message(n, Direction::ServerToClient, Some(request.invocation), 300 + mix(n) % 200);
        let received = detail::ResponseReceived {
            exchange: InExchange::Unsaid,
            anomalies: Vec::new(),
            error_code: error.then_some(-32_603),
            first_byte_us: self.now_us - 5,
            is_error: Some(error),
            offset,
            result_hash,
            result_type: (!error).then(|| "complete".to_owned()),
        };
        self.event(EventKind::ResponseReceived, Some(&response), &received)?;
        self.now_us += 9;
        forwarded = detail::Forwarded { exchange: InExchange::Unsaid, offset, receipt_id: Some(id), receipt_sha256 };
        self.event(EventKind::ResponseSent, Some(&response), &forwarded)
    }

    fn end_reason(&self) -> &'static str {
        match self.plan.ending {
            Ending::Complete if self.counts.timeouts == 0 => "client_closed",
            Ending::Unterminated => "crashed",
            _ => "server_failed",
        }
    }

    fn end(&mut self, complete: bool) -> io::Result<()> {
        self.now_us += 1_000;
        let end = detail::ChainEnd {
            carried_out: Vec::new(),
            complete,
            counts: self.counts,
            events: self.event_seq + 1,
            reason: self.end_reason().into(),
            receipts: self.receipt_seq,
        };
        self.event(EventKind::ChainEnd, None, &end)?;
        let receipt = SessionEnd {
            chain_hash: self.prev.clone(),
            counts: self.counts,
            end_reason: self.end_reason().into(),
            integration_source: receipt::INTEGRATION_SOURCE.to_owned(),
            proxy_version: RECORDER_VERSION.to_owned(),
            receipt_id: ReceiptId::of_session(self.id, "session_end", self.receipt_seq),
            schema_version: receipt::PLAIN_SCHEMA.to_owned(),
            seq: self.receipt_seq,
            session_complete: complete,
            session_id: self.id,
            timestamp: self.wall(),
            trace_id: self.id,
            r#type: receipt::SESSION_END.to_owned(),
        };
        self.receipt(&receipt).map(drop)
    }

    fn doc(&self, complete: bool, ledger_hash: String) -> SessionDoc {
        SessionDoc {
            chain_first: self.first.clone(),
            chain_last: self.prev.clone(),
            client_info: Some(client()),
            clock_steps: Vec::new(),
            command: None,
            command_digest: command_digest(),
            continues: None,
            counts: self.counts,
            coverage: None,
            recorder: None,
            end_reason: self.end_reason().into(),
            ended_at: self.wall(),
            ended_mono_us: self.now_us,
            event_count: self.event_seq,
            exit_code: match self.end_reason() {
                "crashed" => None,
                "server_failed" => Some(1),
                _ => Some(0),
            },
            http: None,
            ledger_hash,
            live_events_missed: 0,
            policy_hash: self.plan.policy_hash.clone(),
            profile: self.plan.profile,
            protocol_version: Some("2025-11-25".to_owned()),
            receipt_count: self.receipt_seq,
            recorder_version: RECORDER_VERSION.to_owned(),
            recovery_notes: Vec::new(),
            server_id: SERVER_ID.to_owned(),
            server_info: Some(server()),
            session_complete: complete,
            session_id: self.id,
            started_at: self.plan.started(),
            stderr_bytes: 0,
            surface_hash: None,
            teardown: Some("exited".into()),
            transport: "stdio".to_owned(),
            v: 1,
        }
    }
}

fn client() -> PeerInfo {
    PeerInfo { name: "synthetic-client".to_owned(), version: Some("1.0".to_owned()) }
}

fn server() -> PeerInfo {
    PeerInfo { name: "synthetic-server".to_owned(), version: None }
}

fn command_digest() -> String {
    sha256_hex(br#"["synthetic-server"]"#)
}

/// A tool result of `bytes` bytes in canonical form.
fn big(bytes: usize) -> io::Result<Box<RawValue>> {
    const FRAME: (&str, &str) = (r#"{"content":[{"text":""#, r#"","type":"text"}],"isError":false}"#);
    let text = "x".repeat(bytes.saturating_sub(FRAME.0.len() + FRAME.1.len()));
    Ok(RawValue::from_string(format!("{}{text}{}", FRAME.0, FRAME.1))?)
}
