//! One document: the receipts of calls as they are in the pack, with arguments and results wherever they were stored.

use super::{Export, Source, said};
use crate::model::SessionDoc;
use serde::Serialize;
use serde_json::value::RawValue;

/// Schema of the document.
pub const SCHEMA: &str = "assay.export.v1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    source: &'a Source,
    session: Option<&'a SessionDoc>,
    calls: Vec<CallView<'a>>,
}

#[derive(Serialize)]
struct CallView<'a> {
    receipt: Option<&'a RawValue>,
    /// Also where the receipt has none, because the investigation log has them.
    arguments: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
}

/// The document. A value whose bytes are no JSON text is null; its hash is in the receipt.
///
/// # Errors
/// As `serde_json`; there is no value that JSON cannot hold.
pub fn document(export: &Export<'_>) -> Result<String, serde_json::Error> {
    let raw = |value| said(value).and_then(|text| serde_json::from_str(text).ok());
    let calls = export.calls.iter().map(|call| CallView {
        receipt: raw(Some(&call.line)),
        arguments: raw(call.arguments.as_ref()),
        result: raw(call.result.as_ref()),
    });
    serde_json::to_string(&Document {
        schema: SCHEMA,
        source: &export.source,
        session: export.stored.session.as_ref(),
        calls: calls.collect(),
    })
}
