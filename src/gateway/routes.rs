//! The routes: a table in memory that every request is looked up in. Nothing else is on the way of a request.

use super::{api::Admin, registry::State};
use crate::relay::http::{
    host::Host,
    review::OwnReply,
    route::{Found, Routes, Target},
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

/// All routes.
pub struct Table {
    routes: ArcSwap<BTreeMap<String, Route>>,
    ready: ArcSwap<Ready>,
    /// The API, where it is beside the routes.
    host: OnceLock<Arc<dyn Host>>,
}

/// The API alone.
pub struct AdminRoutes {
    /// What answers.
    pub host: Arc<dyn Host>,
    /// What is known of health.
    pub table: Arc<Table>,
}

impl Routes for AdminRoutes {
    fn find(&self, method: &Method, path: &str) -> Found {
        if Admin::has(path) {
            return Found::Host(self.host.clone());
        }
        if is_health(path) {
            return self.table.health(method, path);
        }
        let detail = "there is nothing here; the API is at /api/admin";
        problem(StatusCode::NOT_FOUND, "not-found", detail, &json!({}), Vec::new())
    }
}

fn is_health(path: &str) -> bool {
    matches!(path, "/livez" | "/readyz")
}

impl Default for Table {
    fn default() -> Self {
        let ready = Ready { registry: true, evidence: true, config: true };
        Self { routes: ArcSwap::default(), ready: ArcSwap::from_pointee(ready), host: OnceLock::new() }
    }
}

impl Table {
    /// The API is beside the routes.
    pub fn set_host(&self, host: Arc<dyn Host>) {
        // There is one for the life of a process.
        let _ = self.host.set(host);
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

    fn health(&self, method: &Method, path: &str) -> Found {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return not_allowed("GET, HEAD");
        }
        if path == "/livez" {
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

impl Routes for Table {
    fn find(&self, method: &Method, path: &str) -> Found {
        if is_health(path) {
            return self.health(method, path);
        }
        if let Some(host) = self.host.get().filter(|_| Admin::has(path)) {
            return Found::Host(host.clone());
        }
        let name = path.strip_prefix('/').and_then(|rest| rest.strip_suffix("/mcp").or(rest.strip_suffix("/mcp/")));
        let Some(name) = name.filter(|name| !name.contains('/')) else {
            let detail = "there is nothing here; the servers are at /SERVICE/mcp";
            return problem(StatusCode::NOT_FOUND, "not-found", detail, &json!({}), Vec::new());
        };
        let routes = self.routes.load();
        let Some(route) = routes.get(name) else {
            let more = json!({"service": name});
            return problem(StatusCode::NOT_FOUND, "no-such-service", "no service has this name", &more, Vec::new());
        };
        if !METHODS.contains(method) {
            return not_allowed(ALLOWED);
        }
        match (route.state, &route.target) {
            (State::Enabled, Some(target)) => Found::Upstream(target.clone()),
            (state, _) => {
                let detail = match state {
                    State::DisabledAdmin => "route disabled by the configuration",
                    State::Enabled | State::Pending | State::DisabledDrift => "route disabled pending review",
                };
                let more = json!({"reason": route.reason, "service": name, "since": route.since, "state": state});
                problem(StatusCode::SERVICE_UNAVAILABLE, "route-disabled", detail, &more, Vec::new())
            }
        }
    }
}

fn not_allowed(allowed: &'static str) -> Found {
    let allow = (header::ALLOW, HeaderValue::from_static(allowed));
    let detail = format!("this method is not for a route; there are {allowed}");
    problem(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", &detail, &json!({}), vec![allow])
}

/// A problem document (RFC 9457). It has an id, by which the log says of it, too.
fn problem(
    status: StatusCode,
    word: &str,
    detail: &str,
    more: &Value,
    headers: Vec<(HeaderName, HeaderValue)>,
) -> Found {
    let id = request_id();
    tracing::info!(status = status.as_u16(), problem = word, request_id = id, service = %more["service"], "refused");
    let mut body = json!({
        "detail": detail, "request_id": id, "status": status.as_u16(), "title": status.canonical_reason(),
        "type": format!("urn:assay:problem:{word}"),
    });
    if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
        body.extend(more.clone());
    }
    let mut headers = headers;
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.push((HeaderName::from_static("x-request-id"), id));
    }
    match answer(status, &body, headers, false) {
        Found::Answer { reply, headers, public } => {
            let content_type = HeaderValue::from_static("application/problem+json");
            Found::Answer { reply: OwnReply { content_type, ..reply }, headers, public }
        }
        found @ (Found::Upstream(_) | Found::Host(_)) => found,
    }
}

fn request_id() -> String {
    let mut bytes = [0; 8];
    // Without random numbers it is less of a help, and no less true.
    let _ = getrandom::fill(&mut bytes);
    hex::encode(bytes)
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

    fn ask(table: &Table, method: &Method, path: &str) -> (u16, Value, Vec<(HeaderName, HeaderValue)>) {
        match table.find(method, path) {
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
            assert_eq!(body["request_id"].as_str().unwrap().len(), 16);
        }
        let (_, body, _) = ask(&table, &Method::POST, "/a/mcp");
        assert_eq!(body["detail"], "route disabled pending review");
        assert_eq!(
            (&body["service"], &body["reason"], &body["since"]),
            (&json!("a"), &json!("2 changes"), &json!("then"))
        );
        table.remove("a");
        assert_eq!(ask(&table, &Method::POST, "/a/mcp").0, 404);
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
