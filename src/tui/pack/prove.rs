//! A proof of what is selected, written to a file.

use super::{PackScreen, row::EvidenceRow as Line};
use crate::{
    pack::prove::{What, prove},
    paths,
    tui::msg::{Effect, Job, Target, Ticket},
};
use std::path::Path;

impl PackScreen {
    /// Writes a proof of the selected receipt or event.
    pub(super) fn prove(&mut self) -> Vec<Effect> {
        let warn = |what: &str| vec![Effect::Warn(what.to_owned())];
        let Some(Target::Pack(dir)) = self.target.clone() else {
            return warn("only what is in a pack can be proven");
        };
        let what = match self.book().and_then(|book| book.selected()).map(|line| (&line.row, line.number)) {
            Some((Line::Call(call), _)) => call.receipt_id.map(What::Receipt),
            Some((Line::Event(_), number)) => Some(What::Event(number)),
            _ => None,
        };
        let Some(what) = what else { return warn("this line is not a call or an event") };
        let ticket = Ticket::new();
        self.proving = Some(ticket.clone());
        vec![Effect::Start(Job::new(&ticket, "prove", move |teller| {
            let home = paths::assay_home().map_err(|e| e.to_string());
            teller.tell(home.and_then(|home| written(&dir, what, &home)));
        }))]
    }
}

/// Writes the proof into the user directory, and says where and what it discloses.
pub(super) fn written(pack: &Path, what: What, home: &Path) -> Result<String, String> {
    let proof = prove(pack, what).map_err(|e| e.to_string())?.to_string();
    let path = paths::write_dated(&home.join("proofs"), "tlog-proof", proof.as_bytes()).map_err(|e| e.to_string())?;
    let discloses = match what {
        What::Receipt(_) => "the receipt, its event and hashes beside it",
        What::Event(_) => "the event and hashes beside it",
    };
    Ok(format!("{} discloses {discloses}", path.display()))
}
