//! What the API refuses, as problem documents (RFC 9457).

use crate::{db::DbError, error::Failure, gateway::spec::Wrong};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use utoipa::ToSchema;

/// Type of a problem, before its word.
const URN: &str = "urn:assay:problem:";

/// A member of a request that cannot be so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Fault {
    /// JSON pointer to the member.
    pub pointer: String,
    /// Why.
    pub detail: String,
}

/// A problem document.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ProblemDocument {
    /// What it is: `urn:assay:problem:` and a word.
    #[schema(example = "urn:assay:problem:not-found")]
    pub r#type: String,
    /// The status in words.
    pub title: String,
    /// The status.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// What is wrong, and what to do.
    pub detail: String,
    /// The request, as the log names it.
    pub request_id: String,
    /// The members that cannot be so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub errors: Vec<Fault>,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The status.
    pub status: StatusCode,
    /// The word of its type.
    pub word: &'static str,
    /// What is wrong, and what to do.
    pub detail: String,
    /// The members that cannot be so.
    pub errors: Vec<Fault>,
    /// Headers beside it.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// One of this type.
    pub fn new(status: StatusCode, word: &'static str, detail: impl Into<String>) -> Self {
        Self { status, word, detail: detail.into(), errors: Vec::new(), headers: Vec::new() }
    }

    /// A request that cannot be read.
    pub fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", detail)
    }

    /// There is nothing of this name.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    /// It does not fit what is there.
    pub fn conflict(word: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, word, detail)
    }

    /// What was looked at is not there any more.
    pub fn changed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, "changed", detail)
    }

    /// Members that cannot be so.
    #[must_use]
    pub fn invalid(errors: Vec<Wrong>) -> Self {
        let errors = errors.into_iter().map(|Wrong { pointer, detail }| Fault { pointer, detail }).collect();
        let detail = "the request reads, and cannot be carried out";
        Self { errors, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail) }
    }

    /// One member that cannot be so.
    pub fn invalid_at(pointer: &str, detail: impl Into<String>) -> Self {
        Self::invalid(vec![Wrong { pointer: pointer.to_owned(), detail: detail.into() }])
    }

    /// The registry cannot be used, or the gateway ends.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        let retry = (header::RETRY_AFTER, HeaderValue::from_static("10"));
        Self { headers: vec![retry], ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "registry-unavailable", detail) }
    }

    /// Something broke that the client cannot mend.
    pub fn failed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", detail)
    }

    /// The document.
    #[must_use]
    pub fn document(&self, request_id: &str) -> ProblemDocument {
        ProblemDocument {
            r#type: format!("{URN}{}", self.word),
            title: self.status.canonical_reason().unwrap_or_default().to_owned(),
            status: self.status.as_u16(),
            detail: self.detail.clone(),
            request_id: request_id.to_owned(),
            errors: self.errors.clone(),
        }
    }
}

impl From<DbError> for Problem {
    fn from(e: DbError) -> Self {
        Self::unavailable(e.to_string())
    }
}

impl From<Failure> for Problem {
    fn from(e: Failure) -> Self {
        Self::failed(e.what)
    }
}
