//! The routes: a table in memory that every request is looked up in. Nothing else is on the way of a request.

use super::{
    api::Admin,
    log::{Log, Request},
    metrics::{CONTENT_TYPE, Metrics},
    pages::Pages,
    registry::State,
};
use crate::{
    model::WallTime,
    relay::http::{
        access::Token,
        browser,
        host::Host,
        review::OwnReply,
        route::{Found, Routes, Target},
        witness::{Asked, Witness},
    },
};
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

/// Methods that a route takes. A browser asks with OPTIONS whether a page may.
const METHODS: [Method; 4] = [Method::GET, Method::POST, Method::DELETE, Method::OPTIONS];
const ALLOWED: &str = "GET, POST, DELETE, OPTIONS";

/// A route.
#[derive(Clone)]
pub struct Route {
    /// How it stands.
    pub state: State,
    /// Why, where it is closed.
    pub reason: Option<String>,
    /// Since when.
    pub since: String,
    /// Where its requests go; `None` where nothing is recorded.
    pub target: Option<Target>,
}

/// What has to be so for the gateway to be ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The registry can be used.
    pub registry: bool,
    /// The audit directories of all services can be used.
    pub evidence: bool,
    /// The configuration that is in force is the one in the file.
    pub config: bool,
}

impl Ready {
    const fn is_all(self) -> bool {
        self.registry && self.evidence && self.config
    }
}

/// Who may read the metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Readers {
    /// Nobody.
    #[default]
    None,
    /// Who has this token.
    With(Token),
    /// Everybody.
    All,
}

/// What the gateway answers by itself: the API and the pages.
#[derive(Clone)]
pub struct Hosts {
    /// The API.
    pub api: Arc<dyn Host>,
    /// The pages.
    pub pages: Arc<dyn Host>,
}

impl Hosts {
    /// Who answers a path.
    fn of(&self, path: &str) -> Option<Found> {
        let host = match path {
            path if Admin::has(path) => &self.api,
            path if Pages::has(path) => &self.pages,
            _ => return None,
        };
        Some(Found::Host(host.clone()))
    }
}

/// All routes.
pub struct Table {
    routes: ArcSwap<BTreeMap<String, Route>>,
    ready: ArcSwap<Ready>,
    readers: ArcSwap<Readers>,
    /// The API and the pages, where they are beside the routes.
    hosts: OnceLock<Hosts>,
    /// What is counted.
    pub metrics: Metrics,
    log: Log,
}

/// The API and the pages alone.
pub struct AdminRoutes {
    /// What answers.
    pub hosts: Hosts,
    /// What is known of health, and counted.
    pub table: Arc<Table>,
}

impl Routes for AdminRoutes {
    fn find(&self, asked: &Asked<'_>) -> Found {
        if let Some(found) = self.hosts.of(asked.path) {
            return found;
        }
        self.table.about(asked).unwrap_or_else(|| {
            let detail = "there is nothing here; the API is at /api/admin, the pages are at /ADMIN/";
            problem(asked.id, StatusCode::NOT_FOUND, "not-found", detail, &json!({}), Vec::new())
        })
    }

    fn witness(&self, asked: &Asked<'_>) -> Box<dyn Witness> {
        Box::new(Request::begins(self.table.log.clone(), asked, None))
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::new(Log::default())
    }
}

impl Table {
    /// Without routes; requests are logged there.
    #[must_use]
    pub fn new(log: Log) -> Self {
        let ready = Ready { registry: true, evidence: true, config: true };
        Self {
            routes: ArcSwap::default(),
            ready: ArcSwap::from_pointee(ready),
            readers: ArcSwap::default(),
            hosts: OnceLock::new(),
            metrics: Metrics::default(),
            log,
        }
    }

    /// The API and the pages are beside the routes.
    pub fn set_hosts(&self, hosts: Hosts) {
        // There are these for the life of a process.
        let _ = self.hosts.set(hosts);
    }

    /// These may read the metrics.
    pub fn set_readers(&self, readers: Readers) {
        self.readers.store(Arc::new(readers));
    }

    /// What is said of the gateway itself.
    fn about(&self, asked: &Asked<'_>) -> Option<Found> {
        match asked.path {
            "/livez" | "/readyz" => Some(self.health(asked)),
            "/metrics" => Some(self.metrics(asked)),
            _ => None,
        }
    }

    fn metrics(&self, asked: &Asked<'_>) -> Found {
        if !matches!(*asked.method, Method::GET | Method::HEAD) {
            return not_allowed(asked.id, "GET, HEAD");
        }
        let may = match &**self.readers.load() {
            Readers::None => return not_found(asked.id),
            Readers::With(token) => token.is_bearer(asked.headers),
            Readers::All => true,
        };
        if !may {
            let challenge = (header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            let detail = "the token of the metrics is needed: Authorization: Bearer";
            return public(problem(
                asked.id,
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                detail,
                &json!({}),
                vec![challenge],
            ));
        }
        let states = self.routes.load().iter().map(|(name, route)| (name.clone(), route.state)).collect();
        let body = self.metrics.text(states, WallTime::now()).into();
        let content_type = HeaderValue::from_static(CONTENT_TYPE);
        let headers = vec![(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
        Found::Answer { reply: OwnReply { status: StatusCode::OK, content_type, body }, headers, public: true }
    }

    /// Has a route stand otherwise; requests that come from now on find it so.
    pub fn put(&self, name: &str, route: &Route) {
        self.routes.rcu(|routes| {
            let mut routes = BTreeMap::clone(routes);
            routes.insert(name.to_owned(), route.clone());
            routes
        });
    }

    /// Takes a route away.
    pub fn remove(&self, name: &str) {
        self.routes.rcu(|routes| {
            let mut routes = BTreeMap::clone(routes);
            routes.remove(name);
            routes
        });
    }

    /// The gateway is ready as far as this.
    pub fn set_ready(&self, ready: Ready) {
        self.ready.store(ready.into());
    }

    fn health(&self, asked: &Asked<'_>) -> Found {
        if !matches!(*asked.method, Method::GET | Method::HEAD) {
            return not_allowed(asked.id, "GET, HEAD");
        }
        if asked.path == "/livez" {
            return answer(StatusCode::OK, &json!({"status": "ok"}), Vec::new(), true);
        }
        let ready = **self.ready.load();
        let status = if ready.is_all() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let word = |ok: bool| if ok { "ok" } else { "failed" };
        let body = json!({
            "config": word(ready.config), "evidence": word(ready.evidence), "registry": word(ready.registry),
            "status": if ready.is_all() { "ok" } else { "not ready" },
        });
        answer(status, &body, Vec::new(), true)
    }
}

/// The service that a path is for.
fn service_of(path: &str) -> Option<&str> {
    let name = path.strip_prefix('/')?;
    let name = name.strip_suffix("/mcp").or(name.strip_suffix("/mcp/"))?;
    (!name.contains('/')).then_some(name)
}

impl Routes for Table {
    fn find(&self, asked: &Asked<'_>) -> Found {
        if let Some(found) = self.about(asked) {
            return found;
        }
        if let Some(found) = self.hosts.get().and_then(|hosts| hosts.of(asked.path)) {
            return found;
        }
        let id = asked.id;
        let Some(name) = service_of(asked.path) else { return not_found(id) };
        let routes = self.routes.load();
        let Some(route) = routes.get(name) else {
            let more = json!({"service": name});
            return problem(
                id,
                StatusCode::NOT_FOUND,
                "no-such-service",
                "no service has this name",
                &more,
                Vec::new(),
            );
        };
        if !METHODS.contains(asked.method) {
            return not_allowed(id, ALLOWED);
        }
        if browser::would_show(asked.headers) {
            let detail = "a route is for MCP clients: a browser may not show or run what a server answers";
            return problem(
                id,
                StatusCode::FORBIDDEN,
                "not-for-browsers",
                detail,
                &json!({"service": name}),
                Vec::new(),
            );
        }
        match (route.state, &route.target) {
            (State::Enabled, Some(target)) => Found::Upstream(target.clone()),
            (state, _) => {
                let detail = match state {
                    State::DisabledAdmin => "route disabled by the configuration",
                    State::Enabled | State::Pending | State::DisabledDrift => "route disabled pending review",
                };
                let more = json!({"reason": route.reason, "service": name, "since": route.since, "state": state});
                problem(id, StatusCode::SERVICE_UNAVAILABLE, "route-disabled", detail, &more, Vec::new())
            }
        }
    }

    fn witness(&self, asked: &Asked<'_>) -> Box<dyn Witness> {
        let service = service_of(asked.path).and_then(|name| Some((name.to_owned(), self.metrics.of(name)?)));
        Box::new(Request::begins(self.log.clone(), asked, service))
    }
}

fn not_found(id: &str) -> Found {
    let detail = "there is nothing here; the servers are at /SERVICE/mcp";
    problem(id, StatusCode::NOT_FOUND, "not-found", detail, &json!({}), Vec::new())
}

/// The same for everybody.
fn public(found: Found) -> Found {
    match found {
        Found::Answer { reply, headers, .. } => Found::Answer { reply, headers, public: true },
        found @ (Found::Upstream(_) | Found::Host(_)) => found,
    }
}

fn not_allowed(id: &str, allowed: &'static str) -> Found {
    let allow = (header::ALLOW, HeaderValue::from_static(allowed));
    let detail = format!("this method is not for a route; there are {allowed}");
    problem(id, StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", &detail, &json!({}), vec![allow])
}

/// A problem document (RFC 9457). It has an id, by which the log says of it, too.
fn problem(
    id: &str,
    status: StatusCode,
    word: &str,
    detail: &str,
    more: &Value,
    headers: Vec<(HeaderName, HeaderValue)>,
) -> Found {
    tracing::info!(status = status.as_u16(), problem = word, request_id = id, service = %more["service"], "refused");
    let mut body = json!({
        "detail": detail, "request_id": id, "status": status.as_u16(), "title": status.canonical_reason(),
        "type": format!("urn:assay:problem:{word}"),
    });
    if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
        body.extend(more.clone());
    }
    match answer(status, &body, headers, false) {
        Found::Answer { reply, headers, public } => {
            let content_type = HeaderValue::from_static("application/problem+json");
            Found::Answer { reply: OwnReply { content_type, ..reply }, headers, public }
        }
        found @ (Found::Upstream(_) | Found::Host(_)) => found,
    }
}

fn answer(status: StatusCode, body: &Value, mut headers: Vec<(HeaderName, HeaderValue)>, public: bool) -> Found {
    headers.push((header::CACHE_CONTROL, HeaderValue::from_static("no-store")));
    let content_type = HeaderValue::from_static("application/json");
    let reply = OwnReply { status, content_type, body: Bytes::from(format!("{body}\n")) };
    Found::Answer { reply, headers, public }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;

    fn ask(table: &Table, method: &Method, path: &str) -> (u16, Value, Vec<(HeaderName, HeaderValue)>) {
        let headers = HeaderMap::new();
        match table.find(&Asked { method, path, headers: &headers, id: "a1" }) {
            Found::Answer { reply, headers, .. } => {
                (reply.status.as_u16(), serde_json::from_slice(&reply.body).unwrap(), headers)
            }
            Found::Upstream(_) | Found::Host(_) => panic!("{path} is open"),
        }
    }

    #[test]
    fn what_goes_nowhere_is_told_why() {
        let table = Table::default();
        let route = |state| Route { state, reason: Some("2 changes".into()), since: "then".into(), target: None };
        for (name, state) in [("a", State::DisabledDrift), ("b", State::DisabledAdmin), ("c", State::Enabled)] {
            table.put(name, &route(state));
        }
        for (method, path, status, word) in [
            (Method::POST, "/a/mcp", 503, "route-disabled"),
            (Method::GET, "/b/mcp/", 503, "route-disabled"),
            // Nothing is recorded of it.
            (Method::POST, "/c/mcp", 503, "route-disabled"),
            (Method::PUT, "/a/mcp", 405, "method-not-allowed"),
            (Method::POST, "/d/mcp", 404, "no-such-service"),
            (Method::POST, "/mcp", 404, "not-found"),
            (Method::POST, "//mcp", 404, "no-such-service"),
            (Method::GET, "/", 404, "not-found"),
            (Method::POST, "/a/b/mcp", 404, "not-found"),
            (Method::POST, "/a/mcp/x", 404, "not-found"),
            (Method::POST, "/livez", 405, "method-not-allowed"),
        ] {
            let (was, body, headers) = ask(&table, &method, path);
            assert_eq!((was, &body["type"]), (status, &json!(format!("urn:assay:problem:{word}"))), "{method} {path}");
            assert!(headers.contains(&(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))));
            assert_eq!(headers.iter().any(|(name, _)| *name == header::ALLOW), status == 405);
            assert_eq!(body["request_id"], "a1");
        }
        let (_, body, _) = ask(&table, &Method::POST, "/a/mcp");
        assert_eq!(body["detail"], "route disabled pending review");
        assert_eq!(
            (&body["service"], &body["reason"], &body["since"]),
            (&json!("a"), &json!("2 changes"), &json!("then"))
        );
        let shown = [(HeaderName::from_static("sec-fetch-dest"), HeaderValue::from_static("iframe"))];
        let headers = shown.into_iter().collect();
        let asked = Asked { method: &Method::GET, path: "/c/mcp", headers: &headers, id: "a1" };
        let Found::Answer { reply, public: false, .. } = table.find(&asked) else { panic!() };
        assert_eq!(reply.status, StatusCode::FORBIDDEN);
        table.remove("a");
        assert_eq!(ask(&table, &Method::POST, "/a/mcp").0, 404);
    }

    #[test]
    fn metrics_are_for_who_may_read_them() {
        let table = Table::default();
        let ask = |given: &str| {
            let mut headers = HeaderMap::new();
            if let Ok(given) = HeaderValue::from_str(given) {
                headers.insert(header::AUTHORIZATION, given);
            }
            let asked = Asked { method: &Method::GET, path: "/metrics", headers: &headers, id: "a1" };
            let Found::Answer { reply, .. } = table.find(&asked) else { panic!() };
            (reply.status.as_u16(), reply.content_type, reply.body)
        };
        assert_eq!(ask("").0, 404);
        let token = "0123456789abcdef0123456789abcdef";
        table.set_readers(Readers::With(Token::checked(token).unwrap()));
        assert_eq!((ask("").0, ask(token).0, ask("Bearer x").0), (401, 401, 401));
        assert_eq!(ask(&format!("bearer {token}")).0, 200);
        table.set_readers(Readers::All);
        let (status, kind, body) = ask("");
        assert_eq!((status, kind.to_str().unwrap()), (200, "text/plain; version=0.0.4; charset=utf-8"));
        assert!(body.starts_with(b"# HELP "), "{body:?}");
    }

    #[test]
    fn health_says_what_is_missing() {
        let table = Table::default();
        assert_eq!(ask(&table, &Method::GET, "/livez").1["status"], "ok");
        assert_eq!(ask(&table, &Method::GET, "/readyz").0, 200);
        table.set_ready(Ready { registry: true, evidence: false, config: true });
        let (status, body, _) = ask(&table, &Method::GET, "/readyz");
        assert_eq!((status, &body["evidence"], &body["registry"]), (503, &json!("failed"), &json!("ok")));
        assert_eq!(ask(&table, &Method::GET, "/livez").0, 200);
    }
}
