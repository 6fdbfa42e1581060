//! Which sessions may have to be finished.

use super::RecoverError;
use crate::{
    model::{SessionId, reading::Reading},
    paths::{AuditDir, SessionPaths},
    record::card::Card,
};
use std::{
    collections::{HashMap, HashSet},
    io,
    path::{Path, PathBuf},
};

/// Sessions of an audit directory that may have to be finished.
#[derive(Debug, Default)]
pub struct Found {
    /// Sessions that have a card or a segment, oldest first, and none before the one that it continues.
    pub sessions: Vec<SessionPaths>,
    /// Cards that cannot be read: nothing is done about their sessions.
    pub unread: Vec<RecoverError>,
}

/// Looks for sessions that may have to be finished; `only_cards`: only those with a card, without reading segments.
///
/// # Errors
/// The directory cannot be read.
pub fn sessions(dir: &AuditDir, only_cards: bool) -> io::Result<Found> {
    let mut found: Vec<SessionPaths> = Vec::new();
    let mut continues = HashMap::new();
    let (mut unread, mut left_alone) = (Vec::new(), HashSet::new());
    for path in paths_in(dir, &dir.live())? {
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        match card_at(dir, &path) {
            Ok(Some(card)) => {
                continues.extend(card.continues.map(|before| (card.session_id, before)));
                found.push(dir.session(card.started_at, card.session_id));
            }
            Ok(None) => {}
            Err(e) => {
                left_alone.extend(session_of_card(&path));
                unread.push(e);
            }
        }
    }
    if !only_cards {
        let names = dir.files().names(&dir.audit())?;
        found.extend(names.iter().filter_map(|name| dir.session_of_segment(name.to_str()?)));
    }
    found.retain(|paths| !left_alone.contains(&paths.id));
    found.sort_by(|a, b| a.stem.cmp(&b.stem));
    found.dedup_by(|a, b| a.stem == b.stem);
    unread.sort_by(|a, b| a.path().cmp(b.path()));
    Ok(Found { sessions: in_succession(found, &continues), unread })
}

/// The session whose card has this file name.
pub(super) fn session_of_card(path: &Path) -> Option<SessionId> {
    SessionId::parse(&format!("{}{}", SessionId::PREFIX, path.file_stem()?.to_str()?)).ok()
}

/// The card at a place; `None` if there is none.
pub(super) fn card_at(dir: &AuditDir, path: &Path) -> Result<Option<Card>, RecoverError> {
    let owned = || path.to_owned();
    match Card::reading(dir.files(), path) {
        Ok(Reading::Readable(card)) => Ok(Some(card)),
        Ok(Reading::TooNew(source)) => Err(RecoverError::TooNew { path: owned(), source }),
        Ok(Reading::Damaged(what)) => Err(match session_of_card(path).map(|id| dir.mark(id)) {
            Some(Err(why)) => RecoverError::not_ours(owned(), why),
            Some(Ok(_)) => {
                RecoverError::Damaged { path: owned(), line: 1, what: format!("not the card of a session: {what}") }
            }
            None => RecoverError::Damaged { path: owned(), line: 1, what: "its name is not that of a card".to_owned() },
        }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(RecoverError::Io { path: owned(), source }),
    }
}

/// Puts what is continued before what continues it: names tell the order only of sessions that began in different
/// seconds.
fn in_succession(found: Vec<SessionPaths>, continues: &HashMap<SessionId, SessionId>) -> Vec<SessionPaths> {
    let mut left: Vec<Option<SessionPaths>> = found.into_iter().map(Some).collect();
    let mut ordered = Vec::with_capacity(left.len());
    for n in 0..left.len() {
        let mut chain: Vec<SessionPaths> = left[n].take().into_iter().collect();
        while let Some(before) = chain.last().and_then(|paths| continues.get(&paths.id))
            && let Some(found) = left.iter_mut().find(|paths| paths.as_ref().is_some_and(|p| p.id == *before))
        {
            chain.extend(found.take());
        }
        ordered.extend(chain.into_iter().rev());
    }
    ordered
}

pub(super) fn paths_in(dir: &AuditDir, part: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(dir.files().names(part)?.into_iter().map(|name| part.join(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::WallTime;

    #[test]
    fn what_is_continued_is_recovered_first_whatever_its_name() {
        let dir = AuditDir::at("/nowhere");
        let id = |n: u64| SessionId::parse(&format!("mcp_{n:016x}")).unwrap();
        let session = |n| dir.session(WallTime::from_millis(0), id(n));
        // 5 continues 9, which continues 7; 3 continues one that is gone, 4 nothing.
        let continues = HashMap::from([(id(5), id(9)), (id(9), id(7)), (id(3), id(1))]);
        let found = [3, 4, 5, 7, 9].map(session).to_vec();
        let ordered: Vec<SessionId> = in_succession(found, &continues).into_iter().map(|paths| paths.id).collect();
        assert_eq!(ordered, [3, 4, 7, 9, 5].map(id));
        let circle = HashMap::from([(id(1), id(2)), (id(2), id(1))]);
        assert_eq!(in_succession([1, 2].map(session).to_vec(), &circle).len(), 2);
    }
}
