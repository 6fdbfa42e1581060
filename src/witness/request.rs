//! What is sent to a witness (c2sp.org/tlog-witness, `add-checkpoint`): the size that it knows, a proof, a checkpoint.

use crate::{
    note::MAX_NOTE,
    tree::{Hash, MAX_PROOF},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Bytes of a request, at most.
pub const MAX_REQUEST: usize = MAX_NOTE + 48 * (MAX_PROOF + 2);

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// How many entries the witness has seen, as whoever asks believes.
    pub old: u64,
    /// Proves that the tree begins with so many.
    pub proof: Vec<Hash>,
    /// The signed checkpoint.
    pub note: String,
}

impl Request {
    /// The body.
    #[must_use]
    pub fn body(&self) -> String {
        let proof: String = self.proof.iter().flat_map(|hash| [STANDARD.encode(hash), "\n".to_owned()]).collect();
        format!("old {}\n{proof}\n{}", self.old, self.note)
    }

    /// Reads the one form of a body.
    #[must_use]
    pub fn read(body: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?;
        let (head, note) = text.split_once("\n\n")?;
        let mut lines = head.split('\n');
        let old = lines.next()?.strip_prefix("old ")?.parse().ok()?;
        let hash = |line: &str| Hash::try_from(STANDARD.decode(line).ok()?).ok();
        let proof: Option<Vec<Hash>> = lines.take(MAX_PROOF + 1).map(hash).collect();
        let read = Self { old, proof: proof?, note: note.to_owned() };
        (read.proof.len() <= MAX_PROOF && read.body() == text).then_some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_one_form() {
        let request =
            |old, hashes| Request { old, proof: vec![[7; 32]; hashes], note: "o\n1\nr\n\n\u{2014} o x\n".into() };
        for (old, hashes) in [(0, 0), (u64::MAX, 63), (9, 1)] {
            let one = request(old, hashes);
            assert_eq!(Request::read(one.body().as_bytes()), Some(one));
        }
        let good = request(9, 1).body();
        for bad in [
            request(9, 64).body(),
            good.replace("old 9", "old 09"),
            good.replace("old 9", "old +9"),
            good.replace("old 9", "old -1"),
            good.replace("old 9", "old  9"),
            good.replace("old 9", "new 9"),
            good.replace("old 9\n", ""),
            good.replace("=\n", "\n"),
            good.replace("=\n", "=\r\n"),
            good.replacen("\n\n", "\n", 2),
            String::new(),
        ] {
            assert_eq!(Request::read(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(Request::read(b"old 0\n\n\xff"), None);
    }
}
