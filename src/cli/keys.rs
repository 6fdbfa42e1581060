//! `assay keys`: list, generate, show, export, import, add-agent, delete.

use super::out;
use crate::{
    error::{Exit, Failure},
    files,
    model::sha256_hex,
    pack::keys::{self, Identity, KeyStore, PublicKey, SignerId},
    text::{visible, width},
};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use std::{
    fmt::Write as _,
    io::{BufRead as _, IsTerminal as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

/// Arguments of `assay keys`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay keys list\n  assay keys export --out assay-local.pem\n\n\
                        Keys are in $ASSAY_HOME/keys, else ~/.assay/keys. Secret keys never leave this directory.")]
pub struct KeysArgs {
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// List the signers and the fingerprints of their keys
    #[command(after_help = "Example:\n  assay keys list --json")]
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Create a new key; an existing key is never replaced
    #[command(after_help = "Example:\n  assay keys generate --signer ci-2026 --activate")]
    Generate {
        /// Name of the signer
        #[arg(long, value_name = "NAME", default_value = crate::pack::keys::DEFAULT_SIGNER, value_parser = signer_id)]
        signer: SignerId,
        /// Sign with this key by default from now on
        #[arg(long)]
        activate: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Show a signer's public key and fingerprint
    #[command(after_help = "Example:\n  assay keys show assay-local")]
    Show {
        /// Name of the signer; the active one if none is given
        #[arg(value_parser = signer_id)]
        signer: Option<SignerId>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Write a signer's public key, for those who verify packs
    #[command(after_help = "Example:\n  assay keys export --format pem --out assay-local.pem")]
    Export {
        /// Name of the signer; the active one if none is given
        #[arg(value_parser = signer_id)]
        signer: Option<SignerId>,
        /// Format of the key
        #[arg(long, value_enum, default_value_t = Format::Pem)]
        format: Format,
        /// Write to this new file instead of standard output
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Bring a secret key that was made elsewhere; an existing key is never replaced
    #[command(after_help = "Example:\n  openssl genpkey -algorithm ed25519 -out ci.pem\n  \
                            assay keys import --signer ci-2026 ci.pem\n\n\
                            The file has the 32 bytes of a seed (as NAME.key here), or an Ed25519 key in PKCS #8, as PEM or DER.")]
    Import {
        /// File with the secret key, which only you can read
        file: PathBuf,
        /// Name of the signer
        #[arg(long, value_name = "NAME", value_parser = signer_id)]
        signer: SignerId,
        /// Sign with this key by default from now on
        #[arg(long)]
        activate: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Sign with an Ed25519 key that ssh-agent keeps: here is only its public key
    #[command(after_help = "Example:\n  ssh-keygen -t ed25519 -C evidence -f evidence && ssh-add evidence\n  \
                            assay keys add-agent ci --key evidence --activate\n\n\
                            Recorders find the agent by SSH_AUTH_SOCK, and if they lack that, or it does not sign, at\n\
                            the socket that it has now, which is kept. Servers do not get that variable then.\n\
                            While the agent is silent or locked, sessions are recorded, without checkpoints and packs;\n\
                            assay recover makes the packs later.")]
    AddAgent {
        /// Name of the signer
        #[arg(value_parser = signer_id)]
        signer: SignerId,
        /// The key: its comment or its fingerprint, if the agent has more than one
        #[arg(long, value_name = "FPR|COMMENT")]
        key: Option<String>,
        /// Sign with this key by default from now on
        #[arg(long)]
        activate: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Remove a secret key for good
    #[command(after_help = "Example:\n  assay keys delete ci-2025\n\n\
                            Packs that were signed with it still verify. Nothing can be signed with it again.")]
    Delete {
        /// Name of the signer
        #[arg(value_parser = signer_id)]
        signer: SignerId,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

/// How a public key is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// `SubjectPublicKeyInfo` (RFC 8410), for openssl
    Pem,
    /// Base64 of the 32 bytes, as in a manifest
    Base64,
    /// SHA-256 of the 32 bytes, as `verify-pack --signer` takes it
    Fingerprint,
    /// The 32 bytes
    Raw,
}

fn signer_id(text: &str) -> Result<SignerId, String> {
    SignerId::parse(text).map_err(|e| e.to_string())
}

/// Runs `assay keys`.
///
/// # Errors
/// A key or key store that cannot be used.
pub fn run(args: &KeysArgs) -> Result<Exit, Failure> {
    let store = KeyStore::of_user().map_err(Failure::bad_input)?;
    match &args.command {
        KeysCommand::List { json } => out::answering(*json, || list(&store, *json)),
        KeysCommand::Generate { signer, activate, json } => {
            out::answering(*json, || generate(&store, signer, *activate, *json))
        }
        KeysCommand::Show { signer, json } => out::answering(*json, || show(&store, signer.as_ref(), *json)),
        KeysCommand::Export { signer, format, out } => export(&store, signer.as_ref(), *format, out.as_ref()),
        KeysCommand::Import { file, signer, activate, json } => {
            out::answering(*json, || import(&store, signer, file, *activate, *json))
        }
        KeysCommand::AddAgent { signer, key, activate, json } => {
            out::answering(*json, || add_agent(&store, signer, key.as_deref(), *activate, *json))
        }
        KeysCommand::Delete { signer, yes } => delete(&store, signer, *yes),
    }
}

fn import(store: &KeyStore, signer: &SignerId, file: &Path, activate: bool, as_json: bool) -> Result<Exit, Failure> {
    let bad = |what: String| Failure::bad_input(format_args!("{}: {what}", file.display()));
    let opened = files::named(file).map_err(|e| bad(e.to_string()))?;
    let mode = opened.metadata().map_err(|e| bad(e.to_string()))?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(bad(format!("others can read it: it has mode {mode:04o}"))
            .hint("chmod 600, if nobody has read it; else make a new key: assay keys generate"));
    }
    let bytes = Zeroizing::new(files::read_all(opened, keys::LARGEST).map_err(|e| bad(e.to_string()))?);
    let seed = keys::seed(&bytes).map_err(|what| {
        bad(what.to_owned()).hint("openssl genpkey -algorithm ed25519 makes one; ssh-keygen's own form is not read")
    })?;
    store.import(signer, &seed)?;
    if activate {
        store.set_active(signer)?;
    }
    show(store, Some(signer), as_json)
}

fn add_agent(
    store: &KeyStore,
    signer: &SignerId,
    key: Option<&str>,
    activate: bool,
    as_json: bool,
) -> Result<Exit, Failure> {
    let all = keys::identities()
        .map_err(|e| Failure::bad_input(e).hint("ssh-agent prints the variables, ssh-add KEY gives it a key"))?;
    let wanted: Vec<&Identity> = all.iter().filter(|one| key.is_none_or(|key| one.is_called(key))).collect();
    let listed = |all: &[&Identity]| {
        let line = |one: &&Identity| format!("\n  {}  {}", sha256_hex(&one.public), visible(&one.comment));
        all.iter().map(line).collect::<String>()
    };
    let identity = match (wanted.as_slice(), key) {
        ([one], _) => one,
        ([], None) => {
            return Err(Failure::bad_input("the agent has no Ed25519 key")
                .hint("make one: ssh-keygen -t ed25519; give it to the agent: ssh-add"));
        }
        ([], Some(key)) => {
            let has = listed(&all.iter().collect::<Vec<_>>());
            return Err(Failure::bad_input(format_args!("the agent has no Ed25519 key {key:?}; it has:{has}")));
        }
        (several, _) => {
            let what = format!("which key? the agent has{}", listed(several));
            return Err(Failure::bad_input(what).hint("name one with --key: its fingerprint or its comment"));
        }
    };
    store.add_agent(signer, identity)?;
    if activate {
        store.set_active(signer)?;
    }
    show(store, Some(signer), as_json)
}

fn delete(store: &KeyStore, signer: &SignerId, yes: bool) -> Result<Exit, Failure> {
    if !store.has(signer) {
        store.delete(signer)?;
    }
    let in_agent = store.is_in_agent(signer);
    let key = store.public(signer).map_or_else(|_| "it cannot be used".to_owned(), |key| key.fingerprint());
    if !yes {
        if !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
            return Err(Failure::bad_input("nobody can be asked here").hint("--yes deletes without asking"));
        }
        let then = if in_agent { "the agent keeps the key" } else { "nothing can be signed with it again" };
        let question = format!("{signer}  {key}\npacks that it signed still verify; {then}\ndelete it? [y/N] ");
        out::stdout(question.as_bytes())?;
        let mut line = String::new();
        let _ = std::io::stdin().lock().read_line(&mut line);
        if !matches!(line.trim(), "y" | "Y" | "yes") {
            out::stdout(b"nothing was deleted\n")?;
            return Ok(Exit::Ok);
        }
    }
    let signs = store.active().is_ok_and(|active| active == *signer);
    store.delete(signer)?;
    let next = match store.active() {
        Ok(active) if !signs && store.has(&active) => format!("sessions are signed by {active}, as before"),
        Ok(active) if store.has(&active) => format!("sessions are signed by {active} now"),
        _ => "the next session makes a new key".to_owned(),
    };
    out::stdout(format!("deleted {signer}  {key}\n{next}\n").as_bytes())?;
    Ok(Exit::Ok)
}

/// The file that a signer is known by.
fn place(store: &KeyStore, signer: &SignerId) -> PathBuf {
    if store.is_in_agent(signer) { store.agent_path(signer) } else { store.key_path(signer) }
}

fn described(store: &KeyStore, key: &PublicKey) -> Value {
    let in_agent = store.is_in_agent(&key.signer);
    json!({
        "signer_id": key.signer.as_str(),
        "fingerprint": key.fingerprint(),
        "public_key": key.base64(),
        "kept_in": if in_agent { "agent" } else { "file" },
        "key_path": place(store, &key.signer).display().to_string(),
        "pub_path": (!in_agent).then(|| store.pub_path(&key.signer).display().to_string()),
    })
}

/// Lists also what cannot be used, and says why: exit code 3 if there is any such.
fn list(store: &KeyStore, as_json: bool) -> Result<Exit, Failure> {
    let listed = store.list()?;
    let broken = listed.iter().any(|l| l.public.is_err());
    if as_json {
        let signer = |l: &crate::pack::keys::Listed| {
            let mut value = match &l.public {
                Ok(key) => described(store, key),
                Err(e) => json!({"signer_id": l.signer.as_str(), "error": e.to_string(), "hint": e.hint()}),
            };
            value["active"] = json!(l.active);
            value
        };
        out::json(&json!({
            "keys_dir": store.dir().display().to_string(),
            "signers": listed.iter().map(signer).collect::<Vec<_>>(),
        }))?;
    } else {
        let mut text = String::new();
        let column = listed.iter().map(|l| width(l.signer.as_str())).max().unwrap_or(0);
        for l in &listed {
            let mark = if l.active { '*' } else { ' ' };
            let _ = match &l.public {
                Ok(key) => {
                    let kept = if store.is_in_agent(&l.signer) { "  in an agent" } else { "" };
                    writeln!(text, "{mark} {:column$}  {}{kept}", l.signer.as_str(), key.fingerprint())
                }
                Err(e) => {
                    writeln!(text, "{mark} {:column$}  cannot be used: {}", l.signer.as_str(), visible(&e.to_string()))
                }
            };
            if let Some(hint) = l.public.as_ref().err().and_then(crate::pack::keys::KeyError::hint) {
                let _ = writeln!(text, "    hint: {}", visible(&hint));
            }
        }
        if listed.is_empty() {
            let _ = writeln!(
                text,
                "no keys in {}\nthe first session creates one; or run: assay keys generate",
                visible(&store.dir().display().to_string())
            );
        }
        out::stdout(text.as_bytes())?;
    }
    Ok(if broken { Exit::BadInput } else { Exit::Ok })
}

fn generate(store: &KeyStore, signer: &SignerId, activate: bool, as_json: bool) -> Result<Exit, Failure> {
    store.generate(signer)?;
    if activate {
        store.set_active(signer)?;
    }
    show(store, Some(signer), as_json)
}

fn chosen(store: &KeyStore, signer: Option<&SignerId>) -> Result<PublicKey, Failure> {
    let signer = signer.map_or_else(|| store.active(), |s| Ok(s.clone()))?;
    Ok(store.public(&signer)?)
}

fn show(store: &KeyStore, signer: Option<&SignerId>, as_json: bool) -> Result<Exit, Failure> {
    let key = chosen(store, signer)?;
    if as_json {
        out::json(&described(store, &key))?;
    } else {
        let text = format!(
            "signer       {}\nfingerprint  {}\npublic key   {}\nfile         {}\n\n\
             those who verify your packs need the fingerprint, by another way than the pack:\n  \
             assay verify-pack --signer {} PACK_DIR\n",
            key.signer,
            key.fingerprint(),
            key.base64(),
            visible(&place(store, &key.signer).display().to_string()),
            key.fingerprint(),
        );
        out::stdout(text.as_bytes())?;
    }
    Ok(Exit::Ok)
}

fn export(
    store: &KeyStore,
    signer: Option<&SignerId>,
    format: Format,
    file: Option<&PathBuf>,
) -> Result<Exit, Failure> {
    let key = chosen(store, signer)?;
    let bytes = match format {
        Format::Pem => key.pem().into_bytes(),
        Format::Base64 => (key.base64() + "\n").into_bytes(),
        Format::Fingerprint => (key.fingerprint() + "\n").into_bytes(),
        Format::Raw => key.bytes.to_vec(),
    };
    match file {
        None => out::stdout(&bytes)?,
        Some(file) => out::new_file(file, &bytes)?,
    }
    Ok(Exit::Ok)
}
