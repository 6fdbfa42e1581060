//! The pages of the gateway, asked for as a browser without JavaScript does.

use crate::{
    gateway::{Gateway, JSON, Upstream, request, service},
    gateway_api::{token, tool, url},
    process::{call, result},
    rig::{End, Message},
};
use serde_json::json;
use std::fs;

/// A browser: it keeps one cookie and the page it is on.
struct Browser<'a> {
    gateway: &'a Gateway,
    cookie: String,
}

fn field(page: &str, name: &str) -> String {
    let mark = format!("name=\"{name}\" value=\"");
    let (_, rest) = page.split_once(&mark).unwrap_or_else(|| panic!("no {name} in {page}"));
    rest.split('"').next().unwrap().to_owned()
}

fn form(fields: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

impl<'a> Browser<'a> {
    fn new(gateway: &'a Gateway) -> Self {
        Self { gateway, cookie: String::new() }
    }

    #[track_caller]
    fn logged_in(gateway: &'a Gateway, token: &str) -> Self {
        let mut browser = Self::new(gateway);
        let answer = browser.post("/ADMIN/login", &[("token", token)]);
        assert_eq!((answer.status(), answer.header("location")), (303, Some("/ADMIN/")), "{}", answer.text());
        browser
    }

    fn send(&mut self, line: &str, more: &str, body: &str) -> Message {
        let cookie = if self.cookie.is_empty() { String::new() } else { format!("Cookie: {}\r\n", self.cookie) };
        let more = format!("{cookie}Connection: close\r\n{more}");
        let answer = self.gateway.ask(&mut End::connect(self.gateway.at), line, &more, body);
        if let Some(cookie) = answer.header("set-cookie") {
            cookie.split(';').next().unwrap().clone_into(&mut self.cookie);
        }
        answer
    }

    #[track_caller]
    fn get(&mut self, path: &str) -> String {
        let answer = self.send(&format!("GET {path}"), "", "");
        assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"), "{path}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(
            (answer.header("cache-control"), answer.header("x-content-type-options")),
            (Some("no-store"), Some("nosniff"))
        );
        let page = answer.text();
        assert!(!page.contains(" style=") && !page.contains(" onclick"), "{path}: {page}");
        page
    }

    fn post_as(&mut self, path: &str, origin: &str, fields: &[(&str, &str)]) -> Message {
        let more = format!("{origin}Content-Type: application/x-www-form-urlencoded\r\n");
        self.send(&format!("POST {path}"), &more, &form(fields))
    }

    fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Message {
        let origin = format!("Origin: http://{}\r\nSec-Fetch-Site: same-origin\r\n", self.gateway.at);
        self.post_as(path, &origin, fields)
    }

    /// Sends a form that is on a page.
    #[track_caller]
    fn submit(&mut self, page: &str, path: &str, fields: &[(&str, &str)]) -> Message {
        let page = self.get(page);
        assert!(page.contains(&format!("action=\"{path}\"")), "{page}");
        let csrf = field(&page, "csrf");
        self.post(path, &[&[("csrf", csrf.as_str())], fields].concat())
    }
}

#[test]
fn who_is_not_logged_in_by_our_own_page_sees_and_changes_nothing() {
    let one = Upstream::start();
    let mut gateway = Gateway::start(&service("one", &one, ", check_frequency_minutes: 0"));
    gateway.opens("one");
    let mut nobody = Browser::new(&gateway);
    for path in ["/admin", "/ADMIN"] {
        let answer = nobody.send(&format!("GET {path}"), "", "");
        assert_eq!((answer.status(), answer.header("location")), (308, Some("/ADMIN/")), "{path}");
    }
    let answer = nobody.send("GET /ADMIN/services/one", "", "");
    assert_eq!((answer.status(), answer.header("location")), (303, Some("/ADMIN/login?next=%2Fservices%2Fone")));
    assert!(nobody.get("/ADMIN/login").contains("assay gateway token create"), "it says how to begin");
    for (file, kind) in [("admin.css", "text/css"), ("admin.js", "text/javascript"), ("icon.svg", "image/svg+xml")] {
        let answer = nobody.send(&format!("GET /ADMIN/{file}"), "", "");
        assert!(answer.status() == 200 && answer.header("content-type").unwrap().starts_with(kind), "{file}");
    }

    let (root, eve) = (token(&gateway, "root", "admin"), token(&gateway, "eve", "viewer"));
    // A token is good for logging in alone, and goes to none of our places but those that it asked for.
    let bearer = format!("Authorization: Bearer {root}\r\n");
    assert_eq!(nobody.send("GET /ADMIN/services/one", &bearer, "").status(), 303);
    assert_eq!(nobody.post("/ADMIN/login", &[("token", "wrong")]).status(), 401);
    assert!(nobody.cookie.is_empty());
    for (next, place) in [("//evil.example/", "/ADMIN/"), ("/services/one", "/ADMIN/services/one")] {
        let answer = Browser::new(&gateway).post("/ADMIN/login", &[("token", &root), ("next", next)]);
        assert_eq!(answer.header("location"), Some(place));
        let cookie = answer.header("set-cookie").unwrap();
        assert!(cookie.ends_with("; Path=/ADMIN/; HttpOnly; SameSite=Strict; Max-Age=43200"), "{cookie}");
        assert!(!answer.text().contains(&root) && !cookie.contains(&root));
    }
    let mut admin = Browser::logged_in(&gateway, &root);
    let page = admin.get("/ADMIN/services/one");
    // The API does not look at cookies.
    assert_eq!(admin.send("GET /api/admin/services", "", "").status(), 401);

    let csrf = field(&page, "csrf");
    let (check, at) = ("/ADMIN/services/one/check", gateway.at);
    let ours = format!("Origin: http://{at}\r\n");
    let viewer_csrf = field(&Browser::logged_in(&gateway, &eve).get("/ADMIN/"), "csrf");
    for (origin, given, status) in [
        (ours.clone(), "", 403),
        (ours.clone(), "x", 403),
        (ours.clone(), viewer_csrf.as_str(), 403),
        (String::new(), csrf.as_str(), 403),
        ("Origin: null\r\n".to_owned(), csrf.as_str(), 403),
        ("Origin: https://evil.example\r\n".to_owned(), csrf.as_str(), 403),
        (format!("Origin: http://localhost:{}\r\n", at.port()), csrf.as_str(), 403),
        (format!("{ours}Sec-Fetch-Site: same-site\r\n"), csrf.as_str(), 403),
        (format!("{ours}Sec-Fetch-Site: cross-site\r\n"), csrf.as_str(), 403),
        (ours.clone(), csrf.as_str(), 303),
    ] {
        assert_eq!(admin.post_as(check, &origin, &[("csrf", given)]).status(), status, "{origin} {given}");
    }
    let typed = admin.send(&format!("POST {check}"), &format!("{ours}{JSON}"), "{}");
    assert_eq!(typed.status(), 415);
    let mut rebound = End::connect(at);
    rebound.send(format!("GET /ADMIN/ HTTP/1.1\r\nHost: evil.example\r\nCookie: {}\r\n\r\n", admin.cookie));
    assert_eq!(rebound.message(false).status(), 403);

    // Who may only look sees no forms, and is refused all the same.
    let mut viewer = Browser::logged_in(&gateway, &eve);
    for path in ["/ADMIN/", "/ADMIN/services/one", "/ADMIN/services/one/diff", "/ADMIN/services/one/snapshots/1"] {
        let page = viewer.get(path);
        assert_eq!(page.matches("method=\"post\"").count(), 1, "{path} has more than logging out: {page}");
    }
    let csrf = field(&viewer.get("/ADMIN/"), "csrf");
    for path in ["/ADMIN/new", check, "/ADMIN/services/one/decide", "/ADMIN/services/one/delete"] {
        assert_eq!(viewer.post(path, &[("csrf", &csrf), ("decision", "approve")]).status(), 403, "{path}");
    }
    assert_eq!(viewer.send("GET /ADMIN/new", "", "").status(), 403);
    for (line, status) in [("GET /ADMIN/none", 404), ("DELETE /ADMIN/", 405), ("GET /ADMIN/services/none", 404)] {
        assert_eq!(viewer.send(line, "", "").status(), status, "{line}");
    }

    // Logging out, and taking the token away, end it.
    assert_eq!(admin.submit("/ADMIN/", "/ADMIN/logout", &[]).status(), 303);
    assert_eq!(admin.send("GET /ADMIN/", "", "").status(), 303);
    assert!(gateway.run(&["token", "revoke", "eve"]).status.success());
    assert_eq!(viewer.send("GET /ADMIN/", "", "").status(), 303);
    assert_eq!(viewer.post(check, &[("csrf", &csrf)]).status(), 401);

    // One limiter for tokens, however they are tried.
    let tries: Vec<u16> = (0..25).map(|_| nobody.post("/ADMIN/login", &[("token", "wrong")]).status()).collect();
    assert_eq!(tries[24], 429, "{tries:?}");
    assert_eq!(nobody.send("GET /api/admin/services", &bearer, "").status(), 429);
    assert_eq!(gateway.end(), Some(0), "{}", gateway.said());
    assert!(!gateway.said().contains(&root));
}

#[test]
fn a_person_makes_a_service_and_approves_what_was_shown() {
    let one = Upstream::start();
    one.offers(tool("reads <script>alert(1)</script>"));
    let mut gateway = Gateway::start("  {}\n");
    let mut admin = Browser::logged_in(&gateway, &token(&gateway, "root", "admin"));
    let at = url(&one);

    // What cannot be so is told at its field, and what was filled in is still there.
    let bad = [
        ("name", "made"),
        ("upstream_url", "http://x/?key=c4n4ry"),
        ("check_frequency_minutes", "4"),
        ("enabled", "on"),
    ];
    let answer = admin.submit("/ADMIN/new", "/ADMIN/new", &bad);
    let page = answer.text();
    assert_eq!(answer.status(), 422, "{page}");
    assert!(page.contains("href=\"#upstream_url\"") && page.contains("href=\"#check_frequency_minutes\""), "{page}");
    assert!(field(&page, "name") == "made" && page.matches("aria-invalid=\"true\"").count() == 2, "{page}");
    let good = [("name", "made"), ("upstream_url", at.as_str()), ("check_frequency_minutes", "0"), ("enabled", "on")];
    let answer = admin.submit("/ADMIN/new", "/ADMIN/new", &good);
    assert_eq!(
        (answer.status(), answer.header("location")),
        (303, Some("/ADMIN/services/made?done=made")),
        "{}",
        answer.text()
    );
    assert!(admin.get("/ADMIN/services/made?done=made").contains("The service is made."));
    assert!(!admin.get("/ADMIN/services/made?done=%3Cb%3E").contains("<b>"));
    let mut client = End::connect(gateway.at);
    assert_eq!(gateway.ask(&mut client, "POST /made/mcp", JSON, &call(1, "a")).text(), result(1));

    // What a server says is text, with what is hidden in it visible.
    one.offers(tool("reads <script>alert(1)</script>\u{202e} and sends"));
    let answer = admin.submit("/ADMIN/services/made", "/ADMIN/services/made/check", &[]);
    assert_eq!(answer.header("location"), Some("/ADMIN/services/made?done=differs"));
    assert!(admin.get("/ADMIN/").contains("disabled drift"));
    let shown = admin.get("/ADMIN/services/made/diff");
    assert!(!shown.contains("<script>alert") && shown.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{shown}");
    assert!(shown.contains("⟨U+202E⟩") && !shown.contains('\u{202e}') && shown.contains("<ins>"), "{shown}");
    let snapshot = admin.get("/ADMIN/services/made/snapshots/2");
    assert!(
        snapshot.contains("⟨U+202E⟩") && !snapshot.contains('\u{202e}') && snapshot.contains("(the latest)"),
        "{snapshot}"
    );
    assert!(admin.get("/ADMIN/services/made/snapshots").contains("unapproved"));
    assert!(admin.get("/ADMIN/services/made/diff?from=1&to=2").contains("<ins>"));

    // It changes after it was shown: nothing is approved.
    let (csrf, hash) = (field(&shown, "csrf"), field(&shown, "hash"));
    one.offers(tool("deletes"));
    admin.submit("/ADMIN/services/made", "/ADMIN/services/made/check", &[]);
    let decide = "/ADMIN/services/made/decide";
    let approve = [("csrf", csrf.as_str()), ("hash", hash.as_str()), ("decision", "approve"), ("reason", "seen")];
    let answer = admin.post(decide, &approve);
    assert!(answer.status() == 409 && answer.text().contains("It changed meanwhile"), "{}", answer.text());
    assert_eq!(gateway.closed("made").as_deref(), Some("disabled_drift"));
    let hash = field(&admin.get("/ADMIN/services/made/diff"), "hash");
    let none = admin.post(decide, &[("csrf", &csrf), ("hash", &hash), ("decision", "block")]);
    assert!(none.status() == 422 && none.text().contains("tick at least one"), "{}", none.text());
    let approve =
        [("csrf", csrf.as_str()), ("hash", hash.as_str()), ("decision", "approve"), ("reason", "two\r\nlines")];
    let answer = admin.post(decide, &approve);
    assert_eq!(answer.header("location"), Some("/ADMIN/services/made?done=approved"), "{}", answer.text());
    gateway.opens("made");
    let approvals = fs::read_to_string(gateway.home.path().join("data/evidence/made/surface/approvals.jsonl")).unwrap();
    assert!(approvals.contains(r#""name":"root","via":"ui""#) && approvals.contains(r"two\nlines"), "{approvals}");
    let block = [("csrf", csrf.as_str()), ("hash", &hash), ("decision", "block"), ("item", "tools%2Fa")];
    assert_eq!(admin.post(decide, &block).header("location"), Some("/ADMIN/services/made?done=blocked"));
    assert!(gateway.closed("made").is_some());
    let again = [("csrf", csrf.as_str()), ("hash", &hash), ("decision", "approve-some"), ("item", "tools%2Fa")];
    assert_eq!(admin.post(decide, &again).status(), 303);
    gateway.opens("made");

    // Edited and removed as it was shown.
    let edit = "/ADMIN/services/made/edit";
    let page = admin.get(edit);
    let version = field(&page, "version");
    let fields = [("version", version.as_str()), ("upstream_url", at.as_str()), ("check_frequency_minutes", "1440")];
    let answer = admin.submit(edit, edit, &fields);
    assert_eq!(answer.header("location"), Some("/ADMIN/services/made?done=changed"), "{}", answer.text());
    assert_eq!(gateway.service("made")["check_frequency_minutes"], json!(1440));
    assert_eq!(admin.submit(edit, edit, &fields).status(), 412, "it is another one now");
    for (below, state) in [("disable", "disabled_admin"), ("enable", "enabled")] {
        let path = format!("/ADMIN/services/made/{below}");
        assert_eq!(admin.submit("/ADMIN/services/made", &path, &[]).status(), 303);
        crate::gateway::until(|| gateway.service("made")["state"] == state);
    }
    let log = admin.get("/ADMIN/audit");
    for wanted in ["user:root", "service_added", "surface_approved", "surface_blocked", "service_changed"] {
        assert!(log.contains(wanted), "{wanted}: {log}");
    }
    assert!(admin.get("/ADMIN/audit?limit=1").contains("rel=\"next\""));
    let remove = "/ADMIN/services/made/delete";
    assert_eq!(admin.post(remove, &[("csrf", &csrf), ("version", &version)]).status(), 412);
    let version = field(&admin.get(remove), "version");
    assert_eq!(admin.submit(remove, remove, &[("version", &version)]).header("location"), Some("/ADMIN/?done=removed"));
    assert!(admin.get("/ADMIN/").contains("no services yet"));
    assert_eq!(gateway.end(), Some(0), "{}", gateway.said());
}

#[test]
fn sessions_are_shown_with_their_calls_and_packs_are_verified_and_downloaded() {
    let one = Upstream::start();
    let mut gateway = Gateway::start(&service("one", &one, ", check_frequency_minutes: 0"));
    gateway.opens("one");
    let mut viewer = Browser::logged_in(&gateway, &token(&gateway, "eve", "viewer"));
    let session = |n: u64| format!("{JSON}Mcp-Session-Id: s{n}\r\nMCP-Protocol-Version: 2025-11-25\r\n");
    let mut client = End::connect(gateway.at);
    gateway.ask(&mut client, "POST /one/mcp", &session(1), &call(1, "a"));
    let mut slow = End::connect(gateway.at);
    slow.send(request(gateway.at, "POST /one/mcp", &session(1), &call(2, "slow")));
    let mut live = String::new();
    crate::gateway::until(|| {
        let list = viewer.get("/ADMIN/services/one/sessions");
        let all =
            list.split("href=\"/ADMIN/services/one/sessions/").skip(1).map(|rest| rest.split('"').next().unwrap());
        let shown = all.map(|id| format!("/ADMIN/services/one/sessions/{id}")).find(|path| {
            let page = viewer.get(path);
            page.contains("<code>slow</code>") && page.contains(">running<") && page.contains(">allowed<")
        });
        shown.is_some_and(|path| {
            live = path;
            true
        })
    });
    assert!(viewer.get(&live).contains("data-refresh=\"2\""));
    drop((slow, client));
    assert_eq!(gateway.end(), Some(0), "{}", gateway.said());

    let home = std::mem::replace(&mut gateway.home, tempfile::tempdir().unwrap());
    let mut gateway = Gateway::again(home, &service("one", &one, ", check_frequency_minutes: 0"));
    let token = token(&gateway, "bob", "viewer");
    let mut viewer = Browser::logged_in(&gateway, &token);
    assert!(viewer.get(&live).contains("<code>slow</code>"), "the pack has its calls");
    let pack = live.replace("/sessions/", "/packs/");
    let list = viewer.get("/ADMIN/services/one/packs");
    assert!(list.contains(&format!("href=\"{pack}\"")), "{list}");
    let report = viewer.get(&pack);
    assert!(report.contains("PASS") && report.contains("UNPINNED"), "{report}");
    let archive = viewer.send(&format!("GET {pack}/download"), "", "");
    assert_eq!((archive.status(), archive.header("content-type")), (200, Some("application/gzip")));
    let file = gateway.home.path().join("pack.tar.gz");
    fs::write(&file, &archive.body).unwrap();
    let verified =
        crate::gateway::command(gateway.home.path(), &["verify-pack", file.to_str().unwrap()]).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    assert_eq!(viewer.send(&format!("GET {}", pack.replace("/packs/", "/packs/x")), "", "").status(), 404);
    assert_eq!(gateway.end(), Some(0), "{}", gateway.said());
}
