//! Which CI run builds a pack.

use crate::model::pack::CiBinding;

/// The binding that the process's environment describes.
#[must_use]
pub fn of_process() -> Option<CiBinding> {
    detect(|name| std::env::var(name).ok())
}

/// As assay-ai does it: GitHub Actions with a full commit hash, else none.
pub fn detect(env: impl Fn(&str) -> Option<String>) -> Option<CiBinding> {
    let get = |name: &str| env(name).filter(|v| !v.is_empty());
    if get("GITHUB_ACTIONS").as_deref() != Some("true") {
        return None;
    }
    let commit_sha = get("GITHUB_SHA")?;
    let full = commit_sha.len() == 40 && commit_sha.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    full.then(|| CiBinding {
        provider: "github_actions".to_owned(),
        commit_sha,
        repo: get("GITHUB_REPOSITORY"),
        r#ref: get("GITHUB_REF"),
        run_id: get("GITHUB_RUN_ID"),
        run_attempt: get("GITHUB_RUN_ATTEMPT"),
        workflow_ref: get("GITHUB_WORKFLOW_REF"),
        actor: get("GITHUB_ACTOR"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ci_run_is_bound_only_with_a_full_commit_hash() {
        let with = |sha: &'static str| {
            detect(move |n| match n {
                "GITHUB_ACTIONS" => Some("true".to_owned()),
                "GITHUB_SHA" => Some(sha.to_owned()),
                _ => None,
            })
        };
        assert!(with("0123456789abcdef0123456789abcdef01234567").is_some());
        for bad in ["", "abc", "0123456789ABCDEF0123456789abcdef01234567"] {
            assert!(with(bad).is_none(), "{bad}");
        }
        assert!(detect(|_| None).is_none());
    }
}
