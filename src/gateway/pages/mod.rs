//! The pages of the gateway, under `/ADMIN/`: what the API has, for a person with a browser.
//!
//! They are whole without JavaScript, and do everything through the functions that the API uses. A browser shows a cookie and
//! nothing else; a token is good for logging in. Whatever a server says of itself is text, with what is hidden in it visible.
//!
//! | file | what |
//! |---|---|
//! | `logins` | who is logged in, and whether one of our own pages sent a form |
//! | `form` | fields of forms |
//! | `look` | how all pages look |
//! | `text` | text of others, and what differs in it |
//! | `services`, `surface`, `sessions`, `audit` | the pages |

mod audit;
mod form;
mod logins;
mod look;
mod services;
mod sessions;
mod surface;
mod text;

use self::{
    form::Fields,
    logins::{Login, Logins, Site},
    look::{html_of, see_other},
};
use crate::{
    gateway::api::{
        Api,
        auth::{Role, Who, digest},
        body::Unread,
        decoded, open_parts,
        problem::Problem,
        reply::whole,
    },
    relay::http::host::{Host, Hosted, Hosting, Peer},
};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use hyper::body::Incoming;
use std::{pin::Pin, sync::Arc, time::Instant};

/// Where the pages are.
const BASE: &str = "/ADMIN";
/// A header of requests that no person made: a page refreshes itself.
const REFRESH: &str = "assay-refresh";

/// Files of the pages.
const FILES: [(&str, &str, &str); 3] = [
    ("/admin.css", "text/css; charset=utf-8", include_str!("../../../assets/admin/admin.css")),
    ("/admin.js", "text/javascript; charset=utf-8", include_str!("../../../assets/admin/admin.js")),
    ("/icon.svg", "image/svg+xml", include_str!("../../../assets/admin/icon.svg")),
];

/// What every page may load: what is here.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Who looks at a page.
#[derive(Debug, Clone)]
pub struct Viewer {
    /// Who they are.
    pub who: Who,
    /// What their forms carry.
    pub csrf: Arc<str>,
}

/// A request for a page, of somebody who may see it.
pub struct Call {
    api: Arc<Api>,
    viewer: Viewer,
    uri: Uri,
    parts: Vec<String>,
    fields: Fields,
}

impl Call {
    /// As many parts as the pattern leaves open.
    fn take<const N: usize>(&mut self) -> Result<[String; N], Problem> {
        std::mem::take(&mut self.parts).try_into().map_err(|_| Problem::not_found("there is no such page"))
    }
}

type Answer = Result<Response<Hosted>, Problem>;
type Handler = fn(Call) -> Pin<Box<dyn Future<Output = Answer> + Send>>;

macro_rules! routes {
    ($($method:ident $pattern:literal $role:ident => $handler:path,)+) => {
        &[$((Method::$method, $pattern, Role::$role, |call| Box::pin($handler(call))),)+]
    };
}

/// The pages, and who may use each.
const ROUTES: &[(Method, &str, Role, Handler)] = routes! {
    GET "/" Viewer => services::list,
    GET "/new" Admin => services::new,
    POST "/new" Admin => services::create,
    GET "/services/{name}" Viewer => services::show,
    GET "/services/{name}/edit" Admin => services::edit,
    POST "/services/{name}/edit" Admin => services::change,
    POST "/services/{name}/check" Approver => services::check,
    POST "/services/{name}/enable" Admin => services::enable,
    POST "/services/{name}/disable" Admin => services::disable,
    GET "/services/{name}/delete" Admin => services::confirm,
    POST "/services/{name}/delete" Admin => services::remove,
    GET "/services/{name}/diff" Viewer => surface::diff,
    POST "/services/{name}/decide" Approver => surface::decide,
    GET "/services/{name}/snapshots" Viewer => surface::list,
    GET "/services/{name}/snapshots/{id}" Viewer => surface::show,
    GET "/services/{name}/sessions" Viewer => sessions::list,
    GET "/services/{name}/sessions/{id}" Viewer => sessions::show,
    GET "/services/{name}/packs" Viewer => sessions::packs,
    GET "/services/{name}/packs/{id}" Viewer => sessions::verified,
    GET "/services/{name}/packs/{id}/download" Viewer => sessions::download,
    GET "/audit" Viewer => audit::list,
};

/// Serves the pages.
pub struct Pages {
    api: Arc<Api>,
    logins: Arc<Logins>,
}

impl Pages {
    /// Over what the API is over.
    #[must_use]
    pub fn new(api: Arc<Api>) -> Self {
        Self { api, logins: Arc::default() }
    }

    /// Whether a path is one of ours.
    #[must_use]
    pub fn has(path: &str) -> bool {
        matches!(path, "/admin" | "/admin/" | BASE) || path.starts_with("/ADMIN/")
    }
}

impl Host for Pages {
    fn answer(&self, request: Request<Incoming>, from: &Peer, id: &str) -> Hosting {
        let asked = Asked { api: self.api.clone(), logins: self.logins.clone(), from: from.address.clone() };
        let id = id.to_owned();
        Box::pin(async move {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let (viewer, answer) = asked.answer(request).await;
            let actor = viewer.as_ref().map_or_else(String::new, |viewer| viewer.who.actor());
            let response = finished(answer.unwrap_or_else(|problem| look::problem(viewer.as_ref(), &problem)));
            let status = response.status().as_u16();
            tracing::info!(request_id = id, %method, path, status, actor, "a request for a page");
            response
        })
    }

    fn refuse(&self, status: StatusCode, why: &'static str, _id: &str) -> Response<Hosted> {
        finished(look::problem(None, &Problem::new(status, "forbidden", why)))
    }
}

/// What is needed to answer a request.
struct Asked {
    api: Arc<Api>,
    logins: Arc<Logins>,
    from: Arc<str>,
}

impl Asked {
    async fn answer(&self, request: Request<Incoming>) -> (Option<Viewer>, Answer) {
        let (head, body) = request.into_parts();
        let Some(path) = head.uri.path().strip_prefix(BASE).filter(|path| !path.is_empty()) else {
            return (None, Ok(moved(StatusCode::PERMANENT_REDIRECT, "/ADMIN/")));
        };
        let path = path.to_owned();
        let Some(site) = Site::of(&head) else { return (None, Err(Problem::bad("the request names no Host"))) };
        let method = if head.method == Method::HEAD { Method::GET } else { head.method.clone() };
        if let Some((_, kind, text)) = FILES.iter().find(|(name, ..)| *name == path) {
            return (None, if method == Method::GET { Ok(file(kind, text)) } else { Err(not_allowed("GET")) });
        }
        let by_person = !head.headers.contains_key(REFRESH);
        let cookie = site.cookie_in(&head.headers).map(str::to_owned);
        let login = cookie.as_ref().and_then(|id| self.logins.of(id, by_person, Instant::now()));
        // A token that was taken away takes its logins with it.
        let known = login.and_then(|login| {
            let who = self.api.keys.load().known(&login.token)?;
            Some((Viewer { who: Who { via: "ui", ..who }, csrf: login.csrf.clone() }, login))
        });
        let viewer = known.as_ref().map(|(viewer, _)| viewer.clone());
        let fields = async {
            site.is_own(&head.headers)?;
            Ok::<_, Problem>(Fields(Unread::new(head.headers.clone(), body).form().await?))
        };
        let answer = match (&method, path.as_str(), known) {
            (&Method::GET, "/login", Some(_)) => Ok(see_other("/ADMIN/")),
            (&Method::GET, "/login", None) => {
                let fields = Fields::of_query(&head.uri);
                Ok(look::login(StatusCode::OK, fields.one("next"), self.hint()))
            }
            (&Method::POST, "/login", _) => match fields.await {
                Ok(fields) => self.log_in(&site, &fields),
                Err(problem) => Err(problem),
            },
            (&Method::POST, "/logout", known) => match (fields.await, known, cookie) {
                (Err(problem), ..) => Err(problem),
                (Ok(fields), Some((_, login)), Some(id)) => self.is_of(&login, &fields).map(|()| {
                    self.logins.end(&id);
                    with_cookie(see_other("/ADMIN/login"), &site.cookie(None))
                }),
                _ => Ok(see_other("/ADMIN/login")),
            },
            (&Method::GET, _, None) => Ok(see_other(&format!("/ADMIN/login?next={}", look::encoded(&path)))),
            (_, _, None) => {
                let detail = "you are not logged in any more: nothing was done; log in and try again";
                Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail))
            }
            (_, _, Some((viewer, login))) => match route(&method, &path, &viewer.who) {
                Err(problem) => Err(problem),
                Ok((handler, parts)) => {
                    let fields = if method == Method::GET {
                        Ok(Fields::of_query(&head.uri))
                    } else {
                        fields.await.and_then(|fields| self.is_of(&login, &fields).map(|()| fields))
                    };
                    match fields {
                        Err(problem) => Err(problem),
                        Ok(fields) => {
                            let (api, uri) = (self.api.clone(), head.uri.clone());
                            handler(Call { api, viewer, uri, parts, fields }).await
                        }
                    }
                }
            },
        };
        (viewer, answer)
    }

    /// What somebody can do where no token is known.
    fn hint(&self) -> Option<&'static str> {
        let is_empty = self.api.keys.load().is_empty();
        is_empty
            .then_some("No token is set up yet. On the gateway's machine: assay gateway token create NAME --role admin")
    }

    fn log_in(&self, site: &Site, fields: &Fields) -> Answer {
        let now = Instant::now();
        self.api.failures.allow(&self.from, now)?;
        let token = fields.one("token").trim();
        let digest = digest(token);
        if self.api.keys.load().known(&digest).is_none() {
            self.api.failures.count(&self.from, now);
            let hint = Some(self.hint().unwrap_or("No token is this one."));
            return Ok(look::login(StatusCode::UNAUTHORIZED, fields.one("next"), hint));
        }
        let id = self.logins.begin(digest, now)?;
        let next =
            look::own_path(fields.one("next")).map_or_else(|| "/ADMIN/".to_owned(), |path| format!("{BASE}{path}"));
        Ok(with_cookie(see_other(&next), &site.cookie(Some(&id))))
    }

    /// Whether a form is one that was sent to this login. Who tries others is not listened to for a while.
    fn is_of(&self, login: &Login, fields: &Fields) -> Result<(), Problem> {
        let now = Instant::now();
        self.api.failures.allow(&self.from, now)?;
        if login.made(fields.one("csrf")) {
            return Ok(());
        }
        self.api.failures.count(&self.from, now);
        let detail = "this form is of another login: nothing was done; go back, load the page again and try again";
        Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail))
    }
}

/// The handler of a request, if somebody may use it, and the parts of its path.
fn route(method: &Method, path: &str, who: &Who) -> Result<(Handler, Vec<String>), Problem> {
    let matched = |(m, pattern, role, handler): &(Method, &'static str, Role, Handler)| {
        Some((m.clone(), *role, *handler, open_parts(pattern, path)?))
    };
    let of_path: Vec<_> = ROUTES.iter().filter_map(matched).collect();
    if of_path.is_empty() {
        return Err(Problem::not_found("there is no such page"));
    }
    let allowed = of_path.iter().map(|(m, ..)| m.as_str()).collect::<Vec<_>>().join(", ");
    let found = of_path.into_iter().find(|(m, ..)| m == method);
    let (_, role, handler, parts) = found.ok_or_else(|| not_allowed(&allowed))?;
    who.may(role)?;
    Ok((handler, decoded(&parts)?))
}

fn not_allowed(allowed: &str) -> Problem {
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", format!("there is {allowed}"));
    let allow = HeaderValue::from_str(allowed).map(|allow| (header::ALLOW, allow));
    Problem { headers: allow.into_iter().collect(), ..problem }
}

fn moved(status: StatusCode, to: &str) -> Response<Hosted> {
    let mut response = html_of(status, maud::html! { a href=(to) { (to) } });
    if let Ok(to) = HeaderValue::from_str(to) {
        response.headers_mut().insert(header::LOCATION, to);
    }
    response
}

fn with_cookie(mut response: Response<Hosted>, cookie: &str) -> Response<Hosted> {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

fn file(kind: &'static str, text: &'static str) -> Response<Hosted> {
    let mut response = Response::new(whole(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// The headers that every answer has.
fn finished(mut response: Response<Hosted>) -> Response<Hosted> {
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        // With no-referrer, browsers send `Origin: null` with our own forms.
        (header::REFERRER_POLICY, "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(role: Role, method: &Method, path: &str) -> Result<Vec<String>, u16> {
        let who = Who { name: "a".into(), role, auth: "token", via: "ui" };
        route(method, path, &who).map(|(_, parts)| parts).map_err(|p| p.status.as_u16())
    }

    #[test]
    fn who_looks_changes_nothing_and_who_approves_makes_nothing() {
        for (method, pattern, role, _) in ROUTES {
            let path = pattern.replace("{name}", "a%20b").replace("{id}", "7");
            for given in [Role::Viewer, Role::Approver, Role::Admin] {
                assert_eq!(may(given, method, &path).is_ok(), given >= *role, "{method} {path} {given:?}");
            }
            assert!(*method == Method::GET || *role > Role::Viewer, "{path}");
        }
        assert_eq!(may(Role::Viewer, &Method::GET, "/services/a%20b").unwrap(), ["a b"]);
        assert_eq!(may(Role::Admin, &Method::GET, "/none"), Err(404));
        assert_eq!(may(Role::Admin, &Method::DELETE, "/new"), Err(405));
        assert_eq!(may(Role::Viewer, &Method::POST, "/new"), Err(403));
    }

    #[test]
    fn the_script_is_small() {
        let (_, _, script) = FILES.iter().find(|(name, ..)| *name == "/admin.js").unwrap();
        assert!(script.len() <= 4096, "{}", script.len());
        assert!(Pages::has("/admin") && Pages::has("/ADMIN") && Pages::has("/ADMIN/x") && !Pages::has("/ADMINx"));
    }
}
