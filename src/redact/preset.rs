//! Rules for well-known secrets: forms that services document, and names of members that say it.

use super::{Rule, What};

/// The name of the preset.
pub(super) const SECRETS: &str = "secrets";

/// Names of rules, and what they match. A form that is a special case of another stands before it.
const REGEXES: [(&str, &str); 20] = [
    (
        "private-key",
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|\z)",
    ),
    ("aws-access-key-id", r"(?-u:\b)(?:AKIA|ASIA)[A-Z2-7]{16}(?-u:\b)"),
    ("github-token", r"(?-u:\b)(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})"),
    ("gitlab-token", r"(?-u:\b)gl(?:pat|dt|rt|ptt|soat)-[A-Za-z0-9_-]{20,}"),
    ("slack-token", r"(?-u:\b)xox[abeoprs]-[0-9]+-[A-Za-z0-9-]{10,}"),
    ("slack-webhook", r"https://hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/]{20,}"),
    ("anthropic-key", r"(?-u:\b)sk-ant-[A-Za-z0-9_-]{20,}"),
    ("openai-key", r"(?-u:\b)sk-(?:(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{32,})"),
    ("stripe-key", r"(?-u:\b)[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    ("google-api-key", r"(?-u:\b)AIza[A-Za-z0-9_-]{35}"),
    ("google-oauth-token", r"(?-u:\b)ya29\.[A-Za-z0-9_-]{20,}"),
    ("npm-token", r"(?-u:\b)npm_[A-Za-z0-9]{36}"),
    ("pypi-token", r"(?-u:\b)pypi-[A-Za-z0-9_-]{50,}"),
    ("huggingface-token", r"(?-u:\b)hf_[A-Za-z0-9]{30,}"),
    ("sendgrid-key", r"(?-u:\b)SG\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{40,}"),
    ("jwt", r"(?-u:\b)eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    ("bearer", r"(?i-u:\bbearer) +[A-Za-z0-9._~+/-]{16,}=*"),
    ("basic-credentials", r"(?i-u:\bauthorization: *basic) +[A-Za-z0-9+/]{6,}=*"),
    ("url-password", r"(?-u:\b)[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@?#]*:[^\s/@?#]+@"),
    (
        "assigned-secret",
        r#"(?i-u:(?:password|passwd|passphrase|secret|api[_-]?key|(?:access|auth|refresh)[_-]?token|private[_-]?key))["']? *[:=] *(?:"[^"\s]{6,}"|'[^'\s]{6,}'|[^\s"',;&(){}\[\]]{6,})"#,
    ),
];

/// Names of members whose values are secret; the rules are called as they are.
const MEMBERS: [&str; 20] = [
    "accesskey",
    "accesstoken",
    "apikey",
    "apitoken",
    "authorization",
    "authtoken",
    "clientsecret",
    "cookie",
    "idtoken",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "proxyauthorization",
    "refreshtoken",
    "secret",
    "secretaccesskey",
    "secretkey",
    "setcookie",
    "xapikey",
];

/// The rules, for arguments and results.
pub(super) fn secrets() -> impl Iterator<Item = Rule> {
    let regexes = REGEXES.into_iter().map(|(name, regex)| (name.to_owned(), What::Regex(regex.to_owned())));
    let members = MEMBERS.into_iter().map(|member| (format!("member-{member}"), What::Member(member.to_owned())));
    regexes.chain(members).map(|(name, what)| Rule { name, what, sides: [true; 2] })
}
