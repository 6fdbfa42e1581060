//! Answers of the API, and what of a request is read in the same way everywhere.

use super::{
    problem::Problem,
    types::{Asked, Page},
};
use crate::relay::http::host::Hosted;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use serde::Serialize;
use std::collections::BTreeMap;

/// Items on a page where nobody says how many.
const USUAL: u32 = 50;
/// Items on a page at most.
pub const MOST: u32 = 200;

/// An answer with a document, or with nothing.
pub struct Reply {
    status: StatusCode,
    body: Option<Vec<u8>>,
    headers: Vec<(HeaderName, String)>,
}

impl Reply {
    /// A JSON document.
    pub fn json(status: StatusCode, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(mut body) => {
                body.push(b'\n');
                Self { status, body: Some(body), headers: Vec::new() }
            }
            // There is no value here that JSON cannot hold.
            Err(_) => Self { status: StatusCode::INTERNAL_SERVER_ERROR, body: None, headers: Vec::new() },
        }
    }

    /// Nothing.
    pub const fn none() -> Self {
        Self { status: StatusCode::NO_CONTENT, body: None, headers: Vec::new() }
    }

    /// Of which version it is.
    #[must_use]
    pub fn etag(mut self, version: &str) -> Self {
        self.headers.push((header::ETAG, format!("\"{version}\"")));
        self
    }

    /// Where what was made is.
    #[must_use]
    pub fn location(mut self, path: &str) -> Self {
        self.headers.push((header::LOCATION, path.to_owned()));
        self
    }

    /// The first items of those that are left, and where the next ones are.
    pub fn page<T: Serialize>(uri: &Uri, asked: &Asked, mut items: Vec<T>, cursor: impl Fn(&T) -> String) -> Self {
        let more = items.len() > asked.limit as usize;
        items.truncate(asked.limit as usize);
        let next_cursor = items.last().filter(|_| more).map(cursor);
        let link = next_cursor.as_ref().map(|next| {
            let query = url::form_urlencoded::Serializer::new(String::new())
                .append_pair("limit", &asked.limit.to_string())
                .append_pair("cursor", next)
                .finish();
            (header::LINK, format!("<{}?{query}>; rel=\"next\"", uri.path()))
        });
        let mut reply = Self::json(StatusCode::OK, &Page { items, next_cursor });
        reply.headers.extend(link);
        reply
    }
}

/// A body that is there as a whole.
pub fn whole(bytes: impl Into<Bytes>) -> Hosted {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

impl From<Reply> for Response<Hosted> {
    fn from(reply: Reply) -> Self {
        let is_json = reply.body.is_some();
        let mut response = Self::new(whole(reply.body.unwrap_or_default()));
        *response.status_mut() = reply.status;
        if is_json {
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for (name, value) in reply.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

/// What of a query is known: each once, and nothing else.
///
/// # Errors
/// Another name, or one twice.
pub fn query(uri: &Uri, known: &[&str]) -> Result<BTreeMap<String, String>, Problem> {
    let mut found = BTreeMap::new();
    for (name, value) in url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        if !known.contains(&&*name) {
            return Err(Problem::bad(format!(
                "the query has a name that is not known; there are {}",
                known.join(", ")
            )));
        }
        if found.insert(name.clone().into_owned(), value.into_owned()).is_some() {
            return Err(Problem::bad(format!("{name} is there twice")));
        }
    }
    Ok(found)
}

/// Which part of a list is asked for.
///
/// # Errors
/// A limit that there is not.
pub fn asked(uri: &Uri) -> Result<Asked, Problem> {
    let mut query = query(uri, &["limit", "cursor"])?;
    let limit = match query.remove("limit") {
        None => USUAL,
        Some(text) => {
            let limit = text.parse().ok().filter(|limit| (1..=MOST).contains(limit));
            limit.ok_or_else(|| Problem::bad(format!("limit is a number from 1 to {MOST}")))?
        }
    };
    Ok(Asked { limit, cursor: query.remove("cursor") })
}

/// A path that is asked for without a query.
///
/// # Errors
/// There is one.
pub fn bare(uri: &Uri) -> Result<(), Problem> {
    query(uri, &[]).map(drop)
}

/// What `If-Match` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Whatever is there.
    Any,
    /// One of these.
    These(Vec<String>),
}

impl Wanted {
    /// Whether this is wanted.
    #[must_use]
    pub fn holds(&self, version: &str) -> bool {
        match self {
            Self::Any => true,
            Self::These(all) => all.iter().any(|one| one == version),
        }
    }
}

/// Reads `If-Match`.
///
/// # Errors
/// It is none.
pub fn if_match(headers: &HeaderMap) -> Result<Option<Wanted>, Problem> {
    let mut all = Vec::new();
    for value in headers.get_all(header::IF_MATCH) {
        let text = value.to_str().map_err(|_| Problem::bad("If-Match is no list of ETags"))?.trim();
        if text == "*" {
            return Ok(Some(Wanted::Any));
        }
        for one in text.split(',') {
            let one = one.trim().strip_prefix('"').and_then(|one| one.strip_suffix('"'));
            let one = one.ok_or_else(|| Problem::bad("If-Match is \"*\" without quotes, or ETags in quotes"))?;
            all.push(one.to_owned());
        }
    }
    Ok((!all.is_empty()).then_some(Wanted::These(all)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_asked_for_in_pages() {
        let at = |text: &str| asked(&text.parse().unwrap());
        assert_eq!(at("/x").unwrap(), Asked { limit: 50, cursor: None });
        assert_eq!(at("/x?cursor=a%20b&limit=7").unwrap(), Asked { limit: 7, cursor: Some("a b".into()) });
        for bad in ["/x?limit=0", "/x?limit=201", "/x?limit=many", "/x?limit=1&limit=2", "/x?page=2"] {
            assert_eq!(at(bad).unwrap_err().status, 400, "{bad}");
        }
        assert!(at("/x?cursor=seven").unwrap().below().is_err() && at("/x?cursor=7").unwrap().below() == Ok(Some(7)));
        let uri: Uri = "/x?limit=2".parse().unwrap();
        let two = Asked { limit: 2, cursor: None };
        let link = |items: Vec<&str>| {
            let response: Response<Hosted> = Reply::page(&uri, &two, items, |s| (*s).to_owned()).into();
            response.headers().get(header::LINK).map(|link| link.to_str().unwrap().to_owned())
        };
        assert_eq!(link(vec!["a", "b&"]), None);
        assert_eq!(link(vec!["a", "b&", "c"]).unwrap(), "</x?limit=2&cursor=b%26>; rel=\"next\"");
    }

    #[test]
    fn if_match_is_read_as_it_is_written() {
        let read = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::IF_MATCH, value.parse().unwrap());
            }
            if_match(&headers).map_err(|problem| problem.status.as_u16())
        };
        assert_eq!((read(&[]), read(&["*"])), (Ok(None), Ok(Some(Wanted::Any))));
        let two = read(&["\"a\", \"b\""]).unwrap().unwrap();
        assert!(two.holds("a") && two.holds("b") && !two.holds("c"));
        for bad in ["a", "\"a", "W/\"a\"", ""] {
            assert_eq!(read(&[bad]), Err(400), "{bad}");
        }
    }
}
