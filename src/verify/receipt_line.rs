//! Why a line is not that of a receipt.

use super::unread::{Unread, not_canonical, not_json, plain};
use crate::{
    canon,
    model::{
        reading,
        receipt::{self, NotAReceipt, Receipt},
    },
};

/// Why a line is refused where the canonical line of a receipt must be.
#[must_use]
pub fn explain(line: &[u8]) -> Unread {
    if let Some((code, words)) = not_json(line) {
        return Unread::Wrong(code, words);
    }
    if canon::kind(line) != Some(canon::Kind::Object) {
        return Unread::schema("not a receipt: not an object");
    }
    if let Some(newer) = reading::later_receipt(line) {
        return Unread::TooNew(newer);
    }
    let kind = receipt::kind(line).unwrap_or_default();
    match Receipt::of_kind(&kind, line) {
        Err(NotAReceipt::Unknown(_)) => Unread::schema(format!("receipt type {kind:?} is not one of this recorder")),
        Err(NotAReceipt::Members(e)) => Unread::schema(format!("not a {kind} receipt: {}", plain(&e))),
        Ok(_) if !canon::is_canonical(line) => not_canonical(),
        Ok(_) => Unread::schema(format!("a member of this {kind} receipt has a value that the schema does not allow")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{
            DurationMs, InvocationId, Outcome, Phases, PolicyVerdict, ReceiptId, RpcId, SessionId, ToolCall, WallTime,
            receipt::{FIELDS_SCHEMA, INTEGRATION_SOURCE, PLAIN_SCHEMA, ReceiptView, SURFACE_SCHEMA, TOOL_CALL},
            said::Said,
            surface::State,
            to_line,
        },
        oracle::receipt_line as oracle,
    };
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    fn sample(text: &str, n: u64) -> ToolCall {
        let hash = format!("sha256:{}", "0a".repeat(32));
        let content = serde_jcs::to_string(&serde_json::json!({"t": text, "n": [n, 0.5, null]})).unwrap();
        ToolCall {
            anomalies: vec![text.into()],
            arguments_content: Some(RawValue::from_string(content).unwrap()),
            arguments_hash: hash.clone(),
            arguments_redacted: Said::Unsaid,
            duration_ms: Some(DurationMs(n)),
            integration_source: INTEGRATION_SOURCE.into(),
            invocation_id: InvocationId::from_bits(n),
            mcp_request_id: RpcId::Text(text.into()),
            meta: None,
            outcome: Outcome::Forwarded,
            outcome_reason: Some(text.into()),
            parent_receipt_id: None,
            phases_us: Phases { response_observed: Some(n), ..Phases::default() },
            policy_decided_at: Some(WallTime::from_millis(n as i64)),
            policy_hash: Some(text.into()),
            policy_reason: None,
            policy_ref: None,
            policy_verdict: PolicyVerdict::NoPolicy,
            proxy_version: text.into(),
            receipt_id: ReceiptId::from_bits(n),
            request_observed_at: WallTime::from_millis(1),
            response_observed_at: None,
            result_content: None,
            result_hash: Some(hash),
            result_is_error: Some(true),
            result_type: Some(text.into()),
            schema_version: PLAIN_SCHEMA.into(),
            seq: n,
            server_id: text.into(),
            server_transport: "stdio".into(),
            session_id: SessionId::from_bits(n),
            surface_age_ms: Said::Unsaid,
            surface_approval_id: Said::Unsaid,
            surface_item_hash: Said::Unsaid,
            surface_root: Said::Unsaid,
            surface_state: Said::Unsaid,
            timestamp: WallTime::from_millis(2),
            tool_name: text.into(),
            trace_id: SessionId::from_bits(n),
            r#type: TOOL_CALL.into(),
        }
    }

    #[test]
    fn a_receipt_says_all_of_its_surface_or_nothing_as_its_schema_has_it() {
        let mut call = sample("a", 1);
        let reads = |call: &ToolCall| ReceiptView::of_line(&to_line(call).unwrap()).is_some();
        assert!(reads(&call));
        call.surface_age_ms = Said::Said(Some(7));
        assert!(!reads(&call), "of schema 3.0 it says nothing");
        call.schema_version = SURFACE_SCHEMA.into();
        assert!(!reads(&call), "of schema 3.1 it says all");
        call.surface_approval_id = Said::Said(None);
        call.surface_item_hash = Said::Said(None);
        call.surface_root = Said::Said(Some(format!("sha256:{}", "0a".repeat(32))));
        call.surface_state = Said::Said(Some(State::Unlisted));
        assert!(reads(&call));
        let line = to_line(&call).unwrap();
        assert!(crate::canon::is_canonical(&line));
        let Some(ReceiptView::Call(view)) = ReceiptView::of_line(&line) else { panic!("a call") };
        assert_eq!((view.surface_state, view.surface_age_ms), (Said::Said(Some(State::Unlisted)), Said::Said(Some(7))));
        call.surface_root = Said::Said(Some("sha256:short".into()));
        assert!(!reads(&call));
    }

    #[test]
    fn a_receipt_has_its_redacted_arguments_from_schema_3_2_on() {
        let mut call = sample("a", 1);
        let reads = |call: &ToolCall| ReceiptView::of_line(&to_line(call).unwrap()).is_some();
        call.schema_version = FIELDS_SCHEMA.into();
        assert!(!reads(&call));
        for value in [None, Some(RawValue::from_string(r#"{"q":"x"}"#.into()).unwrap())] {
            call.arguments_redacted = Said::Said(value);
            let line = to_line(&call).unwrap();
            assert!(crate::canon::is_canonical(&line));
            let Some(ReceiptView::Call(view)) = ReceiptView::of_line(&line) else { panic!("a call") };
            assert!(!view.arguments_redacted.is_unsaid());
        }
        call.surface_age_ms = Said::Said(None);
        assert!(!reads(&call), "of the surface it says all or nothing");
        call.surface_age_ms = Said::Unsaid;
        for older in [PLAIN_SCHEMA, SURFACE_SCHEMA] {
            call.schema_version = older.into();
            assert!(!reads(&call), "{older}");
        }
    }

    /// What both readers say of a call, in the same words.
    fn said(line: &[u8]) -> Option<Vec<String>> {
        let ReceiptView::Call(c) = ReceiptView::of_line(line)? else { return Some(Vec::new()) };
        Some(vec![
            format!("{:?}", c.anomalies),
            format!("{:?}", c.arguments_content),
            format!("{:?}", c.arguments_hash),
            format!("{:?}", c.duration_ms),
            format!("{:?}", c.invocation_id),
            format!("{:?}", c.mcp_request_id),
            format!("{:?}", c.meta),
            format!("{:?}", c.outcome),
            format!("{:?}", c.parent_receipt_id),
            format!("{:?}", c.phases_us),
            format!("{:?}", c.policy_decided_at),
            format!("{:?}", c.policy_hash),
            format!("{:?}", c.policy_reason),
            format!("{:?}", c.policy_ref),
            format!("{:?}", c.policy_verdict),
            format!("{:?}", c.proxy_version),
            format!("{:?}", c.receipt_id),
            format!("{:?}", c.request_observed_at),
            format!("{:?}", c.response_observed_at),
            format!("{:?}", c.result_content),
            format!("{:?}", c.result_hash),
            format!("{:?}", c.result_is_error),
            format!("{:?}", c.result_type),
            format!("{:?}", c.seq),
            format!("{:?}", c.server_id),
            format!("{:?}", c.server_transport),
            format!("{:?}", c.session_id),
            format!("{:?}", c.timestamp),
            format!("{:?}", c.tool_name),
            format!("{:?}", c.trace_id),
            format!("{:?}", c.outcome_reason.map(|r| r.text)),
        ])
    }

    fn said_by_the_oracle(line: &[u8]) -> Option<Vec<String>> {
        let value = |raw: &'static str, v: &[u8]| (v != raw.as_bytes()).then(|| v.to_vec());
        let oracle::Receipt::Call(c) = oracle::read(line)? else { return Some(Vec::new()) };
        Some(vec![
            format!("{:?}", c.anomalies),
            format!("{:?}", value("null", c.arguments_content)),
            format!("{:?}", c.arguments_hash),
            format!("{:?}", c.duration_us),
            format!("{:?}", c.invocation),
            format!("{:?}", c.rpc_id),
            format!("{:?}", value("null", c.meta)),
            format!("{:?}", c.outcome),
            format!("{:?}", c.parent),
            format!("{:?}", c.phases),
            format!("{:?}", c.decided_at),
            format!("{:?}", c.policy_hash),
            format!("{:?}", c.policy_reason),
            format!("{:?}", c.policy_ref),
            format!("{:?}", c.verdict),
            format!("{:?}", c.proxy_version),
            format!("{:?}", c.receipt_id),
            format!("{:?}", c.request_at),
            format!("{:?}", c.response_at),
            format!("{:?}", value("null", c.result_content)),
            format!("{:?}", c.result_hash),
            format!("{:?}", c.is_error),
            format!("{:?}", c.result_type),
            format!("{:?}", c.seq),
            format!("{:?}", c.server_id),
            format!("{:?}", c.transport),
            format!("{:?}", c.session),
            format!("{:?}", c.timestamp),
            format!("{:?}", c.tool_name),
            format!("{:?}", c.trace),
            format!("{:?}", c.outcome_reason),
        ])
    }

    proptest! {
        #[test]
        fn every_receipt_that_we_write_is_read(text in "\\PC*|.*", n in 0u64..1 << 50) {
            let line = to_line(&sample(&text, n)).unwrap();
            let Some(ReceiptView::Call(call)) = ReceiptView::of_line(&line) else { panic!("{:?}", explain(&line)) };
            prop_assert_eq!((call.seq, call.duration_ms, call.receipt_id.bits()), (n, Some(n), n));
            prop_assert_eq!(said(&line), said_by_the_oracle(&line));
        }

        #[test]
        fn whatever_is_read_is_canonical_and_typed(text in "[a\"\\\\\u{1}é]{0,4}", n in 0u64..1000, at in 0usize..2000, byte in any::<u8>(), remove in any::<bool>()) {
            let mut line = to_line(&sample(&text, n)).unwrap();
            let at = at % line.len();
            if remove { line.remove(at); } else { line[at] = byte; }
            let said = said(&line);
            if said.is_some() {
                prop_assert!(canon::is_canonical(&line));
                prop_assert!(serde_json::from_slice::<ToolCall>(&line).is_ok());
            }
            prop_assert_eq!(said, said_by_the_oracle(&line), "{}", String::from_utf8_lossy(&line));
        }
    }

    #[test]
    fn a_private_member_name_of_serde_stays_an_object() {
        let mut call = sample("x", 1);
        let content = r#"{"$serde_json::private::Number":"1e9999"}"#;
        call.arguments_content = Some(RawValue::from_string(content.into()).unwrap());
        let line = to_line(&call).unwrap();
        let Some(ReceiptView::Call(read)) = ReceiptView::of_line(&line) else { panic!("refused") };
        assert_eq!(read.arguments_content, Some(content.as_bytes()));
    }
}
