//! `deny_private_hosts` against the parsers that would connect: curl's, Python's, Node's and, where it is installed, Go's.
//! A parser that is missing fails the test; Go, which `tests/run.sh` does not install, is said to be missing.
//!
//! `ASSAY_URLS` says how many spellings are tried (4 000; the long form has 100 000), `ASSAY_URLS_SEED` which.

use crate::install;
use assay::policy::{Arguments, Call, Dns, Evaluator, Policy, Resolve, Surroundings, Verdict};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufRead as _, BufReader, Write as _},
    net::{IpAddr, Ipv6Addr},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

/// All names are public but those of one domain.
struct Names;

impl Resolve for Names {
    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(vec![if is_private_name(host) { [127, 0, 0, 1] } else { [93, 184, 216, 34] }.into()])
    }
}

fn is_private_name(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    host == "localhost" || host.ends_with(".localhost") || host.ends_with("private.example")
}

/// Whether a host is this machine or in a private network, with nothing of what is tested.
fn is_private(host: &str) -> bool {
    match host.trim_end_matches('.').parse::<IpAddr>() {
        Ok(IpAddr::V4(a)) => a.is_loopback() || a.is_private() || a.is_link_local() || a.is_unspecified(),
        Ok(IpAddr::V6(a)) => match a.to_ipv4_mapped() {
            Some(a) => is_private(&a.to_string()),
            None => a == Ipv6Addr::LOCALHOST || a.is_unspecified() || a.is_unique_local() || a.is_unicast_link_local(),
        },
        // Nobody is asked for a name with anything else in it.
        Err(_) => host.bytes().all(|b| b.is_ascii_graphic() && !b"/?#@:[]%\\".contains(&b)) && is_private_name(host),
    }
}

fn evaluator() -> Evaluator {
    let policy = "version: \"1\"\ndefault: allow\nconstraints: {fetch: {deny_private_hosts: true}}\n";
    let policy = Arc::new(Policy::parse(policy.as_bytes(), "p").unwrap());
    let around = Surroundings { cwd: "/".into(), home: None, dns: Dns::Test(Arc::new(Names)) };
    Evaluator::new(policy, Arc::new(around))
}

/// Gives a program a JSON text a line, and takes one a line from it.
fn ask(mut program: Command, lines: &[String]) -> Vec<serde_json::Value> {
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text: String = lines.iter().map(|l| json!(l).to_string() + "\n").collect();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()).unwrap());
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let told: Vec<_> = stdout.lines().map(|l| serde_json::from_str(&l.unwrap()).unwrap()).collect();
    writer.join().unwrap();
    assert!(child.wait().unwrap().success() && told.len() == lines.len(), "{program:?} gave {} lines", told.len());
    told
}

fn python(mode: &[&str]) -> Command {
    let mut python = install::python("readings/urls.py");
    python.args(mode).env("PYTHONWARNINGS", "ignore").env_remove("PYTHONHOME");
    python
}

fn node() -> Command {
    let mut node = Command::new("node");
    node.arg("--no-warnings").arg(install::sources().join("readings/urls.mjs"));
    node
}

/// Go's parsers, built in `tmp`, if there is a Go. One that `ASSAY_GO` names must be there.
fn go(tmp: &Path) -> Option<Command> {
    let named = std::env::var_os("ASSAY_GO");
    let built = Command::new(named.as_deref().unwrap_or_else(|| "go".as_ref()))
        .args(["build", "-o"])
        .arg(tmp.join("urls"))
        .arg(install::sources().join("readings/urls.go"))
        .env("GOCACHE", tmp.join("cache"))
        .env("GO111MODULE", "off")
        .output();
    match built {
        Ok(built) => {
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            Some(Command::new(tmp.join("urls")))
        }
        Err(error) => {
            assert!(named.is_none(), "{named:?}, which ASSAY_GO names: {error}");
            None
        }
    }
}

/// What `readings/urls.py` has to know.
const PARSERS: [&str; 10] =
    ["rfc3986", "urlsplit", "urllib", "urllib3", "requests", "httpx", "httpx2", "yarl", "curl", "curl, any text"];

/// Fails if a parser is missing that `tests/run.sh` installs.
fn all_are_there() {
    let told = python(&["parsers"]).output().unwrap();
    let there: Vec<String> = serde_json::from_slice(&told.stdout)
        .unwrap_or_else(|e| panic!("urls.py parsers: {e}\n{}", String::from_utf8_lossy(&told.stderr)));
    let missing: Vec<_> = PARSERS.iter().filter(|parser| !there.iter().any(|t| t == *parser)).collect();
    assert!(missing.is_empty(), "{missing:?} cannot be asked: run tests/run.sh, which installs them");
}

/// The hosts that real parsers find in each text, by parser.
fn readings(urls: &[String]) -> Vec<Vec<(String, String)>> {
    all_are_there();
    let tmp = tempfile::tempdir().unwrap();
    let mut programs = vec![python(&[]), node()];
    match go(tmp.path()) {
        Some(go) => programs.push(go),
        // Past the test's own capture, which keeps what a test that passes says.
        None => io::stderr().write_all(b"without Go: what its parser reads is not compared\n").unwrap(),
    }
    let mut found = vec![Vec::new(); urls.len()];
    for program in programs {
        for (told, found) in ask(program, urls).into_iter().zip(&mut found) {
            found.extend(serde_json::from_value::<Vec<(String, String)>>(told).unwrap());
        }
    }
    // As the C library reads them.
    let hosts: BTreeSet<&String> = found.iter().flatten().map(|(_, host)| host).collect();
    let hosts: Vec<String> = hosts.into_iter().cloned().collect();
    let addresses = ask(python(&["addresses"]), &hosts);
    let known: BTreeMap<String, String> =
        hosts.into_iter().zip(addresses).map(|(host, a)| (host, a.as_str().unwrap().to_owned())).collect();
    for (_, host) in found.iter_mut().flatten() {
        *host = known[host].clone();
    }
    found
}

/// A small generator of numbers (xorshift), so that a seed says everything.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % n as u64).unwrap()
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

const SCHEMES: [&str; 30] = [
    "http://",
    "http://",
    "http://",
    "http://",
    "http://",
    "https://",
    "HTTP://",
    "hTtPs://",
    "http:/",
    "http:",
    "http:///",
    "http:////",
    "http:\\\\",
    "http:/\\",
    "http:\\/",
    "//",
    "\\\\",
    "/\\",
    "///",
    "ftp://",
    "ws://",
    "foo://",
    "g://",
    " http://",
    "\u{1}http://",
    "ht\ttp://",
    "\u{feff}http://",
    "URL:http://",
    "x:http://",
    "",
];
const PRIVATE: [&str; 26] = [
    "127.0.0.1",
    "127.0.0.1",
    "127.0.0.1",
    "10.1.2.3",
    "192.168.0.1",
    "169.254.169.254",
    "localhost",
    "LocalHost",
    "private.example",
    "private.example",
    "x.private.example",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::]",
    "[fd00::1]",
    "0",
    "0.0.0.0",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "0x7f.0.0.01",
    "loc\u{ad}alhost",
];
const PUBLIC: [&str; 8] = [
    "1.1.1.1",
    "1.1.1.1",
    "8.8.8.8",
    "example.com",
    "example.com",
    "a.example",
    "[2606:4700::1111]",
    "b\u{fc}.example",
];
const BETWEEN: [&str; 44] = [
    "@", "@", "@", "@", "@", "@", "/", "\\", "?", "#", ":", ";", ",", "&", "=", " ", "\t", "\n", "\r", "\0", "%00",
    "%0a", "%20", "%23", "%2f", "%40", "%3f", "%5c", "%25", ".", "..", "!", "|", "^", "`", "\"", "<", ">", "{", "}",
    "[", "]", ":80", ":@",
];
const RARE: [char; 40] = [
    '\u{80}', '\u{85}', '\u{a0}', '\u{ad}', '\u{34f}', '\u{1680}', '\u{180e}', '\u{2000}', '\u{200b}', '\u{200d}',
    '\u{200e}', '\u{2024}', '\u{2025}', '\u{2026}', '\u{2028}', '\u{2029}', '\u{202e}', '\u{202f}', '\u{205f}',
    '\u{2060}', '\u{2100}', '\u{2105}', '\u{2215}', '\u{2488}', '\u{3000}', '\u{3002}', '\u{fe0f}', '\u{fe52}',
    '\u{fe55}', '\u{fe5f}', '\u{fe6b}', '\u{feff}', '\u{ff03}', '\u{ff0e}', '\u{ff0f}', '\u{ff1a}', '\u{ff1f}',
    '\u{ff20}', '\u{ff3c}', '\u{ff61}',
];
const TAILS: [&str; 18] = [
    "",
    "",
    "/",
    "/",
    "/",
    "/x",
    "?x",
    "#x",
    "\\x",
    ":80/",
    ":8080",
    "./",
    "/@1.1.1.1/",
    "?@example.com/",
    "/?a=b;c=d",
    "?a=b,c",
    "#a=b|c",
    "/a=b; c",
];

/// Any character of ASCII, or one that some parsers make another of.
fn character(dice: &mut Dice) -> char {
    if dice.below(3) > 0 { char::from(u8::try_from(dice.below(128)).unwrap()) } else { RARE[dice.below(RARE.len())] }
}

/// The same address or name in other letters.
fn respelled(host: &str, dice: &mut Dice) -> String {
    let way = dice.below(24);
    let one_of = |c: char, dice: &mut Dice, to: &dyn Fn(char) -> String| {
        if dice.below(3) == 0 { to(c) } else { c.to_string() }
    };
    let wide = |c: char| match c {
        '!'..='~' => char::from_u32(u32::from(c) + 0xfee0).unwrap().to_string(),
        c => c.to_string(),
    };
    let encoded = |c: char| if c.is_ascii() { format!("%{:02x}", u32::from(c)) } else { c.to_string() };
    let circled = |c: char| match c {
        '1'..='9' => char::from_u32(u32::from(c) - 0x31 + 0x2460).unwrap().to_string(),
        'a'..='z' => char::from_u32(u32::from(c) - 0x61 + 0x24d0).unwrap().to_string(),
        c => c.to_string(),
    };
    let dots = |c: char| if c == '.' { "\u{3002}".to_owned() } else { c.to_string() };
    let to: &dyn Fn(char) -> String = match way {
        0 => &wide,
        1 => &encoded,
        2 => &circled,
        3 => &dots,
        4 => return format!("{host}."),
        5 => return host.to_uppercase(),
        _ => return host.to_owned(),
    };
    host.chars().map(|c| one_of(c, dice, to)).collect()
}

fn spelling(dice: &mut Dice) -> String {
    let mut text = dice.of(&SCHEMES).to_owned();
    for n in 0..=dice.below(4) {
        if n > 0 {
            for _ in 0..=dice.below(2) {
                match dice.below(4) {
                    0 => text.push(character(dice)),
                    _ => text.push_str(dice.of(&BETWEEN)),
                }
            }
        }
        let host = if dice.below(2) == 0 { dice.of(&PRIVATE) } else { dice.of(&PUBLIC) };
        text.push_str(&respelled(host, dice));
    }
    text.push_str(dice.of(&TAILS));
    if dice.below(3) == 0 {
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        text.insert(places[dice.below(places.len())], character(dice));
    }
    text
}

/// Ways in which a text reaches a tool, and whether it is one of a browser or program that is given a whole URL.
fn calls(text: &str) -> [(&'static str, serde_json::Value); 5] {
    [
        ("url", json!({"url": text})),
        ("text", json!({"q": text})),
        ("json", json!({"q": json!({"url": text}).to_string()})),
        ("list", json!({"urls": ["https://example.com/", text]})),
        ("padded", json!({"url": format!("{}{text}{}", " ".repeat(3000), "#".repeat(3000))})),
    ]
}

#[test]
fn no_url_that_a_real_parser_sends_to_a_private_host_passes() {
    let _shared = install::MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let number = |name: &str, usual: u64| std::env::var(name).ok().map_or(usual, |n| n.parse().unwrap());
    let mut dice = Dice(number("ASSAY_URLS_SEED", 0x9e37_79b9_7f4a_7c15));
    let urls: Vec<String> = (0..number("ASSAY_URLS", 4_000)).map(|_| spelling(&mut dice)).collect();
    let told = readings(&urls);
    let mut judge = evaluator();
    let (mut private, mut differ, mut wrong) = (0, 0, Vec::new());
    for (url, told) in urls.iter().zip(&told) {
        // A text that says of itself that it is a URL is one under any name; `db:80` is one only where one belongs.
        let has_scheme = says_scheme(url) || url.trim_start().starts_with(['/', '\\']);
        let plain = url.replace(['\t', '\n', '\r'], "").to_ascii_lowercase();
        let known = ["http:", "https:", "ftp:", "ws:", "wss:"].iter().any(|scheme| plain.contains(scheme));
        let bad: Vec<_> = told.iter().filter(|(_, host)| is_private(host)).collect();
        let hosts: BTreeSet<&str> =
            told.iter().map(|(_, host)| host.trim_end_matches('.')).filter(|h| known && is_host(h)).collect();
        private += usize::from(!bad.is_empty());
        differ += usize::from(hosts.len() > 1);
        if bad.is_empty() && hosts.len() < 2 {
            continue;
        }
        for (way, arguments) in calls(url) {
            let certain = matches!(way, "url" | "json" | "padded" | "list");
            let count = bad.iter().filter(|(parser, _)| certain || has_scheme && parser != "curl, any text").count();
            if count == 0 && !(certain && hosts.len() > 1 && way != "padded") {
                continue;
            }
            let arguments = arguments.to_string();
            let decision =
                judge.decide(&Call { tool: "fetch", arguments: Arguments::Raw(arguments.as_bytes()) }, Duration::ZERO);
            if decision.verdict != Verdict::Denied {
                wrong.push(format!("{way} {url:?}\n    {told:?}"));
            }
        }
    }
    eprintln!("{} spellings: {private} lead to a private host, {differ} to different ones", urls.len());
    assert!(private * 5 > urls.len() && differ * 100 > urls.len(), "the spellings are no test");
    assert!(wrong.is_empty(), "{} pass:\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
}

/// Whether a slash follows a scheme, which begins with a letter: a number and a colon are a port's.
fn says_scheme(text: &str) -> bool {
    text.match_indices(":/").chain(text.match_indices(":\\")).any(|(at, _)| {
        let part = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let before = &text[..at];
        let scheme = &before[before.trim_end_matches(part).len()..];
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
    })
}

/// Whether a host is one that can be asked for.
fn is_host(host: &&str) -> bool {
    host.parse::<Ipv6Addr>().is_ok()
        || host.trim_start_matches('.').contains('.')
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

#[test]
fn a_url_that_all_parsers_read_alike_passes() {
    let _shared = install::MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut urls = Vec::new();
    for scheme in ["http://", "https://", "ftp://", "ws://"] {
        for host in
            ["example.com", "EXAMPLE.com", "1.1.1.1", "[2606:4700::1111]", "a.b.example", "xn--bcher-kva.example"]
        {
            for user in ["", "me@", "me:pw@"] {
                for tail in ["", "/", ":8080/", "/a/b?c=d#e", "?q=x@y.example", "#f", "/http://example.com/", "/@me"] {
                    urls.push(format!("{scheme}{user}{host}{tail}"));
                }
            }
        }
    }
    let told = readings(&urls);
    let mut judge = evaluator();
    for (url, told) in urls.iter().zip(&told) {
        let hosts: BTreeSet<&str> = told.iter().map(|(_, host)| host.as_str()).filter(is_host).collect();
        assert!(hosts.len() == 1 && told.len() > 3, "{url}: {told:?}");
        for (way, arguments) in calls(url) {
            let arguments = arguments.to_string();
            let decision =
                judge.decide(&Call { tool: "fetch", arguments: Arguments::Raw(arguments.as_bytes()) }, Duration::ZERO);
            assert_eq!(decision.verdict, Verdict::Allowed, "{way} {url}: {}", decision.message);
        }
    }
}
