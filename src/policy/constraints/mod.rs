//! What `constraints` may demand of a call's arguments (docs/policy.md), one kind per file.

pub mod hosts;
pub mod metered_regex;
pub mod paths;
pub mod patterns;
pub mod schema;
pub mod walk;

/// `targetFilePath`, `target_file_path`, `target-file-path` → `target file path`.
pub(crate) fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut lower_before = false;
    for c in name.chars() {
        let starts = c.is_uppercase() && lower_before;
        if (!c.is_alphabetic() || starts) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphabetic() {
            word.extend(c.to_lowercase());
        }
        lower_before = c.is_lowercase();
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}
