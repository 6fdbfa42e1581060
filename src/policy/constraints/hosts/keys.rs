//! What the name of an argument says about hosts in its value.

use super::super::{walk::Around, words};

/// What a name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// Nothing: how the value looks decides.
    No,
    /// It is about a host: the value may be one.
    About,
    /// The value is a host or URL.
    Host,
    /// The value is hosts, whatever separates them.
    Hosts,
}

/// Bytes of a name that are looked at; the value of a longer one is taken for a host.
pub const MAX_KEY: usize = 256;

/// Words that make a value a host or URL.
const HOST: [&str; 43] = [
    "url",
    "urls",
    "uri",
    "uris",
    "host",
    "hosts",
    "hostname",
    "hostnames",
    "domain",
    "domains",
    "endpoint",
    "endpoints",
    "server",
    "servers",
    "address",
    "addresses",
    "addr",
    "addrs",
    "ip",
    "ips",
    "ipv",
    "origin",
    "proxy",
    "proxies",
    "website",
    "site",
    "href",
    "link",
    "links",
    "webhook",
    "callback",
    "upstream",
    "remote",
    "dns",
    "fqdn",
    "target",
    "netloc",
    "nameserver",
    "nameservers",
    "broker",
    "brokers",
    "gateway",
    "webhooks",
];
/// Words without another meaning: blanks in their value separate hosts, and a word without a dot is a host.
const NOTHING_ELSE: [&str; 14] = [
    "host",
    "hosts",
    "hostname",
    "hostnames",
    "hostaddr",
    "fqdn",
    "ip",
    "ips",
    "servers",
    "brokers",
    "nameserver",
    "nameservers",
    "endpoints",
    "proxies",
];
/// Words that make a longer word the name of a host, and words that only look like that.
const NEAR: [&str; 9] = ["url", "uri", "host", "addr", "address", "domain", "server", "endpoint", "proxy"];
const FAR: [&str; 8] = ["curl", "ghost", "observer", "hosting", "hostile", "addressee", "serverless", "curls"];
/// Words that name a host among other things.
const MAY_BE: [&str; 5] = ["authority", "peer", "peers", "datasource", "connect"];
/// What is written together with one of these, in names that do not show where a word ends (`ipaddress`, `serverurl`).
const BESIDE: [&str; 76] = [
    "api",
    "app",
    "auth",
    "base",
    "bind",
    "bootstrap",
    "cache",
    "client",
    "cluster",
    "conn",
    "connection",
    "custom",
    "data",
    "database",
    "db",
    "default",
    "dest",
    "destination",
    "docker",
    "download",
    "dst",
    "elastic",
    "external",
    "feed",
    "file",
    "from",
    "ftp",
    "full",
    "git",
    "hook",
    "http",
    "https",
    "image",
    "imap",
    "internal",
    "kafka",
    "ldap",
    "list",
    "listen",
    "local",
    "mail",
    "main",
    "master",
    "media",
    "mongo",
    "my",
    "mysql",
    "node",
    "page",
    "param",
    "peer",
    "pg",
    "postgres",
    "primary",
    "private",
    "public",
    "raw",
    "redirect",
    "redis",
    "registry",
    "replica",
    "repo",
    "request",
    "return",
    "root",
    "service",
    "smtp",
    "socket",
    "source",
    "sql",
    "src",
    "ssh",
    "str",
    "string",
    "to",
    "web",
];
/// Last words of a name that is about a host but whose value is not one.
const ABOUT: [&str; 39] = [
    "type",
    "id",
    "ids",
    "name",
    "names",
    "count",
    "limit",
    "port",
    "ports",
    "format",
    "text",
    "title",
    "path",
    "paths",
    "depth",
    "mode",
    "version",
    "status",
    "size",
    "bytes",
    "timeout",
    "enabled",
    "label",
    "description",
    "score",
    "index",
    "weight",
    "retries",
    "time",
    "timestamp",
    "date",
    "age",
    "kind",
    "role",
    "key",
    "tags",
    "user",
    "username",
    "password",
];
/// Words that are a host's before `name`.
const HAS_NAME: [&str; 5] = ["host", "server", "domain", "dns", "node"];
/// Names that say nothing themselves, so that the name around them counts.
const GENERIC: [&str; 9] = ["value", "values", "raw", "string", "str", "data", "item", "items", "list"];

/// What the name of the place says.
pub fn named(around: &Around<'_>) -> Named {
    match around.class(|a| judge(a) as u8) {
        0 => Named::No,
        1 => Named::About,
        2 => Named::Host,
        _ => Named::Hosts,
    }
}

fn judge(around: &Around<'_>) -> Named {
    let Some(key) = around.key() else { return Named::No };
    let found = of(key);
    if found == Named::No && words(key).iter().all(|w| GENERIC.contains(&w.as_str())) {
        return around.outer_keys().take(2).map(of).find(|n| *n != Named::No).unwrap_or(Named::No);
    }
    found
}

/// What a name says.
pub fn of(key: &str) -> Named {
    if key.len() > MAX_KEY {
        return Named::Host;
    }
    let words: Vec<String> = words(key).iter().flat_map(|word| parts(word)).collect();
    let is = |list: &[&str], word: &String| list.contains(&word.as_str());
    if !words.iter().any(|w| is(&HOST, w)) {
        return if words.iter().any(|w| is_near(w)) { Named::About } else { Named::No };
    }
    let last = words.last().map_or("", String::as_str);
    let has_name = words.len() >= 2 && last == "name" && is(&HAS_NAME, &words[words.len() - 2]);
    let has_port = last == "port" && words.len() >= 2 && matches!(words[words.len() - 2].as_str(), "host" | "and");
    if ABOUT.contains(&last) && !has_name && !has_port {
        Named::About
    } else if words.iter().any(|w| is(&NOTHING_ELSE, w)) {
        Named::Hosts
    } else {
        Named::Host
    }
}

/// Whether a word could be one of a host: it begins or ends with such a word, whatever the rest is.
fn is_near(word: &str) -> bool {
    NEAR.iter().any(|near| word.starts_with(near) || word.ends_with(near)) && !FAR.contains(&word)
        || MAY_BE.contains(&word)
}

/// The words that a word is made of, if one of them is a host's and all are known; else the word.
fn parts(word: &str) -> Vec<String> {
    let whole = || vec![word.to_owned()];
    if HOST.contains(&word) || !word.is_ascii() {
        return whole();
    }
    // From the front the longest first: where that leads nowhere, shorter ones are tried. A name has no more than
    // MAX_KEY bytes, and what was tried is remembered.
    let mut ends: Vec<Option<usize>> = vec![None; word.len() + 1];
    ends[0] = Some(0);
    for from in 0..word.len() {
        if ends[from].is_none() {
            continue;
        }
        let rest = &word.as_bytes()[from..];
        for known in HOST.iter().chain(&BESIDE).chain(&ABOUT) {
            // Most differ in their first letter, which costs no call.
            if known.as_bytes()[0] == rest[0] && rest.starts_with(known.as_bytes()) {
                ends[from + known.len()].get_or_insert(from);
            }
        }
    }
    let mut found = Vec::new();
    let mut at = word.len();
    while at > 0 {
        let Some(from) = ends[at] else { return whole() };
        found.push(word[from..at].to_owned());
        at = from;
    }
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hosts_and_of_other_things() {
        for key in [
            "url",
            "baseUrl",
            "base_url",
            "serverurl",
            "API-URL",
            "ipaddress",
            "ipAddr",
            "ip_address",
            "IPv4",
            "dbhost",
            "redishost",
            "proxyurl",
            "webhookUrl",
            "http.proxy",
            "remoteaddr",
            "target_url",
            "smtpserver",
        ] {
            assert!(matches!(of(key), Named::Host | Named::Hosts), "{key}: {:?}", of(key));
        }
        for key in ["host", "hostport", "host_name", "serverHost", "ips", "hostIp", "brokers", "nameservers"] {
            assert_eq!(of(key), Named::Hosts, "{key}");
        }
        for key in ["serverName", "domain_name", "domainname", "servername", "dnsName"] {
            assert_eq!(of(key), Named::Host, "{key}");
        }
        for key in [
            "wsurl",
            "subdomain",
            "xyzhost",
            "authority",
            "url_path",
            "urlpath",
            "host_count",
            "serverid",
            "site_title",
            "proxy_port",
            "server_version",
        ] {
            assert_eq!(of(key), Named::About, "{key}");
        }
        for key in [
            "curl",
            "hourly",
            "ghost",
            "observer",
            "zip",
            "tip",
            "skip",
            "description",
            "ship_to",
            "linked",
            "q",
            "",
            "script",
            "recipient",
            "addressee",
            "hosting",
            "data_source",
            "dbname",
        ] {
            assert_eq!(of(key), Named::No, "{key}");
        }
        assert_eq!(of(&"x".repeat(MAX_KEY)), Named::No);
        assert_eq!(of(&"x".repeat(MAX_KEY + 1)), Named::Host);
    }
}
