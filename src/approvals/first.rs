//! The first decision about a server: what was seen of it first is what it is compared with.

use super::{
    lockfile,
    store::{self, Contents, Draft, StoreError, hex_of},
};
use crate::{
    model::surface::{Identity, Snapshot},
    pack::keys::Signer,
    paths::AuditDir,
};

/// Makes what was seen the baseline: how many definitions that are; `None` where somebody has decided meanwhile.
///
/// # Errors
/// [`StoreError`].
pub fn first_use(
    dir: &AuditDir,
    server: &Identity,
    seen: &Snapshot,
    signer: &Signer,
) -> Result<Option<usize>, StoreError> {
    let mut contents = Contents::new();
    let mut items = Vec::new();
    for (pin, content) in lockfile::pins(seen) {
        if let (Some(hash), Some(Some(text))) = (hex_of(&pin.hash), &content) {
            contents.insert(hash.to_owned(), text.clone().into_bytes());
        }
        items.push(pin);
    }
    let count = items.len();
    let root = seen.root().ok().map(|root| root.to_string());
    let draft = Draft::first_use(server.clone(), seen, items, root);
    let written = store::append(dir, &contents, |chain| {
        if chain.last_of(&server.id).is_some() {
            return Err(StoreError::Conflict("somebody decided meanwhile".to_owned()));
        }
        draft.signed(chain, signer)
    });
    match written {
        Ok(_) => Ok(Some(count)),
        Err(StoreError::Conflict(_)) => Ok(None),
        Err(e) => Err(e),
    }
}
