//! Who sees how the requests of a listener with several upstreams go.

use http::{HeaderMap, HeaderName, Method, StatusCode};

/// What a route is looked up for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Method.
    pub method: &'a Method,
    /// Path.
    pub path: &'a str,
    /// Headers. Their values may be secrets.
    pub headers: &'a HeaderMap,
    /// The id by which the request is logged, and which its answer has.
    pub id: &'a str,
}

/// Sees how one request goes; dropped when its answer is over.
pub trait Witness: Send {
    /// The head of its answer.
    fn answered(&mut self, status: StatusCode, headers: &HeaderMap);
}

/// The header of an answer that names its request.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id that a request has, or a new one.
pub(super) fn request_id(headers: &HeaderMap) -> String {
    let is_id = |text: &&str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        (1..=128).contains(&text.len()) && text.bytes().all(plain)
    };
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(is_id);
    given.map_or_else(
        || {
            let mut bytes = [0; 8];
            // Without random numbers it is less of a help, and no less true.
            let _ = getrandom::fill(&mut bytes);
            hex::encode(bytes)
        },
        ToOwned::to_owned,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_request_keeps_an_id_that_can_stand_in_a_log() {
        let of = |text: &'static str| request_id(&[(REQUEST_ID, HeaderValue::from_static(text))].into_iter().collect());
        assert_eq!(of("a-1.b_C"), "a-1.b_C");
        for bad in ["", "a b", "a\"b", "{}"] {
            let id = of(bad);
            assert!(id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{bad}: {id}");
        }
        assert_ne!(request_id(&HeaderMap::new()), request_id(&HeaderMap::new()));
    }
}
