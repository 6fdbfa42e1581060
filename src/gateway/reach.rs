//! Where a service is, and how it is reached.

use super::{
    config::{Service, Variable},
    registry::Declared,
};
use crate::{
    error::Failure,
    files,
    record::recorder::Origin,
    relay::http::connect::{Destination, ProxyChoice, certificates},
};
use http::{HeaderName, HeaderValue};
use std::{ffi::OsString, path::Path};

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
        upstream_url: service.place(),
        endpoint: endpoint(service),
        enabled: service.enabled,
        check_frequency_minutes: service.check_frequency_minutes,
    }
}

/// The environment of a command, read where it is.
///
/// # Errors
/// A variable that is not there; nothing of what was read is told.
pub fn environment(env: &[(String, Variable)]) -> Result<Vec<(OsString, OsString)>, String> {
    let read = env.iter().map(|(name, variable)| {
        let value = match variable {
            Variable::Secret(reference) => (*reference.read()?).clone(),
            Variable::Plain(text) => text.clone(),
        };
        if value.contains('\0') {
            return Err(format!("{name} has a character that no variable can have"));
        }
        Ok((name.into(), value.into()))
    });
    read.collect()
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

/// How a service is reached: at its URL, or at the socket where its command is served.
///
/// # Errors
/// Certificates that do not read; bad input.
pub fn destination(service: &Service, served: Option<&Path>) -> Result<Destination, Failure> {
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
    Ok(Destination {
        url: service.url.clone(),
        unix: served.map(Path::to_owned),
        roots,
        proxy: ProxyChoice::Environment,
    })
}
