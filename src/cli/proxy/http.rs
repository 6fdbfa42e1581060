//! The flags of `assay mcp-proxy` for servers that are reached over HTTP, checked.

use crate::{
    bridge::{SessionLoss, Transport},
    clients::command::is_of_connection,
    error::Failure,
    proxy::http::{HttpOptions, Listening},
    relay::http::{
        access::{self, Access, TOKEN_LENGTH, Token},
        connect::{self, Destination, ProxyChoice, UpstreamHttp, certificates},
        listen::ListenAddr,
    },
};
use assay_evidence::plain;
use clap::{Args, ValueEnum};
use http::{HeaderName, HeaderValue};
use std::{path::Path, path::PathBuf, time::Duration};
use url::Url;

/// Bytes of a file with a token or a header's value.
const SECRET_FILE: u64 = 64 << 10;
/// Bytes of a file with certificates.
const CERTIFICATES_FILE: u64 = 8 << 20;

/// Arguments for HTTP.
#[derive(Debug, Args)]
#[command(next_help_heading = "Servers over HTTP")]
pub struct HttpArgs {
    /// Let HTTP clients connect here: an address with a port, localhost:PORT or unix:PATH; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<ListenAddr>,
    /// Let other machines connect; needs --token-file or --token-env
    #[arg(long, requires = "listen")]
    pub allow_remote: bool,
    /// File with the token that clients have to send, at least 32 characters
    #[arg(long, value_name = "PATH", requires = "listen", conflicts_with = "token_env")]
    pub token_file: Option<PathBuf>,
    /// Environment variable with the token that clients have to send
    #[arg(long, value_name = "NAME", requires = "listen")]
    pub token_env: Option<String>,
    /// Another host name, or HOST:PORT, by which clients may call the listener
    #[arg(long, value_name = "HOST", requires = "listen")]
    pub allow_host: Vec<String>,
    /// An origin whose pages may call the listener, as in https://app.example.com
    #[arg(long, value_name = "ORIGIN", requires = "listen", value_parser = origin)]
    pub allow_origin: Vec<String>,
    /// How the upstream is reached.
    #[command(flatten)]
    pub upstream: UpstreamArgs,
    /// Speak only HTTP/1.1 or only HTTP/2 with the upstream
    #[arg(long, value_name = "1|2", requires = "upstream_url", value_parser = version)]
    pub upstream_http: Option<UpstreamHttp>,
    /// Another path of the MCP endpoint
    #[arg(long, value_name = "PATH", requires = "listen", value_parser = path)]
    pub endpoint: Vec<String>,
    /// Under guard, a path beside the endpoint to which requests may pass
    #[arg(long, value_name = "PATH", requires = "listen", value_parser = path)]
    pub pass_path: Vec<String>,
    /// End a session that nobody has used for so long: a number with s, m or h
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = crate::gateway::config::duration)]
    pub session_idle: Duration,
    /// Sessions at the same time; the one that was idle longest ends first
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub max_sessions: u32,
    /// Connections of clients at the same time; more wait
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub max_connections: u32,
    /// Threads that move bytes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub io_threads: u16,
    /// Memory for what is not on disk yet (bytes, or with K, M, G)
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = capture_size)]
    pub capture_size: u64,
    /// How the server is spoken with, without --listen
    #[arg(long, value_enum, value_name = "TRANSPORT", default_value = "auto", conflicts_with = "listen")]
    pub transport: TransportArg,
    /// What happens when the server has forgotten the session, without --listen
    #[arg(long, value_enum, value_name = "MODE", default_value = "reinitialize", conflicts_with = "listen")]
    pub session_loss: SessionLossArg,
    /// Do not try the connection to the upstream at the start
    #[arg(long, requires = "upstream_url")]
    pub no_check: bool,
}

/// Arguments for how a server over HTTP is reached; beside them is one for its URL, `upstream_url`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Servers over HTTP")]
pub struct UpstreamArgs {
    /// A header for the upstream, which replaces what the client sent
    #[arg(long, value_name = "NAME: VALUE", requires = "upstream_url")]
    pub header: Vec<String>,
    /// The same; the value is in an environment variable
    #[arg(long, value_name = "NAME=VARIABLE", requires = "upstream_url")]
    pub header_env: Vec<String>,
    /// The same; the value is in a file
    #[arg(long, value_name = "NAME=PATH", requires = "upstream_url")]
    pub header_file: Vec<String>,
    /// PEM file with certificates to trust besides those of the system
    #[arg(long, value_name = "FILE", requires = "upstream_url")]
    pub cacert: Option<PathBuf>,
    /// Proxy on the way to the upstream, or none [default: what HTTPS_PROXY, ALL_PROXY and NO_PROXY say]
    #[arg(long, value_name = "URL|none", requires = "upstream_url")]
    pub proxy: Option<String>,
    /// Unix socket of the upstream
    #[arg(long, value_name = "PATH", requires = "upstream_url", conflicts_with = "proxy")]
    pub upstream_unix: Option<PathBuf>,
}

/// `--transport`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TransportArg {
    /// Streamable HTTP, or the older transport if the server refuses that.
    Auto,
    /// Streamable HTTP.
    StreamableHttp,
    /// The older transport: one event stream for all answers.
    Sse,
}

/// `--session-loss`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SessionLossArg {
    /// Begin a new session as the client began the first.
    Reinitialize,
    /// Answer the client's requests with errors.
    Error,
    /// End, so that the client starts anew.
    Exit,
}

fn version(text: &str) -> Result<UpstreamHttp, String> {
    match text {
        "1" => Ok(UpstreamHttp::Http1),
        "2" => Ok(UpstreamHttp::Http2),
        _ => Err("expected 1 or 2".to_owned()),
    }
}

fn path(text: &str) -> Result<String, String> {
    let is_path =
        text.starts_with('/') && !text.contains(['?', '#']) && text.parse::<http::uri::PathAndQuery>().is_ok();
    if is_path { Ok(text.to_owned()) } else { Err("expected a path, as in /mcp".to_owned()) }
}

fn origin(text: &str) -> Result<String, String> {
    access::origin(text).ok_or_else(|| "expected an origin, as in https://app.example.com".to_owned())
}

fn capture_size(text: &str) -> Result<u64, String> {
    let bytes = super::size(text)?;
    if (1 << 20..=1 << 30).contains(&bytes) { Ok(bytes) } else { Err("expected 1M to 1G".to_owned()) }
}

impl HttpArgs {
    /// What was asked for, with every file and variable read.
    ///
    /// # Errors
    /// Bad input, exit code 3, with what to do.
    pub fn options(&self, upstream: &str) -> Result<HttpOptions, Failure> {
        let (destination, inject) = self.upstream.destination(upstream)?;
        Ok(HttpOptions {
            url: destination.url.clone(),
            destination,
            http: self.upstream_http.unwrap_or_default(),
            inject,
            listening: self.listen.as_ref().map(|listen| self.listening(listen)).transpose()?,
            session_idle: self.session_idle,
            max_sessions: self.max_sessions as usize,
            capture_size: self.capture_size,
            check: !self.no_check,
            transport: match self.transport {
                TransportArg::Auto => Transport::Auto,
                TransportArg::StreamableHttp => Transport::StreamableHttp,
                TransportArg::Sse => Transport::Sse,
            },
            session_loss: match self.session_loss {
                SessionLossArg::Reinitialize => SessionLoss::Reinitialize,
                SessionLossArg::Error => SessionLoss::Error,
                SessionLossArg::Exit => SessionLoss::Exit,
            },
        })
    }

    fn listening(&self, listen: &ListenAddr) -> Result<Listening, Failure> {
        let token = self.token()?;
        if !listen.is_local() {
            if !self.allow_remote {
                return Err(Failure::bad_input(format_args!("other machines could connect to {listen}"))
                    .hint("listen on 127.0.0.1, or give --allow-remote and --token-file"));
            }
            if token.is_none() {
                return Err(Failure::bad_input("--allow-remote without a token lets everybody in")
                    .hint("give --token-file PATH or --token-env NAME, with at least 32 characters"));
            }
        }
        let access = Access { hosts: self.allow_host.clone(), origins: self.allow_origin.clone(), token };
        Ok(Listening {
            listen: listen.clone(),
            allow_remote: self.allow_remote,
            access,
            endpoints: self.endpoint.clone(),
            pass_paths: self.pass_path.clone(),
            max_connections: self.max_connections as usize,
            threads: usize::from(self.io_threads),
        })
    }

    fn token(&self) -> Result<Option<Token>, Failure> {
        let (text, from) = match (&self.token_file, &self.token_env) {
            (Some(path), _) => (text_of(path, "--token-file")?, format!("--token-file {}", path.display())),
            (None, Some(name)) => (variable(name, "--token-env")?, format!("--token-env {name}")),
            (None, None) => return Ok(None),
        };
        let token = Token::checked(&text).ok_or_else(|| {
            Failure::bad_input(format_args!("{from} is no token of at least {TOKEN_LENGTH} characters"))
                .hint("openssl rand -hex 32 makes one")
        })?;
        Ok(Some(token))
    }
}

impl UpstreamArgs {
    /// Where the server is, and the headers of every request, with every file and variable read.
    ///
    /// # Errors
    /// Bad input, exit code 3, with what to do.
    pub fn destination(&self, upstream: &str) -> Result<(Destination, Vec<(HeaderName, HeaderValue)>), Failure> {
        let url = upstream_url(upstream)?;
        let roots = match &self.cacert {
            None => Vec::new(),
            Some(path) => {
                let pem = read(path, CERTIFICATES_FILE, "--cacert")?;
                certificates(&pem).map_err(|why| {
                    Failure::bad_input(format_args!("cannot use --cacert {}: {why}", path.display()))
                        .hint("give the PEM file of the authority that signed the upstream's certificate")
                })?
            }
        };
        let proxy = match self.proxy.as_deref() {
            None => ProxyChoice::Environment,
            Some("none") => ProxyChoice::Direct,
            Some(url) => ProxyChoice::Url(url.to_owned()),
        };
        let destination = Destination { url, unix: self.upstream_unix.clone(), roots, proxy };
        Ok((destination, self.inject()?))
    }

    fn inject(&self) -> Result<Vec<(HeaderName, HeaderValue)>, Failure> {
        let mut all = Vec::new();
        for given in &self.header {
            let (name, value) = given.split_once(':').ok_or_else(|| {
                Failure::bad_input("--header has no colon").hint("give a name and a value: --header 'X-Team: red'")
            })?;
            all.push(header("--header", name, value.trim())?);
        }
        for given in &self.header_env {
            let (name, from) = split("--header-env", given, "--header-env Authorization=TOKEN")?;
            all.push(header("--header-env", name, &variable(from, "--header-env")?)?);
        }
        for given in &self.header_file {
            let (name, from) = split("--header-file", given, "--header-file Authorization=token.txt")?;
            all.push(header("--header-file", name, &text_of(Path::new(from), "--header-file")?)?);
        }
        Ok(all)
    }
}

fn upstream_url(text: &str) -> Result<Url, Failure> {
    connect::endpoint(text).map_err(|why| {
        Failure::bad_input(format_args!("--upstream-url {why}")).hint(
            "give the server's MCP endpoint, as in https://mcp.example.com/mcp; a credential goes into \
             --header-env Authorization=VARIABLE",
        )
    })
}

fn header(flag: &str, name: &str, value: &str) -> Result<(HeaderName, HeaderValue), Failure> {
    // Neither is shown: people mix them up.
    let bad = |what: &str| Failure::bad_input(format_args!("{flag}: {what}"));
    let name: HeaderName = name.trim().parse().map_err(|_| bad("the name is no name of a header"))?;
    if is_of_connection(name.as_str()) {
        return Err(
            bad(&format!("{name} cannot be given")).hint("it belongs to the connection, which assay makes itself")
        );
    }
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| bad(&format!("the value for {name} has characters that headers cannot have")))?;
    value.set_sensitive(true);
    Ok((name, value))
}

fn split<'a>(flag: &str, given: &'a str, example: &str) -> Result<(&'a str, &'a str), Failure> {
    let parts = given.split_once('=').filter(|(name, from)| !name.is_empty() && !from.is_empty());
    parts.ok_or_else(|| Failure::bad_input(format_args!("{flag} needs a name, = and where the value is")).hint(example))
}

fn variable(name: &str, flag: &str) -> Result<String, Failure> {
    std::env::var(name).map_err(|e| {
        let why = match e {
            std::env::VarError::NotPresent => "is not set",
            std::env::VarError::NotUnicode(_) => "is no text",
        };
        Failure::bad_input(format_args!("{flag}: the environment variable {name} {why}"))
            .hint("set it where assay is started; a client's configuration has a place for variables")
    })
}

fn text_of(path: &Path, flag: &str) -> Result<String, Failure> {
    let text = String::from_utf8(read(path, SECRET_FILE, flag)?)
        .map_err(|_| Failure::bad_input(format_args!("{flag} {}: it is no text", path.display())))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn read(path: &Path, max: u64, flag: &str) -> Result<Vec<u8>, Failure> {
    plain::named(path).and_then(|file| plain::read_all(file, max)).map_err(|e| {
        Failure::bad_input(format_args!("cannot read {flag} {}: {e}", path.display()))
            .hint("name a file that this user can read")
    })
}

#[cfg(test)]
mod tests {
    use crate::{
        cli::{Cli, Command, proxy::ProxyArgs},
        error::{Exit, Failure},
        proxy::http::HttpOptions,
        relay::http::{
            connect::{ProxyChoice, UpstreamHttp},
            listen::ListenAddr,
        },
    };
    use clap::Parser as _;
    use std::time::Duration;

    fn parse(args: &[&str]) -> Result<ProxyArgs, clap::Error> {
        match Cli::try_parse_from([&["assay", "mcp-proxy"], args].concat())?.command {
            Some(Command::McpProxy(args)) => Ok(*args),
            other => panic!("{other:?}"),
        }
    }

    fn options(args: &[&str]) -> Result<HttpOptions, Failure> {
        let args = parse(&[&["--upstream-url", "http://127.0.0.1:1/mcp"], args].concat()).unwrap();
        args.http.options(args.upstream_url.as_deref().unwrap())
    }

    #[test]
    fn a_whole_command_line_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let token = file("token", "0123456789abcdef0123456789abcdef\n");
        let secret = format!("authorization={}", file("secret", "Bearer s3cret\r\n"));
        let made = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap();
        let roots = file("ca.pem", &made.cert.pem());
        let given = options(&[
            "--listen=0.0.0.0:0",
            "--allow-remote",
            "--token-file",
            &token,
            "--allow-host=a.example",
            "--allow-host=b.example:1",
            "--allow-origin=https://app.example/",
            "--header",
            "X-Team:  red ",
            "--header-file",
            &secret,
            "--cacert",
            &roots,
            "--proxy=none",
            "--upstream-http=2",
            "--endpoint=/other",
            "--session-idle=90s",
            "--max-sessions=3",
            "--max-connections=7",
            "--io-threads=2",
            "--capture-size=1M",
            "--no-check",
        ])
        .unwrap();
        let listening = given.listening.unwrap();
        assert_eq!(listening.listen, ListenAddr::Tcp("0.0.0.0:0".parse().unwrap()));
        assert!(listening.allow_remote && listening.access.token.is_some());
        assert_eq!(listening.access.hosts, ["a.example", "b.example:1"]);
        assert_eq!(listening.access.origins, ["https://app.example"]);
        assert_eq!((listening.endpoints, listening.max_connections, listening.threads), (vec!["/other".into()], 7, 2));
        let headers: Vec<_> = given.inject.iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap())).collect();
        assert_eq!(headers, [("x-team", "red"), ("authorization", "Bearer s3cret")]);
        assert!(!format!("{:?}", given.inject).contains("s3cret"));
        assert_eq!(given.destination.roots.len(), 1);
        assert_eq!((given.destination.proxy, given.http), (ProxyChoice::Direct, UpstreamHttp::Http2));
        assert_eq!((given.session_idle, given.max_sessions, given.capture_size), (Duration::from_secs(90), 3, 1 << 20));
        assert!(!given.check);
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("short");
        std::fs::write(&file, "short").unwrap();
        let (short, missing) = (file.display().to_string(), dir.path().join("missing").display().to_string());
        for (args, what) in [
            (&["--listen=0.0.0.0:1"][..], "other machines could connect"),
            (&["--listen=[::]:1", "--allow-remote"], "without a token"),
            (&["--listen=127.0.0.1:1", "--token-file", &short], "no token of at least 32"),
            (&["--listen=127.0.0.1:1", "--token-file", &missing], "cannot read --token-file"),
            (&["--listen=127.0.0.1:1", "--token-env=ASSAY_NO_SUCH_VARIABLE"], "ASSAY_NO_SUCH_VARIABLE is not set"),
            (&["--cacert", &missing], "cannot read --cacert"),
            (&["--cacert", &short], "there is no certificate in it"),
            (&["--header=x"], "no colon"),
            (&["--header-env=x"], "needs a name"),
            (&["--header-env=x=ASSAY_NO_SUCH_VARIABLE"], "is not set"),
            (&["--header-file==x"], "needs a name"),
        ] {
            let failure = options(args).unwrap_err();
            assert!(failure.what.contains(what), "{failure}");
            assert_eq!(failure.exit, Exit::BadInput);
            assert!(failure.hint.is_some(), "{failure}");
        }
        for name in ["Host", "content-length", "Transfer-Encoding", "Connection", "proxy-authorization", "a b", ""] {
            let failure = options(&[&format!("--header={name}: c4n4ry")]).unwrap_err();
            assert!(!failure.to_string().contains("c4n4ry"), "{failure}");
        }
        assert!(options(&["--header=X: a\u{1}b"]).is_err());
    }

    #[test]
    fn urls_that_are_none_are_refused_without_telling_secrets() {
        let args = parse(&["--upstream-url", "x"]).unwrap();
        for bad in
            ["", "localhost:80/mcp", "ftp://c4n4ry@x/", "http://", "https://user:c4n4ry@x/mcp", "http://c4n4ry@x/"]
        {
            let failure = args.http.options(bad).unwrap_err();
            assert!(!failure.to_string().contains("c4n4ry") && failure.hint.is_some(), "{bad}: {failure}");
        }
    }

    #[test]
    fn values_that_mean_nothing_are_refused() {
        for bad in [
            "--listen=8080",
            "--listen=example.com:80",
            "--upstream-http=3",
            "--endpoint=mcp",
            "--endpoint=/a?b",
            "--allow-origin=app.example",
            "--allow-origin=null",
            "--allow-origin=https://a/b",
            "--session-idle=0s",
            "--session-idle=5",
            "--max-sessions=0",
            "--io-threads=0",
            "--capture-size=1K",
        ] {
            assert!(parse(&["--listen=127.0.0.1:0", "--upstream-url=http://x/", bad]).is_err(), "{bad}");
        }
        for alone in ["--allow-remote", "--token-env=X", "--endpoint=/x", "--header=a: b", "--no-check"] {
            assert!(parse(&[alone, "--", "x"]).is_err(), "{alone}");
        }
    }
}
