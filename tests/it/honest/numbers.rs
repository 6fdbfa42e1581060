//! Every number, and every other value, in every place that reaches evidence.

use super::{
    place::{Place, cases, requests},
    values::{NUMBERS, number, value},
};
use assay::model::{CallAnomaly, Detail, MAX_INTEGER, RpcId};
use proptest::prelude::*;

/// Messages with `v` wherever evidence, correlation or the surface looks. Each exchange has a number of its own, `n`.
fn messages(v: &str, n: usize) -> Vec<String> {
    vec![
        format!(
            r#"{{"jsonrpc":"2.0","id":{v},"method":"tools/call","params":{{"name":"t{n}","arguments":{{"n":{v}}},"_meta":{{"progressToken":{v},"callId":{v},"traceparent":{v},"codex/turnMetadata":{{"n":{v}}}}}}}}}"#
        ),
        format!(
            r#"{{"jsonrpc":"2.0","id":{v},"result":{{"content":[{v}],"isError":{v},"resultType":{v},"requestState":{v},"n":{v}}}}}"#
        ),
        // The code of an error, its id and its data.
        format!(r#"{{"jsonrpc":"2.0","id":{v},"method":"tools/call","params":{{"name":{v},"arguments":{v}}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":{v},"error":{{"code":{v},"message":"m","data":{v}}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":"e{n}","method":"resources/read","params":{{"uri":{v},"_meta":{v}}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":"e{n}","error":{{"code":{v}}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":"f{n}","method":"tools/call","params":{v}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":"f{n}","error":{v}}}"#),
        format!(
            r#"{{"jsonrpc":"2.0","id":"g{n}","method":"tools/call","params":{{"name":"g","task":{{"ttl":{v}}}}}}}"#
        ),
        format!(r#"{{"jsonrpc":"2.0","id":"g{n}","result":{{"task":{{"taskId":{v},"pollInterval":{v}}}}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":"h{n}","method":"tasks/get","params":{{"taskId":{v}}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":"h{n}","result":{{"result":{v},"status":{v}}}}}"#),
        // Who takes part, and the surface.
        format!(
            r#"{{"jsonrpc":"2.0","id":"i{n}","method":"initialize","params":{{"protocolVersion":{v},"clientInfo":{{"name":{v},"version":{v}}}}}}}"#
        ),
        format!(
            r#"{{"jsonrpc":"2.0","id":"i{n}","result":{{"protocolVersion":{v},"serverInfo":{{"name":{v},"version":{v}}},"capabilities":{v},"instructions":{v}}}}}"#
        ),
        format!(r#"{{"jsonrpc":"2.0","id":"l{n}","method":"tools/list","params":{{}}}}"#),
        format!(
            r#"{{"jsonrpc":"2.0","id":"l{n}","result":{{"tools":[{{"name":{v},"n":{v}}},{{"name":"b","n":{v}}},{v}]}}}}"#
        ),
        format!(r#"{{"jsonrpc":"2.0","id":"m{n}","method":"resources/list","params":{{}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":"m{n}","result":{{"resources":[{{"uri":{v}}}],"nextCursor":{v}}}}}"#),
        // Notifications, batches, and what is not a message at all.
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{v},"reason":{v}}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{v}}}"#),
        format!(
            r#"[{{"jsonrpc":"2.0","id":{v},"method":"tools/call","params":{{"name":"b"}}}},{v},{{"id":{v},"result":{v}}}]"#
        ),
        format!(r#"{{"jsonrpc":{v},"id":{v},"method":{v}}}"#),
        v.to_owned(),
    ]
}

fn all(values: &[String]) -> Vec<Vec<u8>> {
    values.iter().enumerate().flat_map(|(n, v)| messages(v, n)).map(String::into_bytes).collect()
}

/// Every number in one list of the surface, and each as what the server says of itself.
#[test]
fn every_number_in_a_surface_is_honest_evidence() {
    let tools: Vec<String> = NUMBERS.iter().map(|n| format!(r#"{{"name":"t","n":{n}}}"#)).collect();
    let mut lines = vec![
        br#"{"jsonrpc":"2.0","id":"l","method":"tools/list"}"#.to_vec(),
        format!(r#"{{"jsonrpc":"2.0","id":"l","result":{{"tools":[{}]}}}}"#, tools.join(",")).into_bytes(),
    ];
    Place::new().pack(&lines);
    for n in NUMBERS {
        lines.truncate(2);
        lines.push(br#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{}}"#.to_vec());
        lines.push(
            format!(r#"{{"jsonrpc":"2.0","id":"i","result":{{"capabilities":{{"n":{n}}},"instructions":{n}}}}}"#)
                .into(),
        );
        Place::new().pack(&lines);
    }
}

fn place(guard: bool, stored: bool) -> Place {
    let place = if stored { Place::new().flags(&["--store-args", "--store-results"]) } else { Place::new() };
    if guard { place.guarded() } else { place }
}

#[test]
fn every_number_where_readers_part_is_honest_evidence_in_audit_and_guard() {
    let numbers: Vec<String> = NUMBERS.iter().map(|n| (*n).to_owned()).collect();
    for (guard, stored) in [(false, false), (false, true), (true, true)] {
        place(guard, stored).pack(&all(&numbers));
    }
}

/// An id stays the number it is, or its text; never another number.
#[test]
fn an_id_is_recorded_as_it_was_sent() {
    let lines: Vec<Vec<u8>> = NUMBERS
        .iter()
        .map(|n| format!(r#"{{"id":{n},"method":"tools/call","params":{{"name":"t"}}}}"#).into())
        .collect();
    let place = Place::new();
    let pack = place.pack(&lines);
    let requests = requests(&pack);
    assert_eq!(requests.len(), NUMBERS.len());
    for (event, sent) in requests.iter().zip(NUMBERS) {
        let Detail::RequestReceived(detail) = &event.detail else { panic!("no request") };
        let flagged = detail.anomalies.iter().any(|word| *word == CallAnomaly::IdOutOfRange);
        match event.rpc_id.as_ref().unwrap() {
            RpcId::Int(n) => assert!(n.to_string() == *sent && n.unsigned_abs() <= MAX_INTEGER && !flagged, "{sent}"),
            RpcId::Text(t) => assert!(t == sent && flagged, "{sent}: {t}"),
            RpcId::Null => panic!("{sent} was lost"),
        }
    }
}

/// What evidence cannot hold is said to be left out.
#[test]
fn a_code_or_a_progress_token_is_kept_or_said_to_be_left_out() {
    let call = |n: &str| {
        [
            format!(r#"{{"id":"c{n}","method":"tools/call","params":{{"name":"t","_meta":{{"progressToken":{n}}}}}}}"#),
            format!(r#"{{"id":"c{n}","error":{{"code":{n},"message":""}}}}"#),
        ]
    };
    let lines: Vec<Vec<u8>> = NUMBERS.iter().flat_map(|n| call(n)).map(String::into_bytes).collect();
    let place = Place::new();
    let pack = place.pack(&lines);
    let receipts = std::fs::read_to_string(pack.join("receipt_pack.jsonl")).unwrap();
    let log = std::fs::read_to_string(pack.join("audit_log.jsonl")).unwrap();
    for n in NUMBERS {
        let id = format!("\"c{n}\"");
        let receipt = receipts.lines().find(|l| l.contains(&format!("\"mcp_request_id\":{id}"))).expect(n);
        let receipt: serde_json::Value = serde_json::from_str(receipt).unwrap();
        let has = |word: &str| receipt["anomalies"].as_array().unwrap().iter().any(|a| a == word);
        assert_ne!(receipt["meta"].is_null(), !has("meta_not_kept"), "progress token {n}: {receipt}");
        let answers = log.lines().filter(|l| l.contains(&format!("\"rpc_id\":{id}")) && l.contains("\"error_code\""));
        for answer in answers {
            let event: serde_json::Value = serde_json::from_str(answer).unwrap();
            let code = &event["detail"]["error_code"];
            let text = (!code.is_null()).then(|| code.to_string());
            assert!(text.is_none_or(|text| text == *n), "{n}: {code}");
            assert_eq!(code.is_null(), answer.contains("error_code_not_kept"), "code {n}: {answer}");
        }
    }
}

proptest! {
    #![proptest_config(cases(6))]

    #[test]
    fn any_number_anywhere_is_honest_evidence(
        numbers in prop::collection::vec(number(), 1..40),
        guard in any::<bool>(),
        stored in any::<bool>(),
    ) {
        place(guard, stored).pack(&all(&numbers));
    }

    #[test]
    fn any_value_anywhere_is_honest_evidence(
        values in prop::collection::vec(value(), 1..40),
        guard in any::<bool>(),
        stored in any::<bool>(),
    ) {
        place(guard, stored).pack(&all(&values));
    }
}
