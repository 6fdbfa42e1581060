//! Where a service is, and how it is reached.

use super::{config::Service, registry::Declared};
use crate::{
    error::Failure,
    files,
    record::recorder::Origin,
    relay::http::connect::{Destination, ProxyChoice, certificates, without_secrets},
};
use http::{HeaderName, HeaderValue};

/// Bytes of a file with certificates.
const MAX_CERTIFICATES: u64 = 8 << 20;

/// Headers of requests; their values are secrets.
pub type Headers = Vec<(HeaderName, HeaderValue)>;

/// The digest of a service's URL, which its decisions and receipts name.
#[must_use]
pub fn endpoint(service: &Service) -> String {
    Origin::of_url(service.url.as_str(), false).digest().to_owned()
}

/// A service as the registry has it declared; `made` is what the API made it of.
#[must_use]
pub fn declared(service: &Service, made: Option<String>) -> Declared {
    Declared {
        made,
        name: service.name.clone(),
        upstream_url: without_secrets(&service.url),
        endpoint: endpoint(service),
        enabled: service.enabled,
        check_frequency_minutes: service.check_frequency_minutes,
    }
}

/// The credentials of a service, read where they are.
///
/// # Errors
/// One that is not there; bad input.
pub fn credentials(service: &Service) -> Result<Headers, Failure> {
    let read = service.headers.iter().map(|(name, reference)| Ok((name.clone(), reference.header()?)));
    read.collect::<Result<_, String>>().map_err(|why| {
        Failure::bad_input(format_args!("a credential of {}: {why}", service.name))
            .hint("set it where the gateway is started; assay gateway check-config says what is missing")
    })
}

/// How a service is reached.
///
/// # Errors
/// Certificates that do not read; bad input.
pub fn destination(service: &Service) -> Result<Destination, Failure> {
    let roots = match &service.cacert {
        None => Vec::new(),
        Some(path) => {
            let pem = files::named(path).and_then(|file| files::read_all(file, MAX_CERTIFICATES));
            let roots = pem.map_err(|e| e.to_string()).and_then(|pem| certificates(&pem));
            roots.map_err(|why| {
                Failure::bad_input(format_args!("cannot use {} of {}: {why}", path.display(), service.name))
            })?
        }
    };
    Ok(Destination { url: service.url.clone(), unix: None, roots, proxy: ProxyChoice::Environment })
}
