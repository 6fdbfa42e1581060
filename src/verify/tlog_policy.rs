//! Which logs and witnesses somebody trusts, and how many witnesses it takes (c2sp.org/tlog-policy).

use super::ed25519::verify_ed25519;
use assay_evidence::note::{self, AnyKey, Key, WitnessKey};
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// Bytes of a policy that is read.
pub const MAX_POLICY: u64 = 256 << 10;
/// Seconds that the clock of a witness may be ahead of ours.
const AHEAD: u64 = 600;
/// The algorithm of keys of logs, and of those of witnesses.
const ED25519: u8 = 1;
const COSIGNATURE: u8 = 4;

/// What is wrong with a policy, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct PolicyError {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong, as a fragment.
    pub what: String,
}

/// A witness of a policy.
#[derive(Debug, Clone)]
pub struct Witness {
    /// Its name in the policy.
    pub name: String,
    /// Its key; `None` for an algorithm that is not known here: it counts as one that never signs.
    pub key: Option<WitnessKey>,
    /// Where it is asked.
    pub url: Option<String>,
}

/// Whom to count: a witness or a group, by its place.
#[derive(Debug, Clone, Copy)]
enum Member {
    Witness(usize),
    Group(usize),
}

#[derive(Debug, Clone)]
struct Group {
    needed: usize,
    members: Vec<Member>,
}

/// A policy.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    logs: Vec<Key>,
    names_logs: bool,
    witnesses: Vec<Witness>,
    groups: Vec<Group>,
    /// `None`: nobody is needed.
    quorum: Option<Member>,
}

/// A cosignature of a witness that the policy names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cosigned {
    /// Its name in the policy.
    pub witness: String,
    /// When it signed, in seconds since 1970.
    pub time: u64,
}

/// What a policy makes of a note.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Judged {
    /// Who signed it, in the order of the policy.
    pub cosigned: Vec<Cosigned>,
    /// Whether they are enough.
    pub is_enough: bool,
    /// The earliest time by which enough had signed, in seconds since 1970; `None` also if nobody is needed.
    pub since: Option<u64>,
    /// The latest time from which on enough signed: before, nobody could know all of it.
    pub from: Option<u64>,
    /// What is wrong with signatures of theirs. If one does not hold, none of them counts.
    pub wrong: Vec<String>,
}

impl Policy {
    /// Reads a policy.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, PolicyError> {
        let mut reader = Reader::default();
        let text: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
        for (n, line) in text.iter().enumerate() {
            reader.line(line).map_err(|what| PolicyError { line: n + 1, what })?;
        }
        let end = text.len() - usize::from(bytes.ends_with(b"\n"));
        if !reader.has_quorum {
            return Err(PolicyError { line: end.max(1), what: "the policy has no quorum line".to_owned() });
        }
        Ok(reader.policy)
    }

    /// The logs that it names with a key that is known here.
    #[must_use]
    pub fn logs(&self) -> &[Key] {
        &self.logs
    }

    /// Whether it says which logs it is about; else the caller knows.
    #[must_use]
    pub const fn names_logs(&self) -> bool {
        self.names_logs
    }

    /// Its witnesses.
    #[must_use]
    pub fn witnesses(&self) -> &[Witness] {
        &self.witnesses
    }

    /// Whether one of its logs has signed a note; also if it names none.
    #[must_use]
    pub fn accepts_log(&self, note: &str) -> bool {
        !self.names_logs || self.logs.iter().any(|key| note::open(note, key, &holds).is_ok())
    }

    /// Who of its witnesses signed a note, and whether they are enough; `now` in seconds since 1970.
    #[must_use]
    pub fn judge(&self, note: &str, now: u64) -> Judged {
        let mut judged = Judged::default();
        let mut times = vec![None; self.witnesses.len()];
        for (witness, time) in self.witnesses.iter().zip(&mut times) {
            let Some(key) = &witness.key else { continue };
            match key.cosigned(note, &holds) {
                Ok(None) => {}
                Ok(Some(at)) if at > now.saturating_add(AHEAD) => {
                    judged.wrong.push(format!("{} signed at a time that is yet to come", witness.name));
                }
                Ok(Some(at)) => {
                    *time = Some(at);
                    judged.cosigned.push(Cosigned { witness: witness.name.clone(), time: at });
                }
                // A note with a signature that does not hold is refused as a whole.
                Err(e) => return Judged { wrong: vec![e.to_string()], ..Judged::default() },
            }
        }
        let Some(quorum) = self.quorum else { return Judged { is_enough: true, ..judged } };
        let mut moments: Vec<u64> = times.iter().copied().flatten().collect();
        moments.sort_unstable();
        let enough = |is_one: &dyn Fn(u64) -> bool| self.is_met(quorum, &|witness| times[witness].is_some_and(is_one));
        judged.since = moments.iter().copied().find(|by| enough(&|time| time <= *by));
        judged.from = moments.iter().rev().copied().find(|from| enough(&|time| time >= *from));
        judged.is_enough = judged.since.is_some();
        judged
    }

    fn is_met(&self, member: Member, signed: &dyn Fn(usize) -> bool) -> bool {
        match member {
            Member::Witness(witness) => signed(witness),
            Member::Group(group) => {
                let Group { needed, members } = &self.groups[group];
                members.iter().filter(|member| self.is_met(**member, signed)).count() >= *needed
            }
        }
    }
}

/// Whether an Ed25519 signature of a text holds.
pub(super) fn holds(key: &[u8], text: &[u8], signature: &[u8]) -> bool {
    verify_ed25519(key, text, signature).is_ok()
}

#[derive(Default)]
struct Reader {
    policy: Policy,
    names: HashMap<Vec<u8>, Member>,
    /// Keys of witnesses and of logs, and names that are members of a group.
    keys: [HashSet<Vec<u8>>; 2],
    grouped: HashSet<Vec<u8>>,
    has_quorum: bool,
}

impl Reader {
    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        if line.iter().any(|b| (*b < b' ' && *b != b'\t') || *b == 0x7f) {
            return Err("it has control characters".to_owned());
        }
        let mut words = line.split(|b| matches!(b, b' ' | b'\t')).filter(|word| !word.is_empty());
        let Some(first) = words.next().filter(|first| !first.starts_with(b"#")) else { return Ok(()) };
        let words: Vec<&[u8]> = words.collect();
        match (first, words.as_slice()) {
            (b"log", [key, url @ ..]) if url.len() < 2 => self.log(key),
            (b"witness", [name, key, url @ ..]) if url.len() < 2 => self.witness(name, key, url.first().copied()),
            (b"group", [name, needed, members @ ..]) if !members.is_empty() => self.group(name, needed, members),
            (b"quorum", [name]) => self.quorum(name),
            (b"log", _) => Err("expected: log VKEY [URL]".to_owned()),
            (b"witness", _) => Err("expected: witness NAME VKEY [URL]".to_owned()),
            (b"group", _) => Err("expected: group NAME all|any|NUMBER MEMBER...".to_owned()),
            (b"quorum", _) => Err("expected: quorum NAME".to_owned()),
            (other, _) => Err(format!("{:?} is not log, witness, group or quorum", text(other))),
        }
    }

    /// A key that is none of those before; whether its algorithm is known here.
    fn key<'k>(&mut self, key: &'k [u8], wanted: u8, other: u8, of: &str) -> Result<Option<&'k str>, String> {
        let known = std::str::from_utf8(key).ok();
        let any = known.and_then(AnyKey::parse).ok_or_else(|| format!("{:?} is not the text of a key", text(key)))?;
        if any.algorithm == other {
            return Err(format!("a key of the algorithm {other} is not one of a {of}"));
        }
        let is_new = self.keys[usize::from(wanted == ED25519)].insert(any.public);
        if !is_new {
            return Err(format!("the key of this {of} stands in the policy already"));
        }
        Ok(known.filter(|_| any.algorithm == wanted))
    }

    fn log(&mut self, key: &[u8]) -> Result<(), String> {
        let known = self.key(key, ED25519, COSIGNATURE, "log")?;
        self.policy.names_logs = true;
        if let Some(key) = known {
            self.policy.logs.push(Key::parse(key).map_err(|e| e.to_string())?);
        }
        Ok(())
    }

    fn witness(&mut self, name: &[u8], key: &[u8], url: Option<&[u8]>) -> Result<(), String> {
        let known = self.key(key, COSIGNATURE, ED25519, "witness")?;
        let key = known.map(WitnessKey::parse).transpose().map_err(|e| e.to_string())?;
        let url = url.map(|url| String::from_utf8(url.to_vec()).map_err(|_| "the URL is not UTF-8".to_owned()));
        self.name(name, Member::Witness(self.policy.witnesses.len()))?;
        self.policy.witnesses.push(Witness { name: text(name), key, url: url.transpose()? });
        Ok(())
    }

    fn group(&mut self, name: &[u8], needed: &[u8], members: &[&[u8]]) -> Result<(), String> {
        let of = members.len();
        let is_number = needed.iter().all(u8::is_ascii_digit) && !needed.starts_with(b"0");
        let needed = match needed {
            b"all" => of,
            b"any" => 1,
            _ if is_number => text(needed).parse().unwrap_or(usize::MAX),
            _ => return Err(format!("{:?} is not all, any or a number", text(needed))),
        };
        if needed > of {
            return Err(format!("the group has {of} members, which is fewer than it needs"));
        }
        let mut found = Vec::with_capacity(of);
        for member in members {
            found.push(self.named(member)?);
            if !self.grouped.insert(member.to_vec()) {
                return Err(format!("{:?} is a member of a group already", text(member)));
            }
        }
        self.name(name, Member::Group(self.policy.groups.len()))?;
        self.policy.groups.push(Group { needed, members: found });
        Ok(())
    }

    fn quorum(&mut self, name: &[u8]) -> Result<(), String> {
        if std::mem::replace(&mut self.has_quorum, true) {
            return Err("the policy has a quorum line already".to_owned());
        }
        self.policy.quorum = if name == b"none" { None } else { Some(self.named(name)?) };
        Ok(())
    }

    fn named(&self, name: &[u8]) -> Result<Member, String> {
        let found = self.names.get(name).copied();
        found.ok_or_else(|| format!("no line before this one defines {:?}", text(name)))
    }

    fn name(&mut self, name: &[u8], member: Member) -> Result<(), String> {
        if name == b"none" {
            return Err("none cannot be the name of a witness or group".to_owned());
        }
        match self.names.insert(name.to_vec(), member) {
            None => Ok(()),
            Some(_) => Err(format!("{:?} is defined already", text(name))),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use ed25519_dalek::{Signer as _, SigningKey};

    fn key(n: u8) -> (SigningKey, WitnessKey) {
        let key = SigningKey::from_bytes(&[n; 32]);
        let public = key.verifying_key().to_bytes();
        (key, WitnessKey::new(&format!("w{n}.example"), public).unwrap())
    }

    fn vkey(n: u8) -> String {
        key(n).1.to_string()
    }

    fn signed(text: &str, by: &[(u8, u64)]) -> String {
        let line = |(n, time): &(u8, u64)| {
            let (key, witness) = key(*n);
            witness.line(*time, &key.sign(WitnessKey::message(text, *time).as_bytes()).to_bytes())
        };
        format!("{text}\n{}", by.iter().map(line).collect::<String>())
    }

    #[test]
    fn the_example_of_the_specification_counts_as_it_says() {
        let witnesses = [1, 2, 3, 4, 5, 6].map(|n| format!("witness W{n} {}\n", vkey(n))).concat();
        let text = format!(
            "# who\n\nlog {}\n{witnesses} \tgroup X 2 W1 W2 W3\ngroup Y any W4 W5 W6\ngroup XY all X Y \nquorum XY\n",
            Key::new("example.com/log", [5; 32]).unwrap()
        );
        let policy = Policy::parse(text.as_bytes()).unwrap();
        let judge = |by: &[(u8, u64)]| {
            let judged = policy.judge(&signed("o\n1\nx\n", by), 1000);
            (judged.is_enough, judged.since)
        };
        assert_eq!(judge(&[(1, 5), (2, 9), (4, 7)]), (true, Some(9)));
        assert_eq!(judge(&[(1, 5), (2, 9), (3, 4), (4, 7), (5, 6)]), (true, Some(6)));
        assert_eq!(judge(&[(1, 5), (2, 9), (3, 4)]), (false, None));
        assert_eq!(judge(&[(1, 5), (4, 9), (5, 4)]), (false, None));
        assert_eq!(judge(&[(1, 5), (2, 1601), (4, 7)]), (false, None), "from the future");
        assert_eq!(judge(&[(1, 5), (1, 5), (2, 6), (4, 7)]), (false, None), "twice");
        assert!(!policy.accepts_log(&signed("o\n1\nx\n", &[(1, 5)])), "none of its logs signed");
        // An algorithm of later witnesses is one that never signs.
        let later = format!("w9+00112233+{}", STANDARD.encode([&[6][..], &[0; 1312]].concat()));
        let policy = format!("witness a {later} https://w.example/\nwitness b {}\ngroup g any a b\nquorum g", vkey(2));
        let policy = Policy::parse(policy.as_bytes()).unwrap();
        assert!(policy.judge(&signed("o\n1\nx\n", &[(2, 9)]), 1000).is_enough);
        let none = Policy::parse(b"quorum none").unwrap().judge(&signed("o\n1\nx\n", &[(2, 9)]), 1000);
        assert_eq!((none.is_enough, none.since), (true, None));
    }

    #[test]
    fn a_policy_that_means_nothing_is_refused_with_its_line() {
        let (one, two, log) = (vkey(1), vkey(2), Key::new("l", [5; 32]).unwrap());
        let same = WitnessKey::new("other", *key(1).1.public()).unwrap();
        for (bad, line, what) in [
            (format!("witness a {one}\nwitness b {same}\nquorum a"), 2, "stands in the policy already"),
            (format!("log {log}\nlog {log}\nquorum none"), 2, "stands in the policy already"),
            (format!("witness a {one}\nwitness a {two}\nquorum a"), 2, "defined already"),
            (format!("witness a {one}\ngroup g 1 a g\nquorum g"), 2, "no line before"),
            (format!("witness a {one}\ngroup g 2 a\nquorum g"), 2, "fewer than it needs"),
            (format!("witness a {one}\ngroup g 0 a\nquorum g"), 2, "is not all, any or a number"),
            (format!("witness a {one}\ngroup g 99999999999999999999 a\nquorum g"), 2, "fewer"),
            (format!("witness a {one}\ngroup g any a a\nquorum g"), 2, "member of a group already"),
            (format!("witness a {one}\ngroup g any a\ngroup h any a\nquorum g"), 3, "member of a group already"),
            (format!("witness a {one}\ngroup g any none\nquorum g"), 2, "no line before"),
            (format!("witness none {one}\nquorum none"), 1, "cannot be the name"),
            (format!("witness a {one}\nquorum a\nquorum a\n"), 3, "already"),
            (format!("witness a {one}\n"), 1, "no quorum"),
            (String::new(), 1, "no quorum"),
            ("quorum a\n".to_owned(), 1, "no line before"),
            (format!("witness a {log}\nquorum a"), 1, "not one of a witness"),
            (format!("log {one}\nquorum none"), 1, "not one of a log"),
            (format!("witness a {}\nquorum a", one.replace("w1", "w2")), 1, "not the text"),
            ("witness a x\nquorum a".to_owned(), 1, "not the text of a key"),
            (format!("witness a {one} u v\nquorum a"), 1, "expected: witness"),
            ("group g all\nquorum g".to_owned(), 1, "expected: group"),
            ("\nquorum none\r\n".to_owned(), 2, "control"),
            ("qourum none".to_owned(), 1, "is not log, witness"),
        ] {
            let e = Policy::parse(bad.as_bytes()).expect_err(&bad);
            assert!(e.line == line && e.what.contains(what), "{bad}: {e}");
        }
    }
}
