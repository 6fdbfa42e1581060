//! The API of the gateway, under `/api/admin`: services, what they offer, what was recorded, tokens, what was done.
//!
//! | file | what |
//! |---|---|
//! | `auth` | who may use it |
//! | `desk` | what is asked of the gateway, which one thread does |
//! | `services`, `surface`, `sessions`, `manage` | what there is |
//! | `types` | what it takes and gives |
//! | `body`, `reply`, `problem` | how that is read and written |

pub mod auth;
pub mod body;
pub mod desk;
pub mod manage;
pub mod problem;
pub mod reply;
pub mod services;
pub mod sessions;
pub mod surface;
pub mod types;

use self::{
    auth::{Failures, Keys, Role, Who},
    desk::Desk,
    problem::{Problem, ProblemDocument},
};
use crate::{
    paths,
    relay::http::host::{Host, Hosted, Hosting, Peer},
};
use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use std::{pin::Pin, sync::Arc, time::Instant};
use utoipa::{
    IntoParams, OpenApi,
    openapi::{
        ContentBuilder, RefOr, Response as Described, ResponseBuilder,
        path::Operation,
        schema::Ref,
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

/// Where the API is.
pub const BASE: &str = "/api/admin";

/// What the handlers of requests share.
pub struct Api {
    /// The way to the gateway.
    pub desk: Desk,
    /// The tokens that are known.
    pub keys: Arc<ArcSwap<Keys>>,
    /// Who failed how often.
    pub failures: Failures,
}

/// What a handler comes to.
type Answer = Result<Response<Hosted>, Problem>;

/// A request, as a handler gets it.
pub struct Call {
    api: Arc<Api>,
    who: Who,
    uri: Uri,
    headers: HeaderMap,
    parts: Parts,
    body: body::Unread,
}

/// The parts of a path that its pattern leaves open.
pub struct Parts(Vec<String>);

impl Parts {
    /// As many as the pattern has.
    fn take<const N: usize>(self) -> Result<[String; N], Problem> {
        self.0.try_into().map_err(|_| Problem::not_found("there is nothing here"))
    }
}

/// The part of a list that is wanted.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes the query; reply::asked reads it")]
struct Paging {
    /// Items on the page; 50 without it.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "assay gateway",
        description = "Services of a gateway: what they offer, what is approved of that, what was recorded.\n\nRefusals are problem documents (RFC 9457).",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    paths(
        services::list, services::create, services::get, services::change, services::remove, surface::approve,
        surface::block, surface::check, surface::snapshots, surface::snapshot, surface::diff, sessions::sessions,
        sessions::packs, sessions::pack, sessions::verify_pack, manage::tokens, manage::create, manage::revoke,
        manage::audit, openapi
    ),
    components(schemas(ProblemDocument)),
    tags(
        (name = "services", description = "Servers behind the gateway"),
        (name = "surface", description = "What they offer, and decisions about it"),
        (name = "evidence", description = "What was recorded of them"),
        (name = "tokens", description = "Who may use the API"),
        (name = "audit", description = "What was done"),
    )
)]
struct Document;

/// The OpenAPI document of the API.
#[utoipa::path(
    get, path = "/api/admin/openapi.json", tag = "audit", operation_id = "getOpenApi",
    responses((status = 200, description = "this document", body = Object))
)]
async fn openapi(call: Call) -> Answer {
    reply::bare(&call.uri)?;
    Ok(reply::Reply::json(StatusCode::OK, &document()).into())
}

type Handler = fn(Call) -> Pin<Box<dyn Future<Output = Answer> + Send>>;

macro_rules! routes {
    ($($method:ident $pattern:literal => $handler:path,)+) => {
        &[$((Method::$method, $pattern, |call| Box::pin($handler(call))),)+]
    };
}

/// The handlers. A test holds them to what the OpenAPI document says.
const ROUTES: &[(Method, &str, Handler)] = routes! {
    GET "/services" => services::list,
    POST "/services" => services::create,
    GET "/services/{name}" => services::get,
    PATCH "/services/{name}" => services::change,
    DELETE "/services/{name}" => services::remove,
    POST "/services/{name}/approve" => surface::approve,
    POST "/services/{name}/block" => surface::block,
    POST "/services/{name}/check" => surface::check,
    GET "/services/{name}/snapshots" => surface::snapshots,
    GET "/services/{name}/snapshots/{id}" => surface::snapshot,
    GET "/services/{name}/diff" => surface::diff,
    GET "/services/{name}/sessions" => sessions::sessions,
    GET "/services/{name}/packs" => sessions::packs,
    GET "/services/{name}/packs/{id}" => sessions::pack,
    GET "/services/{name}/packs/{id}/verify" => sessions::verify_pack,
    GET "/tokens" => manage::tokens,
    POST "/tokens" => manage::create,
    DELETE "/tokens/{name}" => manage::revoke,
    GET "/audit" => manage::audit,
    GET "/openapi.json" => openapi,
};

/// What of a path a pattern leaves open, if the path is of it.
pub fn open_parts<'a>(pattern: &str, path: &'a str) -> Option<Vec<&'a str>> {
    let (mut parts, mut steps) = (Vec::new(), path.split('/'));
    for wanted in pattern.split('/') {
        let step = steps.next()?;
        if wanted.starts_with('{') && !step.is_empty() {
            parts.push(step);
        } else if wanted != step {
            return None;
        }
    }
    steps.next().is_none().then_some(parts)
}

/// The handler of a request, and the parts of its path.
fn route(method: &Method, path: &str) -> Result<(Handler, Parts), Problem> {
    let below = path.strip_prefix(BASE).unwrap_or_default();
    let of_path: Vec<_> =
        ROUTES.iter().filter_map(|(m, pattern, h)| Some((m, h, open_parts(pattern, below)?))).collect();
    if of_path.is_empty() {
        return Err(Problem::not_found("there is nothing here; /api/admin/openapi.json says what there is"));
    }
    let allowed = of_path.iter().map(|(m, ..)| m.as_str()).collect::<Vec<_>>().join(", ");
    let Some((_, handler, parts)) = of_path.into_iter().find(|(m, ..)| *m == method) else {
        let problem =
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", format!("there are {allowed}"));
        let allow = HeaderValue::from_str(&allowed).map(|allow| (header::ALLOW, allow));
        return Err(Problem { headers: allow.into_iter().collect(), ..problem });
    };
    Ok((*handler, Parts(decoded(&parts)?)))
}

/// Parts of a path as text.
///
/// # Errors
/// They are none.
pub fn decoded(parts: &[&str]) -> Result<Vec<String>, Problem> {
    let text = |part: &&str| percent_decode_str(part).decode_utf8().map(std::borrow::Cow::into_owned);
    parts.iter().map(text).collect::<Result<_, _>>().map_err(|_| Problem::bad("the path is no text"))
}

/// The OpenAPI document: made from the handlers, and what all of them refuse.
#[must_use]
pub fn document() -> utoipa::openapi::OpenApi {
    let mut document = Document::openapi();
    let refused = |what: &str| -> RefOr<Described> {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("ProblemDocument"))).build();
        RefOr::T(ResponseBuilder::new().description(what).content("application/problem+json", content).build())
    };
    for (path, item) in &mut document.paths.paths {
        let methods: [&mut Option<Operation>; 4] = [&mut item.get, &mut item.post, &mut item.patch, &mut item.delete];
        for operation in methods.into_iter().flatten() {
            let mut may = vec![
                ("400", "`bad-request`: it does not read"),
                ("401", "`unauthorized`: no token that is known"),
                ("403", "`forbidden`: the token is not good for this; Host or Origin is not allowed"),
                ("429", "`too-many-failures`: ten wrong tokens in a minute"),
                ("503", "`registry-unavailable`: the registry cannot be used, or the gateway ends"),
            ];
            if path.contains('{') {
                may.push(("404", "`not-found`"));
            }
            if operation.request_body.is_some() {
                may.extend([
                    ("413", "`too-large`"),
                    ("415", "`unsupported-media-type`"),
                    ("422", "`invalid`: `errors` names the members"),
                ]);
            }
            for (status, what) in may {
                operation.responses.responses.entry(status.to_owned()).or_insert_with(|| refused(what));
            }
        }
    }
    let bearer = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    document.components.get_or_insert_default().security_schemes.insert("token".to_owned(), RefOr::T(bearer));
    document.security = Some(vec![SecurityRequirement::new("token", Vec::<String>::new())]);
    document
}

/// Serves the API.
pub struct Admin(Arc<Api>);

impl Admin {
    /// Over a desk, for who has these tokens.
    #[must_use]
    pub fn new(desk: Desk, keys: Arc<ArcSwap<Keys>>) -> Self {
        Self(Arc::new(Api { desk, keys, failures: Failures::default() }))
    }

    /// What its handlers share, for the pages.
    #[must_use]
    pub fn shared(&self) -> Arc<Api> {
        self.0.clone()
    }

    /// Whether a path is one of ours.
    #[must_use]
    pub fn has(path: &str) -> bool {
        path.strip_prefix(BASE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl Api {
    /// Who sends a request.
    fn admit(&self, request: &Request<Incoming>, from: &Peer) -> Result<Who, Problem> {
        if from.is_user {
            return Ok(Who { name: paths::user_name(), role: Role::Admin, auth: "local_user", via: "api" });
        }
        let now = Instant::now();
        self.failures.allow(&from.address, now)?;
        let who = self.keys.load().admit(request.headers());
        if who.is_err() && request.headers().contains_key(header::AUTHORIZATION) {
            self.failures.count(&from.address, now);
        }
        who
    }
}

impl Host for Admin {
    fn answer(&self, request: Request<Incoming>, from: &Peer, id: &str) -> Hosting {
        let id = id.to_owned();
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let who = self.0.admit(&request, from);
        let api = self.0.clone();
        Box::pin(async move {
            let actor = who.as_ref().map_or_else(|_| String::new(), Who::actor);
            let routed = who.and_then(|who| Ok((who, route(&method, &path)?)));
            let answer = match routed {
                Err(problem) => Err(problem),
                Ok((who, (handler, parts))) => {
                    let (head, body) = request.into_parts();
                    let body = body::Unread::new(head.headers.clone(), body);
                    handler(Call { api, who, uri: head.uri, headers: head.headers, parts, body }).await
                }
            };
            let response = finished(answer, &id);
            let status = response.status().as_u16();
            tracing::info!(request_id = id, %method, path, status, actor, "an admin request");
            response
        })
    }

    fn refuse(&self, status: StatusCode, why: &'static str, id: &str) -> Response<Hosted> {
        let word = if status == StatusCode::FORBIDDEN { "forbidden" } else { "bad-request" };
        finished(Err(Problem::new(status, word, why)), id)
    }
}

/// Writes what is refused as a problem document, and the headers that every answer has.
fn finished(answer: Answer, id: &str) -> Response<Hosted> {
    let mut response = answer.unwrap_or_else(|problem| {
        let mut body = serde_json::to_vec(&problem.document(id)).unwrap_or_default();
        body.push(b'\n');
        let mut response = Response::new(reply::whole(body));
        *response.status_mut() = problem.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.extend(problem.headers);
        response
    });
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_route_is_in_the_document_and_nothing_else_is() {
        let document = document();
        let mut described = BTreeSet::new();
        for (path, item) in &document.paths.paths {
            let methods = [("GET", &item.get), ("POST", &item.post), ("PATCH", &item.patch), ("DELETE", &item.delete)];
            for (method, operation) in methods {
                let Some(operation) = operation else { continue };
                for status in ["400", "401", "403", "429", "503"] {
                    assert!(operation.responses.responses.contains_key(status), "{method} {path}: {status}");
                }
                described.insert(format!("{method} {path}"));
            }
        }
        let routed = ROUTES.iter().map(|(method, pattern, _)| format!("{method} {BASE}{pattern}")).collect();
        assert_eq!(described, routed);
        assert!(serde_json::to_string(&document).unwrap().contains("\"openapi\":\"3.1.0\""));
    }

    #[test]
    fn a_path_is_found_by_its_parts() {
        let parts = |path: &str| route(&Method::GET, path).map(|(_, parts)| parts.0).map_err(|p| p.status.as_u16());
        assert_eq!(parts("/api/admin/services"), Ok(vec![]));
        assert_eq!(parts("/api/admin/services/a%2fb/snapshots/7"), Ok(vec!["a/b".into(), "7".into()]));
        for (path, status) in [
            ("/api/admin", 404),
            ("/api/admin/services/", 404),
            ("/api/admin/services/a/", 404),
            ("/api/admin/services/a/none", 404),
            ("/api/admin/services/%ff", 400),
            ("/api/admin/services/a/approve", 405),
        ] {
            assert_eq!(parts(path), Err(status), "{path}");
        }
        let refused = route(&Method::PUT, "/api/admin/services").err().unwrap();
        assert_eq!(refused.headers, [(header::ALLOW, HeaderValue::from_static("GET, POST"))]);
    }
}
