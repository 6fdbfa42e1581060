//! Connections to an upstream: TCP or a Unix socket, through a proxy if there is one, and TLS.

use hyper_util::{
    client::{
        legacy::connect::{
            HttpConnector,
            proxy::{SocksV5, Tunnel},
        },
        proxy::matcher::{Intercept, Matcher},
    },
    rt::TokioIo,
};
use rustls::{
    ClientConfig,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use rustls_platform_verifier::Verifier;
use std::{
    error::Error as StdError,
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tower_service::Service as _;
use url::Url;

/// How long a connection may take to be there, and TLS after it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which proxy connections to the upstream go through. Those to this machine go through none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ProxyChoice {
    /// What `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` say.
    #[default]
    Environment,
    /// None.
    Direct,
    /// This one: a URL, `http://`, `socks5://` or `socks5h://`.
    Url(String),
}

/// Which HTTP is spoken with the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpstreamHttp {
    /// HTTP/2 for clients that speak it, if the upstream offers it; else HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only, also without TLS.
    Http2,
}

/// Where an upstream is and how it is reached.
#[derive(Debug, Clone)]
pub struct Destination {
    /// URL; only its scheme, host and port count here.
    pub url: Url,
    /// A Unix socket to connect to instead of the URL's host.
    pub unix: Option<PathBuf>,
    /// Certificates to trust besides those of the system.
    pub roots: Vec<CertificateDer<'static>>,
    /// The proxy on the way.
    pub proxy: ProxyChoice,
}

/// The certificates of a PEM file.
///
/// # Errors
/// What is wrong with it, as a fragment: not PEM, or without a certificate.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err("there is no certificate in it (BEGIN CERTIFICATE)".to_owned()),
        Err(e) => Err(format!("it is not a PEM file of certificates: {e}")),
    }
}

/// Anything that bytes go over.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection to the upstream.
pub struct Connected {
    /// What to speak HTTP over.
    pub io: Box<dyn Duplex>,
    /// Whether the upstream chose HTTP/2 by ALPN.
    pub chose_h2: bool,
    /// Address of the other side, unless a proxy or a Unix socket is in between.
    pub address: Option<SocketAddr>,
}

/// Why there is no connection to the upstream: one line.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No connection.
    #[error("cannot connect to {to}: {why}")]
    Unreachable {
        /// Host and port, or the socket's path.
        to: String,
        /// The system's words.
        why: String,
    },
    /// No TLS: the certificate is not trusted, or it is for another name, or the other side speaks no TLS.
    #[error("no TLS with {to}: {why}")]
    Tls {
        /// Host and port.
        to: String,
        /// The words of the TLS library.
        why: String,
    },
    /// The proxy on the way failed.
    #[error("the proxy {proxy} does not connect to {to}: {why}")]
    Proxy {
        /// Host and port of the proxy.
        proxy: String,
        /// Host and port of the upstream.
        to: String,
        /// What went wrong.
        why: String,
    },
}

/// Why no connection could ever be made.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The URL is not one of an HTTP server.
    #[error("{0} is no http:// or https:// URL with a host")]
    Url(String),
    /// The proxy's URL cannot be used.
    #[error("{0} is no URL of a proxy: expected http://HOST:PORT, socks5://HOST:PORT or none")]
    Proxy(String),
    /// TLS cannot be set up: there are no trusted certificates on this system.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
}

/// Makes connections to one upstream.
#[derive(Clone)]
pub struct Connector {
    /// `http://host:port/`, for the libraries.
    target: http::Uri,
    /// Host and port as people read them.
    name: String,
    unix: Option<PathBuf>,
    proxy: Option<Intercept>,
    tls: Option<Tls>,
}

#[derive(Clone)]
struct Tls {
    server: ServerName<'static>,
    h1: TlsConnector,
    both: TlsConnector,
    h2: TlsConnector,
}

impl Connector {
    /// # Errors
    /// [`SetupError`].
    pub fn new(to: &Destination) -> Result<Self, SetupError> {
        let bad_url = || SetupError::Url(without_secrets(&to.url));
        let host = to.url.host_str().filter(|h| !h.is_empty()).ok_or_else(bad_url)?;
        let port = to.url.port_or_known_default().ok_or_else(bad_url)?;
        let is_tls = match to.url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(bad_url()),
        };
        let name = format!("{host}:{port}");
        let target = format!("{}://{name}/", to.url.scheme()).parse::<http::Uri>().map_err(|_| bad_url())?;
        // A URL that cannot be used is one also where none is needed.
        let proxy = proxy_for(&to.proxy, &target)?.filter(|_| to.unix.is_none() && !is_loopback(host));
        let tls = if is_tls { Some(Tls::new(host, &to.roots)?) } else { None };
        Ok(Self { target, name, unix: to.unix.clone(), proxy, tls })
    }

    /// Connects, and speaks TLS where the URL says so. HTTP/2 is offered as `http` says.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(&self, http: UpstreamHttp) -> Result<Connected, ConnectError> {
        let unreachable = |why: String| ConnectError::Unreachable { to: self.place(), why };
        let (io, address) = match timeout(PATIENCE, self.reach()).await {
            Ok(reached) => reached?,
            Err(_) => return Err(unreachable(format!("no answer for {} s", PATIENCE.as_secs()))),
        };
        let Some(tls) = &self.tls else { return Ok(Connected { io, chose_h2: false, address }) };
        let no_tls = |why: String| ConnectError::Tls { to: self.name.clone(), why };
        let connector = match http {
            UpstreamHttp::Auto => &tls.both,
            UpstreamHttp::Http1 => &tls.h1,
            UpstreamHttp::Http2 => &tls.h2,
        };
        match timeout(PATIENCE, connector.connect(tls.server.clone(), io)).await {
            Ok(Ok(stream)) => {
                let chose_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                Ok(Connected { io: Box::new(stream), chose_h2, address })
            }
            Ok(Err(e)) => Err(no_tls(one_line(&e))),
            Err(_) => Err(no_tls(format!("no answer for {} s", PATIENCE.as_secs()))),
        }
    }

    async fn reach(&self) -> Result<(Box<dyn Duplex>, Option<SocketAddr>), ConnectError> {
        let unreachable = |why: String| ConnectError::Unreachable { to: self.place(), why };
        if let Some(path) = &self.unix {
            let stream = UnixStream::connect(path).await.map_err(|e| unreachable(one_line(&e)))?;
            return Ok((Box::new(stream), None));
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let Some(proxy) = &self.proxy else {
            let stream = tcp.call(self.target.clone()).await.map_err(|e| unreachable(one_line(&e)))?.into_inner();
            let address = stream.peer_addr().ok();
            return Ok((Box::new(stream), address));
        };
        let through = |why: String| ConnectError::Proxy {
            proxy: proxy.uri().authority().map(|a| host_of(a.as_str())).unwrap_or_default(),
            to: self.name.clone(),
            why,
        };
        let reached: Result<TokioIo<TcpStream>, Box<dyn StdError + Send + Sync>> = match proxy.uri().scheme_str() {
            Some(scheme) if scheme.starts_with("socks5") => {
                let mut socks = SocksV5::new(proxy.uri().clone(), tcp).local_dns(scheme == "socks5");
                if let Some((user, password)) = proxy.raw_auth() {
                    socks = socks.with_auth(user.to_owned(), password.to_owned());
                }
                socks.call(self.target.clone()).await.map_err(Into::into)
            }
            Some("http") => {
                let mut tunnel = Tunnel::new(proxy.uri().clone(), tcp);
                if let Some(auth) = proxy.basic_auth() {
                    tunnel = tunnel.with_auth(auth.clone());
                }
                tunnel.call(self.target.clone()).await.map_err(Into::into)
            }
            _ => Err("only http://, socks5:// and socks5h:// proxies are supported".into()),
        };
        Ok((Box::new(reached.map_err(|e| through(one_line(&*e)))?.into_inner()), None))
    }

    fn place(&self) -> String {
        self.unix.as_ref().map_or_else(|| self.name.clone(), |path| path.display().to_string())
    }
}

impl Tls {
    fn new(host: &str, roots: &[CertificateDer<'static>]) -> Result<Self, SetupError> {
        let failed = |e: &dyn std::fmt::Display| SetupError::Tls(e.to_string());
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let server = ServerName::try_from(bare).map_err(|e| failed(&e))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Verifier::new_with_extra_roots(roots.iter().cloned(), provider.clone());
        let verifier = Arc::new(verifier.map_err(|e| failed(&e))?);
        let connector = |protocols: &[&[u8]]| -> Result<TlsConnector, SetupError> {
            let mut config = ClientConfig::builder_with_provider(provider.clone())
                .with_safe_default_protocol_versions()
                .map_err(|e| failed(&e))?
                .dangerous()
                .with_custom_certificate_verifier(verifier.clone())
                .with_no_client_auth();
            config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
            Ok(TlsConnector::from(Arc::new(config)))
        };
        Ok(Self {
            server,
            h1: connector(&[b"http/1.1"])?,
            both: connector(&[b"h2", b"http/1.1"])?,
            h2: connector(&[b"h2"])?,
        })
    }
}

fn proxy_for(choice: &ProxyChoice, target: &http::Uri) -> Result<Option<Intercept>, SetupError> {
    let matcher = match choice {
        ProxyChoice::Direct => return Ok(None),
        ProxyChoice::Environment => Matcher::from_env(),
        ProxyChoice::Url(url) => {
            let parsed = Url::parse(url).ok().filter(|u| matches!(u.scheme(), "http" | "socks5" | "socks5h"));
            let shown = || Url::parse(url).map_or_else(|_| "the given text".to_owned(), |u| without_secrets(&u));
            parsed.filter(Url::has_host).ok_or_else(|| SetupError::Proxy(shown()))?;
            let matcher = Matcher::builder().all(url.as_str()).build();
            return matcher.intercept(target).map(Some).ok_or_else(|| SetupError::Proxy(shown()));
        }
    };
    Ok(matcher.intercept(target))
}

/// Whether a host of a URL is this machine.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = bare.trim_end_matches('.').to_ascii_lowercase();
    match bare.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => ip.is_loopback(),
        Ok(IpAddr::V6(ip)) => ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback()),
        Err(_) => name == "localhost" || name.ends_with(".localhost"),
    }
}

/// The endpoint of a server that is reached over HTTP.
///
/// # Errors
/// What it is instead, as a fragment without secrets.
pub fn endpoint(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|e| format!("is no URL: {e}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        // `user:password@host` is a URL, of the scheme `user`.
        return Err("is no http:// or https:// URL".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("has a user name or a password".to_owned());
    }
    Ok(url)
}

/// The URL without userinfo, query and fragment: what may be shown.
#[must_use]
pub fn without_secrets(url: &Url) -> String {
    let mut shown = url.clone();
    // A URL that has no place for them has none.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.set_query(None);
    shown.set_fragment(None);
    shown.into()
}

fn host_of(authority: &str) -> String {
    authority.rsplit('@').next().unwrap_or_default().to_owned()
}

/// An error and what caused it, in one line; what both say stands there once.
pub(crate) fn one_line(error: &(dyn StdError + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let said = match error.downcast_ref::<io::Error>() {
            // The number says nothing to people.
            Some(e) if e.raw_os_error().is_some() => {
                let said = e.to_string();
                said.rsplit_once(" (os error").map_or(said.clone(), |(words, _)| words.to_owned())
            }
            _ => error.to_string(),
        };
        if !text.ends_with(&said) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&said);
        }
        next = error.source();
    }
    text.replace(['\r', '\n'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(url: &str) -> Destination {
        Destination { url: Url::parse(url).unwrap(), unix: None, roots: Vec::new(), proxy: ProxyChoice::Direct }
    }

    #[test]
    fn this_machine_has_many_names() {
        for host in
            ["localhost", "LocalHost.", "x.localhost", "127.0.0.1", "127.9.9.9", "[::1]", "::1", "::ffff:127.0.0.1"]
        {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "localhost.example", "127.0.0.1.example", "128.0.0.1", "[::2]", "notlocalhost"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn what_is_no_server_or_no_proxy_is_refused_without_telling_secrets() {
        for bad in ["ftp://user:secret@x/", "data:text/plain,secret", "file:///x?secret"] {
            let e = Connector::new(&to(bad)).err().unwrap().to_string();
            assert!(e.contains("no http:// or https:// URL") && !e.contains("user"), "{e}");
        }
        let mut given = to("http://server.example/");
        for bad in ["http://", "ftp://user:secret@proxy.example", "proxy secret"] {
            given.proxy = ProxyChoice::Url(bad.to_owned());
            let e = Connector::new(&given).err().unwrap().to_string();
            assert!(e.contains("no URL of a proxy") && !e.contains("secret"), "{e}");
        }
        given.proxy = ProxyChoice::Url("http://user:secret@proxy.example:3128".to_owned());
        assert!(Connector::new(&given).unwrap().proxy.is_some());
        given.url = Url::parse("http://127.0.0.1:1/").unwrap();
        assert!(Connector::new(&given).unwrap().proxy.is_none(), "this machine is reached without a proxy");
    }

    #[test]
    fn certificates_are_read_from_pem_and_nothing_else() {
        let made = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap();
        assert_eq!(certificates(made.cert.pem().as_bytes()).unwrap(), [made.cert.der().clone()]);
        for bad in [&b""[..], b"hello", made.signing_key.serialize_pem().as_bytes()] {
            assert!(certificates(bad).unwrap_err().contains("no certificate"));
        }
        assert!(certificates(b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n").is_err());
    }
}
