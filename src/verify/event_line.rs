//! Why a line is not that of an audit event.

use super::unread::{Unread, foremost, not_canonical, plain};
use crate::{canon, model::AuditEvent};
use serde_json::value::RawValue;

/// Why a line is refused where the canonical line of an event must be.
#[must_use]
pub fn explain(line: &[u8]) -> Unread {
    if let Some(reason) = foremost::<AuditEvent>(line) {
        return reason;
    }
    match serde_json::from_slice::<AuditEvent<&RawValue>>(line) {
        Err(e) => Unread::schema(format!("not an audit event: {}", plain(&e))),
        Ok(_) if !canon::is_canonical(line) => not_canonical(),
        Ok(e) => Unread::schema(format!("this {} event does not have the members of its kind", e.event.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{
            Direction, EventKind, InvocationId, ReceiptId, RpcId, SessionId, WallTime,
            event::{DetailView, EventView, HTTP_EVENTS, JUNK_EVENTS, SERVER_EVENTS, detail as d},
            http::{HeaderValues, HttpExchange, HttpRequest, HttpResponse, HttpTarget, InExchange},
            receipt::Counts,
            to_line,
        },
        oracle::event_line as oracle,
    };
    use proptest::prelude::*;
    use serde_json::value::to_raw_value;

    fn details(text: &str, n: u64) -> Vec<(EventKind, Box<RawValue>)> {
        let hash = Some(format!("sha256:{}", "ab".repeat(32)));
        let sha = Some("cd".repeat(32));
        let exchange = in_exchange(n);
        let id = (n % 2 == 0).then(|| ReceiptId::from_bits(n));
        let raw = |v: &dyn Fn() -> Result<Box<RawValue>, serde_json::Error>| v().unwrap();
        let mut all = vec![
            (
                EventKind::ChainStart,
                raw(&|| {
                    to_raw_value(&d::ChainStart {
                        carried_in: vec![InvocationId::from_bits(n)],
                        command: Some(vec![text.into()]),
                        command_digest: text.into(),
                        continues: None,
                        policy_hash: (n % 2 == 0).then(|| text.into()),
                        profile: crate::model::Profile::Audit,
                        recorder_version: text.into(),
                        server_id: text.into(),
                    })
                }),
            ),
            (
                EventKind::RequestReceived,
                raw(&|| {
                    to_raw_value(&d::RequestReceived { exchange,
                        anomalies: vec![text.into(), "b".into()],
                        arguments_hash: hash.clone(),
                        era: text.into(),
                        meta: Some(
                            RawValue::from_string(
                                serde_jcs::to_string(&serde_json::json!({"k": [text, n, 1.5], "m": {"direction": text, "event": "anomaly"}})).unwrap(),
                            )
                            .unwrap(),
                        ),
                        offset: n,
                        parent_receipt_id: id,
                        tool_name: Some(text.into()),
                    })
                }),
            ),
            (
                EventKind::ResponseSent,
                raw(&|| {
                    to_raw_value(&d::Forwarded { exchange, offset: n, receipt_id: id, receipt_sha256: sha.clone() })
                }),
            ),
            (
                EventKind::ResponseReceived,
                raw(&|| {
                    to_raw_value(&d::ResponseReceived {
                        exchange,
                        anomalies: vec![],
                        error_code: Some(-(n as i64)),
                        first_byte_us: n,
                        is_error: Some(n % 3 == 0),
                        offset: n,
                        result_hash: hash.clone(),
                        result_type: Some(text.into()),
                    })
                }),
            ),
            (
                EventKind::Notification,
                raw(&|| to_raw_value(&d::Seen { exchange, offset: n, reason: Some(text.into()) })),
            ),
            (
                EventKind::Anomaly,
                raw(&|| {
                    to_raw_value(&d::Anomaly {
                        exchange,
                        kind: text.into(),
                        note: None,
                        offset: Some(n),
                        receipt_id: id,
                        receipt_sha256: sha.clone(),
                    })
                }),
            ),
            (
                EventKind::RecorderGap,
                raw(&|| {
                    to_raw_value(&d::Gap {
                        bytes: n,
                        messages: 1,
                        reason: text.into(),
                        receipt_id: id,
                        receipt_sha256: sha.clone(),
                    })
                }),
            ),
            (
                EventKind::ChainEnd,
                raw(&|| {
                    to_raw_value(&d::ChainEnd {
                        carried_out: vec![],
                        complete: true,
                        counts: Counts::default(),
                        events: n,
                        reason: text.into(),
                        receipts: 2,
                    })
                }),
            ),
            (
                EventKind::PolicyDecision,
                raw(&|| {
                    to_raw_value(&d::PolicyDecision {
                        exchange,
                        enforced: n % 2 == 0,
                        offset: n,
                        policy_hash: Some(text.into()),
                        reason: text.into(),
                        rule: (n % 3 == 0).then(|| text.into()),
                        unseen: vec![text.into()],
                        verdict: crate::model::PolicyVerdict::Denied,
                    })
                }),
            ),
            (
                EventKind::RequestBlocked,
                raw(&|| {
                    to_raw_value(&d::Blocked {
                        exchange,
                        offset: n,
                        reason: text.into(),
                        receipt_id: id,
                        receipt_sha256: sha.clone(),
                    })
                }),
            ),
            (
                EventKind::PolicyReloaded,
                raw(&|| {
                    to_raw_value(&d::PolicyReload {
                        error: (n % 2 == 0).then(|| text.into()),
                        policy_hash: text.into(),
                        previous: text.into(),
                    })
                }),
            ),
        ];
        if !exchange.is_unsaid() {
            let http = HttpExchange {
                answered_by: Some(text.into()),
                carries: vec![RpcId::Int(n as i64), RpcId::Text(text.into())],
                ended: (n % 2 == 0).then(|| text.into()),
                method: text.into(),
                notes: vec![text.into()],
                request: HttpRequest {
                    bytes: Some(n),
                    headers: vec![text.into()],
                    sha256: sha,
                    values: HeaderValues::of([("accept".into(), text.into()), ("b".into(), String::new())]),
                    ..HttpRequest::default()
                },
                response: (n % 4 == 0).then(HttpResponse::default),
                target: HttpTarget { path: text.into(), query: vec![text.into()] },
                ..HttpExchange::new(n)
            };
            all.push((EventKind::HttpExchange, to_raw_value(&http).unwrap()));
        }
        all
    }

    /// One of the three forms, by a number.
    fn in_exchange(n: u64) -> InExchange {
        [InExchange::Unsaid, InExchange::Said(None), InExchange::Said(Some(n))][(n % 3) as usize]
    }

    fn event(kind: EventKind, detail: Box<RawValue>, text: &str, n: u64) -> AuditEvent<Box<RawValue>> {
        let mut e = AuditEvent {
            at: WallTime::from_millis(n as i64),
            detail,
            direction: (n % 2 == 0).then_some(Direction::ServerToClient),
            event: kind,
            event_seq: n,
            hash: String::new(),
            invocation_id: (n % 3 == 0).then(|| InvocationId::from_bits(n)),
            method: (n % 5 != 0).then(|| text.to_owned()),
            mono_us: n,
            prev_hash: crate::model::GENESIS.into(),
            rpc_id: Some(if n % 2 == 0 { RpcId::Int(n as i64) } else { RpcId::Text(text.into()) }),
            session_id: SessionId::from_bits(n),
            transport: "stdio".into(),
            v: if in_exchange(n).is_unsaid() { 1 } else { HTTP_EVENTS },
            wire_bytes: Some(n),
            wire_sha256: None,
        };
        e.seal().unwrap();
        e
    }

    /// What both readers say of a line, in the same words.
    fn said(line: &[u8]) -> Option<String> {
        let e = EventView::of_line(line)?;
        let binding = e.detail.binding();
        let hash = e.hash_of(line);
        let detail = match &e.detail {
            DetailView::RequestReceived(d) => {
                format!(
                    "{:?} {:?} {:?} {:?} {:?}",
                    d.anomalies, d.arguments_hash, d.meta, d.parent_receipt_id, d.tool_name
                )
            }
            DetailView::ResponseReceived(d) => format!(
                "{:?} {:?} {:?} {:?} {:?} {}",
                d.anomalies,
                d.first_byte_us,
                d.is_error,
                d.result_hash,
                d.result_type,
                d.error_code.is_some()
            ),
            DetailView::Anomaly(d) => format!("{:?} {:?}", d.kind.known, d.note),
            DetailView::RecorderGap(d) => format!("{} {} {:?}", d.bytes, d.messages, d.reason.text),
            DetailView::Malformed(d) | DetailView::Notification(d) => format!("{:?}", d.reason),
            DetailView::MalformedLines(d) => format!("{} {} {:?}", d.first_us, d.lines, d.reason),
            DetailView::RequestBlocked(d) => format!("{:?}", d.reason),
            DetailView::PolicyDecision(d) => format!("{} {:?}", d.enforced, d.verdict),
            DetailView::ChainStart(d) => format!("{d:?}"),
            DetailView::ChainEnd(d) => format!("{d:?}"),
            DetailView::PolicyReloaded(d) => format!("{d:?}"),
            DetailView::HttpExchange(d) => format!("{d:?}"),
            DetailView::RequestForwarded(_)
            | DetailView::ResponseSent(_)
            | DetailView::ToolRequested(_)
            | DetailView::ToolDenied(_)
            | DetailView::ToolExecuted(_) => String::new(),
            DetailView::SurfaceDecision(d) => format!("{d:?}"),
            DetailView::SurfaceObserved(d) => format!("{d:?}"),
            DetailView::SurfaceDrift(d) => format!("{d:?}"),
        };
        Some(format!(
            "{} {:?} {:?} {} {:?} {:?} {:?} {} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {detail} {:?} {:?}",
            e.at,
            e.direction,
            e.event,
            e.event_seq,
            e.hash,
            e.invocation_id,
            e.method,
            e.mono_us,
            e.prev_hash,
            e.rpc_id,
            e.session_id,
            e.transport,
            e.wire_bytes,
            e.wire_sha256,
            e.detail.offset(),
            binding.receipt_id,
            binding.receipt_sha256,
            hash,
            e.detail.exchange()
        ))
    }

    fn said_by_the_oracle(line: &[u8]) -> Option<String> {
        let e = oracle::read(line)?;
        let binding = e.detail.binding();
        let hash = oracle::hash_without(line, e.hash_at);
        let detail = match &e.detail {
            oracle::Detail::RequestReceived { anomalies, arguments_hash, meta, parent, tool_name } => {
                let meta = (*meta != b"null").then_some(*meta);
                format!("{anomalies:?} {arguments_hash:?} {meta:?} {parent:?} {tool_name:?}")
            }
            oracle::Detail::ResponseReceived { anomalies, first_byte_us, is_error, result_hash, result_type } => {
                let code = e.more.has_error_code;
                format!("{anomalies:?} {first_byte_us:?} {is_error:?} {result_hash:?} {result_type:?} {code}")
            }
            oracle::Detail::Anomaly { kind, .. } => format!("{kind:?} {:?}", e.more.reason),
            oracle::Detail::Gap { bytes, messages, reason, .. } => format!("{bytes} {messages} {reason:?}"),
            oracle::Detail::Seen | oracle::Detail::Blocked(_) => match e.kind {
                EventKind::RequestBlocked => format!("{:?}", e.more.reason.unwrap_or_default()),
                _ => format!("{:?}", e.more.reason),
            },
            oracle::Detail::Decision(d) => format!("{} {:?}", d.enforced, d.verdict),
            oracle::Detail::ChainStart(d) => format!("{d:?}"),
            oracle::Detail::ChainEnd(d) => format!("{d:?}"),
            oracle::Detail::Reload(d) => format!("{d:?}"),
            oracle::Detail::Exchange(d) => format!("{d:?}"),
            oracle::Detail::Forwarded(_) => String::new(),
        };
        Some(format!(
            "{} {:?} {:?} {} {:?} {:?} {:?} {} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {detail} {:?} {:?}",
            e.at,
            e.direction,
            e.kind,
            e.seq,
            e.hash,
            e.invocation,
            e.method,
            e.mono_us,
            e.prev_hash,
            e.rpc_id,
            e.session,
            e.transport,
            e.wire_bytes,
            e.wire_sha256,
            e.more.offset,
            binding.id,
            binding.sha256,
            hash,
            e.exchange
        ))
    }

    proptest! {
        #[test]
        fn every_event_that_we_write_is_read(text in "\\PC*|.*", n in 0u64..1 << 53) {
            for (kind, detail) in details(&text, n) {
                let e = event(kind, detail, &text, n);
                let line = to_line(&e).unwrap();
                let read = EventView::of_line(&line);
                prop_assert!(read.is_some(), "{}: {:?}", String::from_utf8_lossy(&line), explain(&line));
                let read = read.unwrap();
                prop_assert_eq!((read.event_seq, read.event, read.session_id, read.at), (n, kind, e.session_id, e.at));
                prop_assert_eq!(&read.hash_of(&line)[..], e.hash.as_bytes());
                prop_assert_eq!(said(&line), said_by_the_oracle(&line));
                let typed: AuditEvent = serde_json::from_slice(&line).unwrap();
                prop_assert_eq!(to_line(&typed).unwrap(), line);
            }
        }

        #[test]
        fn whatever_is_read_is_canonical_and_typed(text in "[a-z\"\\\\\u{1}é]{0,6}", n in 0u64..1000, at in 0usize..600, byte in any::<u8>(), remove in any::<bool>()) {
            for (kind, detail) in details(&text, n) {
                let mut line = to_line(&event(kind, detail, &text, n)).unwrap();
                let at = at % line.len();
                if remove { line.remove(at); } else { line[at] = byte; }
                let said = said(&line);
                if said.is_some() {
                    prop_assert!(canon::is_canonical(&line));
                    prop_assert!(serde_json::from_slice::<AuditEvent>(&line).is_ok());
                }
                prop_assert_eq!(said, said_by_the_oracle(&line), "{}", String::from_utf8_lossy(&line));
            }
        }
    }

    #[test]
    fn what_a_server_says_of_itself_is_read_in_the_version_that_has_it() {
        for kind in [EventKind::ToolRequested, EventKind::ToolDenied, EventKind::ToolExecuted] {
            let step = d::ToolStep {
                call: 7,
                receipt_id: Some(ReceiptId::of(crate::model::ReceiptPrefix::Denied, 9)),
                receipt_sha256: Some("cd".repeat(32)),
            };
            let mut e = event(kind, to_raw_value(&step).unwrap(), "x", 3);
            for (v, reads) in [(1, false), (2, false), (SERVER_EVENTS, true)] {
                e.v = v;
                e.seal().unwrap();
                let line = to_line(&e).unwrap();
                let read = EventView::of_line(&line);
                assert_eq!((read.is_some(), serde_json::from_slice::<AuditEvent>(&line).is_ok()), (reads, reads));
                assert!(read.is_none_or(|read| read.detail.binding().receipt_id == step.receipt_id));
            }
        }
    }

    #[test]
    fn several_lines_that_are_no_messages_are_read_in_their_version_and_over_stdio() {
        let lines = d::Lines { first_us: 3, lines: 2, offset: 9, reason: Some("x".into()) };
        let mut e = event(EventKind::MalformedLines, to_raw_value(&lines).unwrap(), "x", 3);
        for (v, transport) in (1..=JUNK_EVENTS).flat_map(|v| [(v, "stdio"), (v, "streamable-http")]) {
            (e.v, e.transport) = (v, transport.to_owned());
            e.seal().unwrap();
            let line = to_line(&e).unwrap();
            let reads = v == JUNK_EVENTS && transport == "stdio";
            let read = EventView::of_line(&line);
            assert_eq!((read.is_some(), serde_json::from_slice::<AuditEvent>(&line).is_ok()), (reads, reads), "{v}");
            assert!(read.is_none_or(|read| read.detail.offset() == Some(9)));
        }
    }

    #[test]
    fn a_refused_line_is_explained() {
        let (kind, detail) = details("x", 3).remove(2);
        let good = String::from_utf8(to_line(&event(kind, detail, "x", 3)).unwrap()).unwrap();
        for (bad, words) in [
            (good.replace("\"v\":1", "\"v\":6"), "version 6; this assay reads up to 5"),
            (good.replace("\"v\":1", "\"v\":5"), "does not have the members of its kind"),
            (good.replace("\"v\":1", "\"v\":2"), "does not have the members of its kind"),
            (good.replace("\"offset\":3", "\"exchange\":3,\"offset\":3"), "does not have the members of its kind"),
            (good.replace("\"v\":1", "\"v\":0"), "version 0"),
            (good.replace("\"v\":1", "\"v\":1.0"), "not an audit event"),
            (good.replace("\"offset\":3", "\"offset\": 3"), "not the canonical line"),
            (good.replace("\"offset\":3", "\"offset\":3,\"offset\":3"), "duplicate_key"),
            (good.replace("\"event_seq\":3", "\"event_\\u0073eq\":3"), "not the canonical line"),
            (good.replace("\"event_seq\":3", "\"Event_seq\":3"), "Event_seq"),
            (good.replace("\"event_seq\":3", "\"event_seq\":-1"), "not an audit event"),
            (good.replace("response_sent", "response_received"), "does not have the members of its kind"),
            (good.clone() + "x", "not JSON"),
        ] {
            assert!(EventView::of_line(bad.as_bytes()).is_none(), "{bad}");
            let (finding, newer) = explain(bad.as_bytes()).of_document(crate::Stage::VerifyChain, "f");
            assert!(finding.message.contains(words), "{bad}: {finding:?}");
            assert_eq!(newer, words.contains("up to"), "{bad}");
        }
    }
}
