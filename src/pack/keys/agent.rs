//! Keys that an ssh-agent keeps: the two messages of its protocol that signing needs (draft-ietf-sshm-ssh-agent, sections 3.5
//! and 3.6), with keys and signatures as in RFC 8709.

use super::KEY_LEN;
use crate::sys::peer;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signature, VerifyingKey};
use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The longest message either way, as OpenSSH has it.
const LARGEST: usize = 256 << 10;
/// How long nobody waits in vain: a proxy that ends gives up on threads after 2 s.
const HURRY: Duration = Duration::from_millis(1500);
/// How long a person who is asked by the agent has.
const PATIENCE: Duration = Duration::from_mins(1);
/// An agent that did not answer is not asked again for so long.
const REST: Duration = Duration::from_secs(10);

const KIND: &[u8] = b"ssh-ed25519";
const FAILURE: u8 = 5;
const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;

/// An Ed25519 key that an agent has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The 32 raw bytes of the public key.
    pub public: [u8; KEY_LEN],
    /// What its owner called it.
    pub comment: String,
}

impl Identity {
    /// One line, as `ssh-add -L` prints it and `NAME.agent` has it.
    #[must_use]
    pub fn line(&self) -> String {
        let comment: String = self.comment.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let line = format!("ssh-ed25519 {} {comment}", STANDARD.encode(blob(&self.public)));
        line.trim_end().to_owned() + "\n"
    }

    /// Reads such a line.
    #[must_use]
    pub fn read(line: &str) -> Option<Self> {
        let line = line.strip_suffix('\n').unwrap_or(line);
        let mut words = line.splitn(3, ' ');
        let (kind, key) = (words.next()?, words.next()?);
        let public = key_of(&STANDARD.decode(key).ok()?).filter(|_| kind.as_bytes() == KIND)?;
        Some(Self { public, comment: words.next().unwrap_or_default().to_owned() })
    }

    /// Whether it is the one that a user means: by its comment, or by its fingerprint here or as `ssh-add -l` prints it.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        use sha2::{Digest as _, Sha256};
        let ssh = base64::engine::general_purpose::STANDARD_NO_PAD.encode(Sha256::digest(blob(&self.public)));
        let ours = crate::model::sha256_hex(&self.public);
        name == self.comment || name == ours || name.strip_prefix("SHA256:") == Some(&ssh)
    }
}

/// Where an agent listens.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    socket: PathBuf,
    /// It was kept with the key: by now somebody else may listen there.
    is_kept: bool,
}

/// A secret key in an agent.
#[derive(Debug)]
pub(super) struct Agent {
    /// Asked in this order.
    places: Vec<Place>,
    key: VerifyingKey,
    patience: Duration,
    /// When it last did not answer.
    silent: Mutex<Option<Instant>>,
}

impl Agent {
    /// The agent of this process, or the one that had this key when it was added.
    pub(super) fn of_user(key: VerifyingKey, kept: Option<PathBuf>) -> Self {
        let kept = kept.map(|socket| Place { socket, is_kept: true });
        let mut places: Vec<Place> = socket().map(|socket| Place { socket, is_kept: false }).into_iter().collect();
        places.extend(kept.filter(|kept| places.iter().all(|place| place.socket != kept.socket)));
        Self { places, key, patience: HURRY, silent: Mutex::default() }
    }

    /// The same, while a person waits.
    pub(super) fn patiently(self) -> Self {
        Self { patience: PATIENCE, ..self }
    }

    pub(super) fn public(&self) -> [u8; KEY_LEN] {
        self.key.to_bytes()
    }

    /// Whether there is none to ask.
    pub(super) const fn is_missing(&self) -> bool {
        self.places.is_empty()
    }

    /// A signature that holds.
    pub(super) fn sign(&self, message: &[u8]) -> io::Result<[u8; 64]> {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        if silent.is_some_and(|since| since.elapsed() < REST) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the agent did not answer a moment ago"));
        }
        *silent = None;
        let mut said: Option<io::Error> = None;
        for place in &self.places {
            match self.signed_by(place, message) {
                Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                    *silent = Some(Instant::now());
                    return Err(e);
                }
                Err(e) => {
                    said = Some(match said {
                        None => e,
                        Some(before) => io::Error::new(before.kind(), format!("{before}; {e}")),
                    });
                }
                signed => return signed,
            }
        }
        Err(said.unwrap_or_else(no_agent))
    }

    fn signed_by(&self, place: &Place, message: &[u8]) -> io::Result<[u8; 64]> {
        let mut request = vec![SIGN_REQUEST];
        put(&mut request, &blob(&self.public()));
        put(&mut request, message);
        request.extend([0; 4]);
        let answer = ask(place, &request, self.patience)?;
        let wrong = |what: &str| io::Error::other(format!("the agent at {} {what}", place.socket.display()));
        if answer == [FAILURE] {
            return Err(wrong(
                "refused to sign: it is locked, or does not have this key any more, or its user said no",
            ));
        }
        let signature = signature(&answer).ok_or_else(|| wrong("gave an answer that is no signature"))?;
        let holds = self.key.verify_strict(message, &Signature::from_bytes(&signature)).is_ok();
        if holds { Ok(signature) } else { Err(wrong("gave a signature that does not hold; it is not used")) }
    }
}

/// What keeps `NAME.agent` beside the key: the socket of the agent that had it, as a line of its own.
const KEPT: &str = "socket ";

/// The line of the socket of this process's agent; nothing if it cannot be one.
pub(super) fn kept_line() -> String {
    let socket = socket().and_then(|socket| std::path::absolute(socket).ok());
    let text = socket.as_deref().and_then(Path::to_str).filter(|text| !text.chars().any(char::is_control));
    text.map_or_else(String::new, |text| format!("{KEPT}{text}\n"))
}

/// What such a file says: the key, and where its agent was.
pub(super) fn read(text: &str) -> Option<(Identity, Option<PathBuf>)> {
    let (key, rest) = text.split_once('\n').unwrap_or((text, ""));
    let kept = match rest {
        "" => None,
        rest => {
            let path = PathBuf::from(rest.strip_suffix('\n').unwrap_or(rest).strip_prefix(KEPT)?);
            Some(path).filter(|path| path.is_absolute() && !rest.trim_end_matches('\n').contains('\n'))
        }
    };
    (rest.is_empty() || kept.is_some()).then_some((Identity::read(key)?, kept))
}

fn socket() -> Option<PathBuf> {
    std::env::var_os("SSH_AUTH_SOCK").filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn no_agent() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "there is no agent: SSH_AUTH_SOCK is not set")
}

/// The Ed25519 keys that the agent of this process has.
///
/// # Errors
/// There is none, or it does not answer as an agent does.
pub fn identities() -> io::Result<Vec<Identity>> {
    let socket = socket().ok_or_else(no_agent)?;
    let place = Place { socket: socket.clone(), is_kept: false };
    let answer = ask(&place, &[REQUEST_IDENTITIES], PATIENCE)?;
    let wrong = || io::Error::other(format!("the agent at {} did not say which keys it has", socket.display()));
    identities_of(&answer).ok_or_else(wrong)
}

/// One message to the agent, and its answer.
fn ask(Place { socket, is_kept }: &Place, request: &[u8], patience: Duration) -> io::Result<Vec<u8>> {
    let len = u32::try_from(request.len()).ok().filter(|_| request.len() <= LARGEST);
    let len = len.ok_or_else(|| io::Error::other("this is too long for an agent to sign"))?;
    let talked = || -> io::Result<Vec<u8>> {
        let mut talk = Talk { stream: peer::connect(socket)?, end: Instant::now() + patience };
        let ours = [0, rustix::process::geteuid().as_raw()];
        if *is_kept && !ours.contains(&peer::peer_uid(&talk.stream)?) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user listens there by now"));
        }
        talk.say(&[&len.to_be_bytes(), request].concat())?;
        let mut len = [0; 4];
        talk.hear(&mut len)?;
        let len = usize::try_from(u32::from_be_bytes(len)).unwrap_or(usize::MAX);
        if len > LARGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its answer is too long"));
        }
        let mut answer = vec![0; len];
        talk.hear(&mut answer)?;
        Ok(answer)
    };
    talked().map_err(|e| {
        // Both are what a queue or a buffer says that stays full.
        let is_silent = matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        let kind = if is_silent { io::ErrorKind::TimedOut } else { e.kind() };
        let what = if is_silent { format!("it did not answer within {patience:?}") } else { e.to_string() };
        io::Error::new(kind, format!("the agent at {} cannot be asked: {what}", socket.display()))
    })
}

/// A conversation that has an end, however slowly the other side speaks.
struct Talk {
    stream: UnixStream,
    end: Instant,
}

impl Talk {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }

    fn say(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(self.left()?)?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn hear(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            self.stream.set_read_timeout(self.left()?)?;
            match self.stream.read(&mut bytes[at..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => at += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// What of a message is not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*number))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(text)
    }

    /// The two texts that are all there is.
    fn pair(mut self) -> Option<(&'a [u8], &'a [u8])> {
        let pair = (self.text()?, self.text()?);
        self.0.is_empty().then_some(pair)
    }
}

fn put(out: &mut Vec<u8>, text: &[u8]) {
    // What is too long is refused as a whole.
    out.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(text);
}

fn blob(public: &[u8; KEY_LEN]) -> Vec<u8> {
    let mut blob = Vec::new();
    put(&mut blob, KIND);
    put(&mut blob, public);
    blob
}

fn key_of(blob: &[u8]) -> Option<[u8; KEY_LEN]> {
    let (kind, key) = Rest(blob).pair()?;
    key.try_into().ok().filter(|_| kind == KIND)
}

fn identities_of(answer: &[u8]) -> Option<Vec<Identity>> {
    let mut rest = Rest(answer.strip_prefix(&[IDENTITIES_ANSWER])?);
    let mut all = Vec::new();
    for _ in 0..rest.number()? {
        let (blob, comment) = (rest.text()?, rest.text()?);
        let comment = String::from_utf8_lossy(comment).into_owned();
        all.extend(key_of(blob).map(|public| Identity { public, comment }));
    }
    rest.0.is_empty().then_some(all)
}

fn signature(answer: &[u8]) -> Option<[u8; 64]> {
    let mut rest = Rest(answer.strip_prefix(&[SIGN_RESPONSE])?);
    let signed = rest.text().filter(|_| rest.0.is_empty())?;
    let (kind, signature) = Rest(signed).pair()?;
    signature.try_into().ok().filter(|_| kind == KIND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_dalek::{Signer as _, SigningKey};
    use proptest::prelude::*;
    use std::{os::unix::net::UnixListener, thread};

    fn answered(signature: &[u8]) -> Vec<u8> {
        let (mut signed, mut answer) = (Vec::new(), vec![SIGN_RESPONSE]);
        put(&mut signed, KIND);
        put(&mut signed, signature);
        put(&mut answer, &signed);
        answer
    }

    /// What comes of asking one that answers a request with these bytes, and then waits.
    fn of(say: impl Fn(&[u8]) -> Vec<u8> + Send + 'static) -> io::Result<[u8; 64]> {
        let tmp = tempfile::tempdir().unwrap();
        let socket = tmp.path().join("agent");
        let listener = UnixListener::bind(&socket).unwrap();
        let served = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut len = [0; 4];
            stream.read_exact(&mut len).unwrap();
            let mut request = vec![0; u32::from_be_bytes(len) as usize];
            stream.read_exact(&mut request).unwrap();
            let _ = stream.write_all(&say(&request));
            // Until the other side has had enough.
            let _ = stream.read(&mut len);
        });
        let key = SigningKey::from_bytes(&[7; 32]).verifying_key();
        let patience = Duration::from_millis(200);
        let places = vec![Place { socket, is_kept: true }];
        let agent = Agent { places, key, patience, silent: Mutex::default() };
        let signed = agent.sign(b"{\"a\":1}");
        served.join().unwrap();
        if signed.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::TimedOut) {
            let again = agent.sign(b"again").unwrap_err().to_string();
            assert!(again.contains("a moment ago"), "{again}");
        }
        signed
    }

    fn message(answer: &[u8]) -> Vec<u8> {
        [&(answer.len() as u32).to_be_bytes(), answer].concat()
    }

    #[test]
    fn what_an_agent_signs_is_taken_only_if_it_holds_and_it_is_not_waited_for() {
        let key = SigningKey::from_bytes(&[7; 32]);
        let honest = key.sign(b"{\"a\":1}").to_bytes();
        let public = key.verifying_key().to_bytes();
        let signed = of(move |request| {
            let mut asked = vec![SIGN_REQUEST];
            put(&mut asked, &blob(&public));
            put(&mut asked, b"{\"a\":1}");
            asked.extend([0; 4]);
            assert_eq!(request, asked);
            message(&answered(&honest))
        });
        assert_eq!(signed.unwrap(), honest);
        let refused = |answer: Vec<u8>, what: &str| {
            let said = of(move |_| answer.clone()).unwrap_err().to_string();
            assert!(said.contains(what), "{said}");
        };
        let other = SigningKey::from_bytes(&[8; 32]).sign(b"{\"a\":1}").to_bytes();
        refused(message(&answered(&other)), "does not hold");
        refused(message(&answered(&key.sign(b"{\"a\":2}").to_bytes())), "does not hold");
        refused(message(&answered(&honest[..63])), "no signature");
        refused(message(&[answered(&honest), vec![0]].concat()), "no signature");
        refused(message(&[FAILURE]), "refused");
        refused(message(&[]), "no signature");
        refused(vec![0xff; 9], "too long");
        refused(Vec::new(), "did not answer within");
        refused(message(&answered(&honest))[..50].to_vec(), "did not answer within");
        let missing = Agent { places: Vec::new(), ..Agent::of_user(key.verifying_key(), None) };
        assert!(missing.sign(b"x").unwrap_err().to_string().contains("SSH_AUTH_SOCK"));
    }

    #[test]
    fn the_line_of_a_key_is_read_again_and_names_it_in_three_ways() {
        // The key of RFC 8410, section 10.1, and what ssh-keygen -lf says of it.
        let text = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBm/RAlphM3+hUG6wWfcO5bIUIaqMLa2ywxcOK1wMWbh a b\n";
        let key = Identity::read(text).unwrap();
        assert_eq!((key.line().as_str(), key.comment.as_str()), (text, "a b"));
        assert!(key.is_called("SHA256:ebCT4wkJOqO5AIlHG03cHvn3Cr3ZZEEh8m81duHhR3Q"));
        assert!(key.is_called("a b") && key.is_called(&crate::model::sha256_hex(&key.public)) && !key.is_called(""));
        let unnamed = Identity { comment: String::new(), ..key.clone() };
        assert_eq!(Identity::read(&unnamed.line()), Some(unnamed));
        let forged = Identity { comment: "a\nssh-ed25519 b".to_owned(), ..key };
        assert_eq!(forged.line().lines().count(), 1);
        for bad in ["", "ssh-ed25519", "ssh-rsa AAAA", "ssh-ed25519 AAAA", "ssh-ed25519 !"] {
            assert_eq!(Identity::read(bad), None, "{bad}");
        }
        let socket = |rest: &str| read(&format!("{text}{rest}")).map(|(_, socket)| socket);
        assert_eq!(socket(""), Some(None));
        assert_eq!(socket("socket /run/a b\n"), Some(Some("/run/a b".into())));
        for bad in ["socket run/a\n", "socket /run/a\nsocket /run/b\n", "x\n", "\n", "socket \n"] {
            assert_eq!(socket(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn keys_are_read_as_they_are_said_and_nothing_else_is_one(
            keys in prop::collection::vec((any::<[u8; 32]>(), "[a-z]{0,9}"), 0..4),
            junk in prop::collection::vec(any::<u8>(), 0..200),
            cut in 0_usize..400,
        ) {
            let mut answer = vec![IDENTITIES_ANSWER];
            answer.extend((keys.len() as u32 + 1).to_be_bytes());
            for (public, comment) in &keys {
                put(&mut answer, &blob(public));
                put(&mut answer, comment.as_bytes());
            }
            // Of another kind.
            put(&mut answer, b"\0\0\0\x07ssh-rsa\0\0\0\x01x");
            put(&mut answer, b"other");
            let all: Vec<_> =
                keys.into_iter().map(|(public, comment)| Identity { public, comment }).collect();
            prop_assert_eq!(identities_of(&answer), Some(all));
            if let Some(cut) = answer.get(..cut).filter(|cut| cut.len() < answer.len()) {
                prop_assert_eq!(identities_of(cut), None);
            }
            prop_assert_eq!(identities_of(&[answer.as_slice(), &[0]].concat()), None);
            let _ = identities_of(&[&[IDENTITIES_ANSWER], junk.as_slice()].concat());
            prop_assert_eq!(signature(&[&[SIGN_RESPONSE], junk.as_slice()].concat()), None);
        }
    }
}
