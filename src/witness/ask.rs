//! Asks witnesses to sign a checkpoint (c2sp.org/tlog-witness): each once, all at the same time, and nobody is believed without a
//! signature of the key that is known.

use super::request::Request;
use crate::{
    model::{checkpoint::read_any, sha256_hex},
    note::{self, Key, WitnessKey},
    pack::verify::verify_ed25519,
    relay::http::connect::{Connector, Destination, ProxyChoice, UpstreamHttp},
    text::visible,
    tree::{Frontier, Hash, consistency},
};
use http::{Method, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use std::{io, sync::Arc, time::Duration};
use tokio::{task::JoinSet, time::timeout};
use url::Url;

/// How long a witness has.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 64 << 10;
/// Characters of an answer that are shown.
const SHOWN: usize = 200;

/// What witnesses are asked to sign.
#[derive(Debug)]
pub struct Statement {
    /// The key of the log.
    pub key: Key,
    /// The checkpoint, as the log signed it.
    pub note: String,
    /// The hashes of the leaves that it covers.
    pub leaves: Vec<Hash>,
}

/// A witness that is asked.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Its key.
    pub key: WitnessKey,
    /// The prefix of its URLs.
    pub url: Url,
    /// How many entries it knows, as far as is known; it says if that is wrong.
    pub known: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The line of its signature, which holds.
    Signed(String),
    /// It says that it has signed more than there is. The note is one that it signed and the log as well, if it shows one.
    Rollback {
        /// So many entries.
        size: u64,
        /// The proof of it.
        note: Option<String>,
    },
    /// It says that the log does not go on from what it has signed.
    Fork {
        /// In its words.
        why: String,
        /// A note that it signed and the log as well, and that contradicts ours.
        note: Option<String>,
    },
    /// It did not sign; why.
    Failed(String),
}

impl Statement {
    fn size(&self) -> u64 {
        self.leaves.len() as u64
    }

    fn root(&self, size: u64) -> Option<Hash> {
        let leaves = self.leaves.get(..usize::try_from(size).ok()?)?;
        Some(leaves.iter().copied().collect::<Frontier>().root())
    }

    fn proof(&self, old: u64) -> Vec<Hash> {
        let of = |range: std::ops::Range<u64>| {
            let leaves = &self.leaves[range.start as usize..range.end as usize];
            leaves.iter().copied().collect::<Frontier>().root()
        };
        consistency(old, self.size()).map_or_else(|_| Vec::new(), |parts| parts.into_iter().map(of).collect())
    }

    fn text(&self) -> &str {
        self.note.rfind("\n\n").map_or(&self.note, |at| &self.note[..=at])
    }
}

/// Asks all of them; the outcomes are in their order.
///
/// # Errors
/// The system gives no threads.
pub fn ask(witnesses: &[Asked], statement: Statement) -> io::Result<Vec<Outcome>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let statement = Arc::new(statement);
    let outcomes = runtime.block_on(async {
        let mut asked = JoinSet::new();
        for (n, witness) in witnesses.iter().cloned().enumerate() {
            let statement = statement.clone();
            asked.spawn(async move {
                let outcome = timeout(PATIENCE, one(&witness, &statement)).await;
                let late = || Outcome::Failed(format!("it took longer than {} s", PATIENCE.as_secs()));
                (n, outcome.unwrap_or_else(|_| late()))
            });
        }
        let mut outcomes = vec![Outcome::Failed("it was not asked".to_owned()); witnesses.len()];
        while let Some(answered) = asked.join_next().await {
            if let Ok((n, outcome)) = answered {
                outcomes[n] = outcome;
            }
        }
        outcomes
    });
    // A look-up of a name may take longer than anybody waits for.
    runtime.shutdown_background();
    Ok(outcomes)
}

async fn one(witness: &Asked, statement: &Statement) -> Outcome {
    let size = statement.size();
    let mut old = witness.known.min(size);
    // It is asked again only if it knows less than was thought, or more.
    for _ in 0..2 {
        let request = Request { old, proof: statement.proof(old), note: statement.note.clone() };
        let (status, body) = match send(witness, Method::POST, "add-checkpoint", request.body()).await {
            Ok(answer) => answer,
            Err(why) => return Outcome::Failed(why),
        };
        match status {
            StatusCode::OK => return signed(witness, statement, &body),
            StatusCode::CONFLICT => match body.strip_suffix('\n').unwrap_or(&body).parse::<u64>() {
                Ok(known) if known > size => {
                    let note = contradicting(witness, statement).await;
                    return Outcome::Rollback { size: known, note };
                }
                Ok(known) if known != old => old = known,
                _ => return Outcome::Failed("it refuses the size that it says it knows (HTTP 409)".to_owned()),
            },
            StatusCode::UNPROCESSABLE_ENTITY => {
                let note = contradicting(witness, statement).await;
                return Outcome::Fork { why: shown(&body), note };
            }
            other if other.is_redirection() => {
                return Outcome::Failed(format!("it redirects (HTTP {}), which is not followed", other.as_u16()));
            }
            other => return Outcome::Failed(format!("HTTP {}: {}", other.as_u16(), shown(&body))),
        }
    }
    Outcome::Failed("it says another size each time (HTTP 409)".to_owned())
}

fn shown(body: &str) -> String {
    visible(body.lines().next().unwrap_or_default()).chars().take(SHOWN).collect()
}

fn holds(key: &[u8], text: &[u8], signature: &[u8]) -> bool {
    verify_ed25519(key, text, signature).is_ok()
}

/// The signature by the key that is known; others in the answer are not looked at.
fn signed(witness: &Asked, statement: &Statement, body: &str) -> Outcome {
    let note = format!("{}\n{body}", statement.text());
    match witness.key.cosigned(&note, &holds) {
        Ok(Some(_)) => match witness.key.lines_in(&note) {
            Ok(line) => Outcome::Signed(line),
            Err(e) => Outcome::Failed(e.to_string()),
        },
        Ok(None) => Outcome::Failed("its answer has no signature of the key in the policy".to_owned()),
        Err(e) => Outcome::Failed(format!("its answer does not read: {e}")),
    }
}

/// What the witness has signed last, if the log signed it as well and it is nothing that the log begins with now.
async fn contradicting(witness: &Asked, statement: &Statement) -> Option<String> {
    let path = format!("{}/checkpoint", sha256_hex(statement.key.name().as_bytes()));
    let (status, note) = send(witness, Method::GET, &path, String::new()).await.ok()?;
    let text = note::open(&note, &statement.key, &holds).ok()?;
    let (_, size, root) = read_any(text).filter(|(origin, ..)| *origin == statement.key.name())?;
    (status == StatusCode::OK && statement.root(size) != Some(root)).then_some(note)
}

/// One request over a connection of its own; the answer's status and body.
async fn send(witness: &Asked, method: Method, path: &str, body: String) -> Result<(StatusCode, String), String> {
    let url = &witness.url;
    let to = Destination { url: url.clone(), unix: None, roots: Vec::new(), proxy: ProxyChoice::Environment };
    let connector = Connector::new(&to).map_err(|e| e.to_string())?;
    let connected = connector.connect(UpstreamHttp::Http1).await.map_err(|e| e.to_string())?;
    let lost = |e: hyper::Error| format!("the connection ended before its answer: {e}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(connected.io)).await.map_err(lost)?;
    tokio::spawn(connection);
    let host = match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (host, _) => host.unwrap_or_default().to_owned(),
    };
    let request = http::Request::builder()
        .method(method)
        .uri(format!("{}/{path}", url.path().trim_end_matches('/')))
        .header(header::HOST, host)
        .header(header::USER_AGENT, concat!("assay/", env!("CARGO_PKG_VERSION")))
        .header(header::CONTENT_TYPE, "text/plain; charset=utf-8")
        .body(Full::<Bytes>::from(body))
        .map_err(|e| e.to_string())?;
    let response = sender.send_request(request).await.map_err(lost)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(|e| {
        if e.is::<LengthLimitError>() {
            format!("its answer is longer than {} KiB", MAX_ANSWER >> 10)
        } else {
            format!("the connection ended within its answer: {e}")
        }
    })?;
    let text = String::from_utf8(body.to_bytes().to_vec()).map_err(|_| "its answer is not text".to_owned())?;
    Ok((status, text))
}
