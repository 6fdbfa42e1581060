//! How all pages look.

use super::{Viewer, text::line};
use crate::{
    gateway::api::{
        auth::Role,
        problem::Problem,
        reply::{asked, whole},
    },
    relay::http::host::Hosted,
};
use http::{HeaderValue, Response, StatusCode, Uri, header};
use maud::{DOCTYPE, Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

/// A part of a path or of a query.
#[must_use]
pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// The page of a service, or one below it.
#[must_use]
pub fn of_service(name: &str, below: &str) -> String {
    format!("/ADMIN/services/{}{below}", encoded(name))
}

/// A path of ours to which somebody is sent after logging in; `path` counts from `/ADMIN`.
#[must_use]
pub fn own_path(path: &str) -> Option<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.' | '%');
    let is_path = path.starts_with('/') && !path.starts_with("//") && path.chars().all(plain);
    // Browsers resolve `..` and `%2e%2e`.
    let resolved = Url::parse(&format!("http://host/ADMIN{path}")).ok().filter(|_| is_path)?;
    (resolved.path().starts_with("/ADMIN/") && !path.contains("//")).then_some(path)
}

/// An answer that is a page.
pub fn html_of(status: StatusCode, markup: Markup) -> Response<Hosted> {
    let mut response = Response::new(whole(markup.into_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

/// Where to look after a form was sent.
pub fn see_other(to: &str) -> Response<Hosted> {
    super::moved(StatusCode::SEE_OTHER, to)
}

/// A page. `refresh`: seconds after which the parts of it that are marked `data-live` are renewed.
pub struct Page<'a> {
    /// What it is, in a few words.
    pub title: &'a str,
    /// The service that it is about.
    pub service: Option<&'a str>,
    /// Seconds between renewals.
    pub refresh: Option<u32>,
}

impl Page<'_> {
    /// One that is not renewed.
    #[must_use]
    pub const fn of(title: &str) -> Page<'_> {
        Page { title, service: None, refresh: None }
    }

    /// Writes it.
    pub fn show(&self, viewer: Option<&Viewer>, status: StatusCode, body: &Markup) -> Response<Hosted> {
        let title = self.service.map_or_else(|| self.title.to_owned(), |name| format!("{}: {name}", self.title));
        let markup = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (title) " · assay gateway" }
                    link rel="stylesheet" href="/ADMIN/admin.css";
                    link rel="icon" type="image/svg+xml" href="/ADMIN/icon.svg";
                    script defer src="/ADMIN/admin.js" {}
                }
                body data-refresh=[self.refresh] {
                    a .skip href="#main" { "Skip to the content" }
                    header {
                        strong { "assay gateway" }
                        @if let Some(viewer) = viewer {
                            nav aria-label="Pages" {
                                a href="/ADMIN/" { "Services" }
                                a href="/ADMIN/audit" { "Audit log" }
                            }
                            form .who method="post" action="/ADMIN/logout" {
                                (csrf(viewer))
                                span { (line(&viewer.who.name)) " (" (viewer.who.role.as_str()) ")" }
                                button .plain type="submit" { "Log out" }
                            }
                        }
                    }
                    main #main tabindex="-1" {
                        @if let (Some(name), Some(_)) = (self.service, viewer) { (trail(name, self.title)) }
                        h1 { (line(&title)) }
                        (body)
                    }
                }
            }
        };
        html_of(status, markup)
    }
}

/// The pages of a service.
fn trail(name: &str, title: &str) -> Markup {
    let pages = [
        ("", "Service"),
        ("/diff", "What differs"),
        ("/snapshots", "Snapshots"),
        ("/sessions", "Sessions"),
        ("/packs", "Packs"),
    ];
    html! {
        nav .trail aria-label="Pages of the service" {
            @for (below, word) in pages {
                a href=(of_service(name, below)) aria-current=[(word == title).then_some("page")] { (word) }
            }
        }
    }
}

/// What a form carries, so that only our own pages can send it.
#[must_use]
pub fn csrf(viewer: &Viewer) -> Markup {
    html! { input type="hidden" name="csrf" value=(viewer.csrf); }
}

/// A form that is one button.
#[must_use]
pub fn button(viewer: &Viewer, action: &str, word: &str) -> Markup {
    html! {
        form method="post" action=(action) {
            (csrf(viewer))
            button type="submit" { (word) }
        }
    }
}

/// Whether somebody may do what needs a role; where not, they see no form for it.
#[must_use]
pub fn may(viewer: &Viewer, role: Role) -> bool {
    viewer.who.may(role).is_ok()
}

/// A time, as it is kept (RFC 3339).
#[must_use]
pub fn time(at: Option<&str>) -> Markup {
    html! {
        @match at {
            Some(at) if !at.is_empty() => {
                @let (day, rest) = at.split_once('T').unwrap_or((at, ""));
                time datetime=(at) { (line(day)) " " (line(rest.split('.').next().unwrap_or_default().trim_end_matches('Z'))) " UTC" }
            }
            _ => { span .soft { "never" } }
        }
    }
}

/// A state, in a word and a colour.
#[must_use]
pub fn state(word: &str) -> Markup {
    let kind = match word {
        "enabled" | "ok" | "complete" | "identical" | "equivalent" | "user_approved" | "system_approved"
        | "approved" | "first_use" | "PASS" | "COMPLETE" | "PINNED" | "forwarded" | "allowed" => "good",
        "disabled_drift" | "unreachable" | "failed" | "changed" | "blocked" | "ambiguous" | "TAMPERED"
        | "HONEST_FAIL" | "UNTRUSTED" | "denied" | "error" | "timeout" | "fail" | "high" | "critical" | "died" => "bad",
        "pending" | "failing" | "incomplete" | "new" | "unapproved" | "INCOMPLETE" | "UNTERMINATED" | "UNSUPPORTED"
        | "UNPINNED" | "medium" | "live" | "running" | "sealing" => "open",
        _ => "plain",
    };
    let said = word.replace('_', " ");
    html! { span class={ "state " (kind) } { (line(&said)) } }
}

/// A page of a list, and the way to the next one.
///
/// # Errors
/// A part that there is not.
pub fn part<T>(
    uri: &Uri,
    all: Vec<T>,
    cursor: impl Fn(&T) -> String,
    after: impl Fn(&T, &str) -> bool,
) -> Result<(Vec<T>, Markup), Problem> {
    let asked = asked(uri)?;
    let mut all = all;
    if let Some(last) = &asked.cursor {
        let at = all.iter().position(|one| after(one, last)).unwrap_or(all.len());
        all.drain(..at);
    }
    let more = all.len() > asked.limit as usize;
    all.truncate(asked.limit as usize);
    let next = all.last().filter(|_| more).map(cursor);
    Ok((all, further(uri, asked.limit, next.as_deref(), asked.cursor.is_some())))
}

/// The way to the next page of a list, and back to the first one.
#[must_use]
pub fn further(uri: &Uri, limit: u32, next: Option<&str>, is_later: bool) -> Markup {
    html! {
        @if next.is_some() || is_later {
            nav .further aria-label="Pages of the list" {
                @if is_later { a href=(uri.path()) { "First page" } }
                @if let Some(next) = next {
                    a rel="next" href={ (uri.path()) "?limit=" (limit) "&cursor=" (encoded(next)) } { "Next page" }
                }
            }
        }
    }
}

/// What is refused, in words.
#[must_use]
pub fn said(problem: &Problem) -> Markup {
    html! {
        div .note .bad role="alert" {
            p { (line(&problem.detail)) "." }
            @if !problem.errors.is_empty() {
                ul {
                    @for fault in &problem.errors {
                        @let field = fault.pointer.trim_start_matches('/').split('/').next().unwrap_or_default();
                        li { a href={ "#" (field) } { (line(&fault.pointer)) } " " (line(&fault.detail)) }
                    }
                }
            }
        }
    }
}

/// The page of what is refused.
pub fn problem(viewer: Option<&Viewer>, problem: &Problem) -> Response<Hosted> {
    let title = problem.status.canonical_reason().unwrap_or("It did not work");
    let body = html! {
        (said(problem))
        p { a href="/ADMIN/" { "Services" } }
    };
    let mut response = Page::of(title).show(viewer, problem.status, &body);
    // A browser must not ask for a token by itself.
    let more = problem.headers.iter().filter(|(name, _)| *name != header::WWW_AUTHENTICATE);
    response.headers_mut().extend(more.cloned());
    response
}

/// The page on which somebody logs in.
pub fn login(status: StatusCode, next: &str, said: Option<&str>) -> Response<Hosted> {
    let body = html! {
        @if let Some(said) = said { p .note .bad role="alert" { (said) } }
        form .fields method="post" action="/ADMIN/login" {
            input type="hidden" name="next" value=[own_path(next)];
            label for="token" { "Token" }
            input #token name="token" type="password" required autocomplete="current-password" autofocus;
            button type="submit" { "Log in" }
        }
        p .soft { "A login ends after an hour without use, and after twelve hours." }
    };
    Page::of("Log in").show(None, status, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_elsewhere() {
        for bad in [
            "",
            "//evil.example",
            "https://evil.example",
            "/a?b",
            "/\\evil.example",
            "/a\n",
            "x",
            "/../x",
            "/a/../../x",
            "/%2e%2E/x",
            "/.%2e",
            "/..",
        ] {
            assert_eq!(own_path(bad), None, "{bad:?}");
        }
        assert_eq!(own_path("/services/a%20b"), Some("/services/a%20b"));
        assert_eq!(of_service("a/../b", "/diff"), "/ADMIN/services/a%2F%2E%2E%2Fb/diff");
    }

    #[test]
    fn a_list_is_shown_in_parts() {
        let part = |uri: &str| {
            let uri: Uri = uri.parse().unwrap();
            let all = vec!["a", "b", "c"];
            let (items, next) = part(&uri, all, |s| (*s).to_owned(), |s, last| *s > last).unwrap();
            (items.join(""), next.into_string())
        };
        assert_eq!(part("/x"), ("abc".to_owned(), String::new()));
        let (items, next) = part("/x?limit=2");
        assert!(items == "ab" && next.contains("href=\"/x?limit=2&amp;cursor=b\""), "{next}");
        let (items, next) = part("/x?limit=2&cursor=b");
        assert!(items == "c" && !next.contains("Next") && next.contains("First page"), "{next}");
    }
}
