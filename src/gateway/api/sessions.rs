//! What was recorded of a service: its sessions, and their packs.

use super::{
    Answer, Api, Call, Paging,
    problem::Problem,
    reply::{Reply, asked, bare},
    services::row,
    surface::beside,
    types::{Page, SessionView},
};
use crate::{
    history::list::{Entry, Found, Places, Standing, find},
    operate::evidence,
    pack::verify::{VerifyOptions, VerifyReport, source::PackDir, verify},
};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderValue, Response, StatusCode, Uri, header};
use http_body::Frame;
use http_body_util::BodyExt as _;
use std::{
    cell::RefCell,
    io::{self, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll},
};
use tokio::sync::mpsc;

/// Pieces of an archive that wait for the client.
const AHEAD: usize = 8;
/// Directories in a pack that are one in the other.
const DEPTH: u32 = 4;

impl From<&Entry> for SessionView {
    fn from(e: &Entry) -> Self {
        Self {
            session_id: e.session.clone(),
            id: e.name(),
            started_at: Some(e.started.clone()).filter(|at| !at.is_empty()),
            state: e.state(),
            client: e.client.clone(),
            server: e.server_info.clone(),
            calls: e.counts.map(|c| c.calls),
            denied: e.counts.map(|c| c.denied),
            failed: e.counts.map(|c| c.failed),
            receipts: e.receipts,
            bytes: e.bytes,
            packed: e.standing == Standing::Packed,
        }
    }
}

/// The sessions in an audit directory, the newest first.
fn entries(dir: PathBuf) -> Vec<Entry> {
    let all = RefCell::new(Vec::new());
    let tell = |found| {
        if let Found::Some(entries) = found {
            all.borrow_mut().extend(entries);
        }
    };
    find(&Places { audit_dir: Some(dir), only: true, ..Places::of_user() }, &tell, &|| false);
    let mut all = all.into_inner();
    all.sort_by_key(Entry::rank);
    all.dedup_by(|a, b| a.pack == b.pack);
    all
}

/// The sessions of a service, the newest first.
pub async fn entries_of(api: &Api, name: String) -> Result<Vec<Entry>, Problem> {
    let dir = api.desk.ask(move |office| row(office, &name).map(|row| evidence(office.data(), &row.name)));
    let dir = dir.await??;
    beside(move || entries(dir)).await
}

async fn page(api: &Api, name: String, uri: &Uri, wanted: fn(&SessionView) -> bool) -> Answer {
    let asked = asked(uri)?;
    let all = entries_of(api, name).await?;
    let mut all: Vec<SessionView> = all.iter().map(SessionView::from).filter(wanted).collect();
    if let Some(after) = &asked.cursor {
        let at = all.iter().position(|s| s.id == *after);
        let at = at.ok_or_else(|| Problem::bad("cursor is none that this list gave, or its session is gone"))?;
        all.drain(..=at);
    }
    Ok(Reply::page(uri, &asked, all, |s| s.id.clone()).into())
}

/// Sessions of a service.
#[utoipa::path(
    get, path = "/api/admin/services/{name}/sessions", tag = "evidence", operation_id = "listSessions",
    params(("name" = String, Path, description = "the service's name"), Paging),
    responses((status = 200, description = "a page of them, the newest first", body = Page<SessionView>,
               headers(("Link" = String, description = "the next page, `rel=\"next\"`"))))
)]
pub async fn sessions(call: Call) -> Answer {
    let Call { api, uri, parts, .. } = call;
    let [name] = parts.take()?;
    page(&api, name, &uri, |_| true).await
}

/// Sessions of a service that have a proof pack.
#[utoipa::path(
    get, path = "/api/admin/services/{name}/packs", tag = "evidence", operation_id = "listPacks",
    params(("name" = String, Path, description = "the service's name"), Paging),
    responses((status = 200, description = "a page of them, the newest first", body = Page<SessionView>,
               headers(("Link" = String, description = "the next page, `rel=\"next\"`"))))
)]
pub async fn packs(call: Call) -> Answer {
    let Call { api, uri, parts, .. } = call;
    let [name] = parts.take()?;
    page(&api, name, &uri, |session| session.packed).await
}

/// The pack of a session.
pub async fn pack_of(api: &Api, name: String, id: &str) -> Result<PathBuf, Problem> {
    let all = entries_of(api, name).await?;
    let found = all.into_iter().find(|e| e.standing == Standing::Packed && e.name() == id);
    found.map(|e| e.pack).ok_or_else(|| Problem::not_found("the service has no pack of this id"))
}

/// A proof pack, as an archive.
#[utoipa::path(
    get, path = "/api/admin/services/{name}/packs/{id}", tag = "evidence", operation_id = "getPack",
    params(("name" = String, Path, description = "the service's name"), ("id" = String, Path, description = "its id")),
    responses((status = 200, description = "the pack; assay verify-pack takes the archive as it is",
               content_type = "application/gzip", body = String))
)]
pub async fn pack(call: Call) -> Answer {
    let Call { api, uri, parts, .. } = call;
    let [name, id] = parts.take()?;
    bare(&uri)?;
    let pack = pack_of(&api, name, &id).await?;
    archive(&pack)
}

/// What a verification of a proof pack says: the report of assay verify-pack.
#[utoipa::path(
    get, path = "/api/admin/services/{name}/packs/{id}/verify", tag = "evidence", operation_id = "verifyPack",
    params(("name" = String, Path, description = "the service's name"), ("id" = String, Path, description = "its id")),
    responses((status = 200, description = "the report", body = Object))
)]
pub async fn verify_pack(call: Call) -> Answer {
    let Call { api, uri, parts, .. } = call;
    let [name, id] = parts.take()?;
    bare(&uri)?;
    let report = report_of(&api, name, &id).await?;
    Ok(Reply::json(StatusCode::OK, &report).into())
}

/// Verifies a pack.
pub async fn report_of(api: &Api, name: String, id: &str) -> Result<VerifyReport, Problem> {
    let pack = pack_of(api, name, id).await?;
    let report = beside(move || verify(&pack, &VerifyOptions::default(), &mut |_| ControlFlow::Continue(()))).await?;
    report.map_err(|e| Problem::failed(e.to_string()))
}

/// The pack as an archive, while it is read.
pub fn archive(pack: &Path) -> Answer {
    let name = pack.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let dir = PackDir::open(pack).map_err(|e| Problem::failed(e.to_string()))?;
    let (pieces, body) = mpsc::channel(AHEAD);
    let top = name.clone();
    tokio::task::spawn_blocking(move || {
        let whole = || -> io::Result<()> {
            let out = GzEncoder::new(Pieces(&pieces), Compression::fast());
            let mut archive = tar::Builder::new(out);
            add(&mut archive, &dir, &top, DEPTH)?;
            archive.into_inner()?.finish()?.flush()
        };
        if let Err(e) = whole() {
            // Who gets half of an archive notices.
            let _ = pieces.blocking_send(Err(e));
        }
    });
    let mut response = Response::new(Archive(body).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/gzip"));
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')).collect();
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{plain}.tar.gz\"")) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    }
    Ok(response)
}

fn add(archive: &mut tar::Builder<impl Write>, dir: &PackDir, at: &str, depth: u32) -> io::Result<()> {
    let entries = dir.list()?.ok_or_else(|| io::Error::other("the pack has too many files"))?;
    for entry in entries {
        let path = format!("{at}/{}", entry.name);
        if entry.is_dir {
            match dir.sub(&entry.name) {
                Some(sub) if depth > 0 => add(archive, &sub, &path, depth - 1)?,
                _ => return Err(io::Error::other("the pack has a directory that cannot be read")),
            }
            continue;
        }
        let (file, len) = dir.open_file(&entry.name).map_err(|e| io::Error::other(format!("{path}: {e:?}")))?;
        let mut head = tar::Header::new_gnu();
        head.set_size(len);
        head.set_mode(0o600);
        archive.append_data(&mut head, &path, io::Read::take(file, len))?;
    }
    Ok(())
}

/// Sends what is written.
struct Pieces<'a>(&'a mpsc::Sender<io::Result<Bytes>>);

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes))).map_err(gone)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Archive(mpsc::Receiver<io::Result<Bytes>>);

impl http_body::Body for Archive {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
