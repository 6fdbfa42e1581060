//! `deny_private_hosts`.

use super::*;
use crate::{
    model::CallAnomaly,
    policy::constraints::hosts::{self, Found, Resolve, is_public},
};
use std::{collections::HashMap, io, net::IpAddr, sync::Mutex};

/// All names are public but those below one.
struct Most;

impl Resolve for Most {
    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let private = host.ends_with("private.example");
        Ok(vec![if private { "127.0.0.1" } else { "93.184.216.34" }.parse().unwrap()])
    }
}

struct Names(HashMap<&'static str, Vec<&'static str>>);

impl Resolve for Names {
    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let addresses = self.0.get(host).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(addresses.iter().map(|a| a.parse().unwrap()).collect())
    }
}

fn dns() -> Dns {
    Dns::Test(Arc::new(Names(HashMap::from([
        ("example.com", vec!["93.184.216.34"]),
        ("b.c", vec!["93.184.216.34"]),
        ("xn--exmple-cua.com", vec!["93.184.216.34"]),
        ("mixed.example", vec!["93.184.216.34", "8.8.8.8", "10.0.0.1"]),
        ("private.example", vec!["127.0.0.1"]),
        ("mapped.example", vec!["::ffff:10.0.0.1"]),
        ("linklocal6.example", vec!["2606:2800:220:1::1", "fe80::1"]),
        ("127.0.0.1.nip.example", vec!["127.0.0.1"]),
        ("empty.example", vec![]),
        ("v6.example", vec!["2606:2800:220:1::1"]),
        ("both.example", vec!["2606:2800:220:1::1", "93.184.216.34"]),
    ]))))
}

fn with(dns: Dns) -> Evaluator {
    let policy = "version: \"1\"\ndefault: allow\nconstraints: {fetch: {deny_private_hosts: true}}\n";
    let policy = Arc::new(Policy::parse(policy.as_bytes(), "p").unwrap());
    Evaluator::new(policy, Arc::new(Surroundings { cwd: "/".into(), home: None, dns }))
}

#[test]
fn every_spelling_of_a_host() {
    let mut e = with(dns());
    let mut wrong = Vec::new();
    let mut cases = 0;
    for line in include_str!("hosts.txt").lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        cases += 1;
        let (expected, json) = line.split_once(' ').unwrap();
        let r = decide(&mut e, "fetch", Arguments::Raw(json.as_bytes()));
        let found = match (r.reason, r.unseen.contains(&CallAnomaly::RedirectsNotSeen)) {
            (Reason::Default, false) => "-",
            (Reason::Default, true) => "public",
            (Reason::DenyPrivateHosts | Reason::ArgumentsUnreadable, _) => "denied",
            (Reason::HostUnresolved, _) => "unresolved",
            _ => "?",
        };
        if found != expected {
            wrong.push(format!("{line}\n    gave {found}: {}", r.message));
        }
        if r.verdict == Verdict::Denied && !json.starts_with(['"', '[']) {
            assert!(r.rule == "constraints.fetch.deny_private_hosts", "{line}: {}", r.rule);
        }
    }
    assert!(wrong.is_empty(), "{} of {cases}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_was_not_seen_is_said() {
    let unseen = |dns, json: &str| {
        let decision = decide(&mut with(dns), "fetch", Arguments::Raw(json.as_bytes()));
        decision.unseen.iter().map(|word| word.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(unseen(dns(), r#"{"url":"http://example.com"}"#), ["dns_after_check", "redirects_not_seen"]);
    assert_eq!(unseen(dns(), r#"{"url":"http://8.8.8.8"}"#), ["redirects_not_seen"]);
    assert_eq!(unseen(Dns::Off, r#"{"url":"http://example.com"}"#), ["names_not_resolved", "redirects_not_seen"]);
    assert!(unseen(Dns::Off, r#"{"q":"x"}"#).is_empty());
    assert!(unseen(dns(), r#"{"url":"http://10.0.0.1"}"#).is_empty());
}

#[test]
fn a_resolver_that_hangs_is_a_denial_and_not_a_wait() {
    struct Hangs(Mutex<()>);
    impl Resolve for Hangs {
        fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            drop(self.0.lock());
            Ok(Vec::new())
        }
    }
    let hangs = Arc::new(Hangs(Mutex::new(())));
    let held = hangs.0.lock().unwrap();
    let dns = Dns::Test(hangs.clone());
    let found = hosts::check(br#"{"url":"http://a.example http://b.example"}"#, &dns, Duration::from_millis(20));
    assert!(matches!(&found, Ok(Found::Unresolved(m)) if m.contains("in time")), "{found:?}");
    drop(held);
    // More names than are looked up.
    let many: String = (0..40).map(|n| format!("http://h{n}.example ")).collect();
    let found = hosts::check(format!("{{\"q\":\"{many}\"}}").as_bytes(), &dns, Duration::from_millis(20));
    assert!(matches!(&found, Ok(Found::Unresolved(m)) if m.contains("more than 16")), "{found:?}");
}

#[test]
fn a_resolver_that_panics_is_a_denial() {
    struct Panics;
    impl Resolve for Panics {
        fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            panic!("of the test")
        }
    }
    let dns = Dns::Test(Arc::new(Panics));
    let found = hosts::check(br#"{"url":"http://a.example"}"#, &dns, Duration::from_secs(30)).unwrap();
    assert!(matches!(found, Found::Unresolved(_)), "{found:?}");
}

#[test]
fn a_message_names_the_host_and_nothing_else_of_the_arguments() {
    let json = br#"{"url":"http://me:hunter2@10.0.0.1/?token=hunter2","password":"hunter2"}"#;
    let r = decide(&mut with(dns()), "fetch", Arguments::Raw(json));
    assert_eq!(r.message, "the address 10.0.0.1 is not public");
    for json in [
        r#"{"url":"http://hunter2@10.0.0.1@example.com"}"#,
        r#"{"url":"http://10.0.0.1/\u001b[31m"}"#,
        r#"{"url":"http://\u001b[31mlocalhost/"}"#,
    ] {
        let r = decide(&mut with(dns()), "fetch", Arguments::Raw(json.as_bytes()));
        assert_eq!(r.verdict, Verdict::Denied, "{json}");
        assert!(!r.message.contains("hunter2") && !r.message.contains('\u{1b}'), "{}", r.message);
    }
}

#[test]
fn every_address_block_is_public_or_not_as_the_registries_say() {
    for line in "0.0.0.0 no|0.255.255.255 no|1.0.0.0 yes|9.255.255.255 yes|10.0.0.0 no|11.0.0.0 yes|100.63.255.255 yes|\
                 100.64.0.0 no|100.127.255.255 no|100.128.0.0 yes|126.255.255.255 yes|127.0.0.0 no|128.0.0.0 yes|\
                 169.253.255.255 yes|169.254.0.0 no|169.255.0.0 yes|172.15.255.255 yes|172.16.0.0 no|172.31.255.255 no|\
                 172.32.0.0 yes|192.0.0.0 no|192.0.1.0 yes|192.0.2.0 no|192.0.3.0 yes|192.167.255.255 yes|192.168.0.0 no|\
                 192.169.0.0 yes|198.17.255.255 yes|198.18.0.0 no|198.20.0.0 yes|223.255.255.255 yes|224.0.0.0 no|\
                 255.255.255.255 no|:: no|::1 no|1::1 no|100::1 no|64:ff9b::808:808 yes|64:ff9b::a00:1 no|\
                 64:ff9b:1::808:808 no|1fff:: no|2000::1 yes|2001::1 no|2001:1ff:: no|2001:200::1 yes|2001:db8:: no|\
                 2002:808:808:: yes|2002:a00:1:: no|2606:4700::1111 yes|3ffe::1 no|3fff::1 no|3fff:1000:: yes|4000:: no|\
                 fc00:: no|fdff::1 no|fe80::1 no|fec0:: no|ff0e::1 no|::ffff:8.8.8.8 yes|::ffff:10.0.0.1 no|::8.8.8.8 no"
        .split('|')
    {
        let (address, public) = line.split_once(' ').unwrap();
        assert_eq!(is_public(address.parse().unwrap()), public == "yes", "{line}");
    }
}

fn verdict(e: &mut Evaluator, json: &str) -> Decision {
    decide(e, "fetch", Arguments::Raw(json.as_bytes()))
}

#[test]
fn hosts_in_other_forms_than_one_url_are_judged_and_honest_texts_pass() {
    let mut e = with(Dns::Test(Arc::new(Most)));
    let mut wrong = Vec::new();
    for (table, expected) in
        [(include_str!("hosts_denied.txt"), Verdict::Denied), (include_str!("hosts_honest.txt"), Verdict::Allowed)]
    {
        for json in table.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let _: serde_json::Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{json}: {e}"));
            let r = verdict(&mut e, json);
            if r.verdict != expected {
                wrong.push(format!("{json}\n    {}", r.message));
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn no_padding_hides_a_host() {
    let mut e = with(Dns::Test(Arc::new(Most)));
    let mut passed = Vec::new();
    for n in [1, 60, 64, 65, 255, 1000, 1023, 1024, 1025, 2047, 2048, 2049, 5000, 100_000] {
        let x = |what: &str| what.repeat(n);
        let texts = [
            format!("http://{}@127.0.0.1/", x("a")),
            format!("http://1.1.1.1{}@127.0.0.1/", x(" ")),
            format!("{}://127.0.0.1/", x("a")),
            format!("http://{}@127.0.0.1/", x("%61")),
            format!("http://{}127.0.0.1/", x("0")),
            format!("http://127.0.{}0.1/", x("\u{ad}")),
            format!("{}127.0.0.1", x("\u{ad}")),
            format!("127.0.0.1/{}", x("a")),
            format!("127.0.0.1:{}80", x("0")),
            format!("{}@127.0.0.1", x("a")),
            format!("{},127.0.0.1", x("a")),
            format!("{}127.0.0.1", "8.8.8.8,".repeat(n.min(5000))),
            format!("host={}127.0.0.1", x("8.8.8.8,")),
            format!("{}127.0.0.1{}", x(" "), x(" ")),
            format!("http:{}127.0.0.1", x("/")),
            format!("{}http://127.0.0.1", x("x")),
            format!("{}http://127.0.0.1", x("x ")),
            format!("{}see //127.0.0.1/", x("word ")),
            format!("{}http://1.1.1.1\\@127.0.0.1/", x("word ")),
            format!("mongodb://{}127.0.0.1/", x("8.8.8.8,")),
            format!("{}{{\"url\":\"http://127.0.0.1\"}}", x(" ")),
        ];
        for text in texts {
            for json in [serde_json::json!({"url": text}), serde_json::json!({"q": text})] {
                if verdict(&mut e, &json.to_string()).verdict != Verdict::Denied {
                    passed.push(format!("{n}: {}", crate::text::fit(&json.to_string(), 80)));
                }
            }
        }
        for key in [format!("{}_host", x("x")), format!("host_{}", x("x"))] {
            let json = serde_json::json!({key: "127.1"}).to_string();
            if verdict(&mut e, &json).verdict != Verdict::Denied {
                passed.push(crate::text::fit(&json, 80).into_owned());
            }
        }
    }
    assert!(passed.is_empty(), "{}:\n{}", passed.len(), passed.join("\n"));
}

#[test]
fn what_reaches_a_limit_is_denied_and_what_is_just_below_passes() {
    let mut e = with(Dns::Test(Arc::new(Most)));
    let mut judge = |what: &str, below: String, above: String| {
        for (json, expected) in [(below, Verdict::Allowed), (above, Verdict::Denied)] {
            let r = verdict(&mut e, &json);
            assert_eq!(r.verdict, expected, "{what}: {}", r.message);
        }
    };
    let names =
        |n: usize| format!(r#"{{"q":"{}"}}"#, (0..n).map(|n| format!("http://h{n}.example/ ")).collect::<String>());
    judge("names", names(16), names(17));
    let urls = |n: usize| format!(r#"{{"q":"{}"}}"#, "http://8.8.8.8/ ".repeat(n));
    judge("URLs", urls(hosts::MAX_URLS), urls(hosts::MAX_URLS + 1));
    let host = |n: usize| format!(r#"{{"url":"http://{}.example/"}}"#, "a.".repeat(n / 2 - 4));
    judge("bytes of a host", host(hosts::MAX_HOST), host(hosts::MAX_HOST + 2));
    let key = |n: usize| format!(r#"{{"{}":"word"}}"#, "x".repeat(n));
    judge("bytes of a name", key(hosts::MAX_KEY), key(hosts::MAX_KEY + 1));
    let value = |n: usize| format!(r#"{{"q":"a host={}"}}"#, "8.8.8.8,".repeat(n / 8));
    judge("bytes of a parameter", value(hosts::MAX_HOST), value(hosts::MAX_HOST + 8));
    let json = |n: usize| {
        let mut text = "\"x. y\"".to_owned();
        for _ in 0..n {
            text = serde_json::json!([text]).to_string();
        }
        serde_json::json!({"q": text}).to_string()
    };
    judge("JSON in texts", json(hosts::MAX_NESTED - 1), json(hosts::MAX_NESTED));
    let encoded = |n: usize| format!(r#"{{"q":"a b %{}41"}}"#, "25".repeat(n - 1));
    judge("percent-encoding", encoded(hosts::MAX_NESTED), encoded(hosts::MAX_NESTED + 1));
}

#[test]
fn long_texts_of_every_kind_are_judged_in_one_pass() {
    // Each would take hours if a host were looked for from every place to the end.
    let mut e = with(Dns::Off);
    for piece in ["@", "a@", "[", "a:\\\\b@", "//", "%25", "host=", "://", "http:", "8.8.8.8,", "\u{ad}", "\t"] {
        let json = serde_json::json!({"url": piece.repeat((256 << 10) / piece.len()), "q": "http://10.0.0.1"});
        assert_eq!(verdict(&mut e, &json.to_string()).verdict, Verdict::Denied, "{piece}");
    }
}

/// What has no limit of its own is held in memory for sixteen names, not for a million.
#[test]
fn names_that_will_not_be_looked_up_are_not_kept() {
    use crate::policy::constraints::hosts::{Reading, Seen, host};
    let mut seen = Seen::default();
    for n in 0..1000 {
        host(&format!("h{n}.example.org"), Reading::Certain, &mut seen).unwrap();
    }
    assert_eq!(seen.names.len(), 17);
}
