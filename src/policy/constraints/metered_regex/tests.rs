use super::*;

const LIMIT: usize = 4 << 20;

fn patterns(texts: &[&str]) -> Patterns {
    Patterns::new(texts, false, LIMIT).unwrap()
}

/// What a search takes, in visits.
fn cost(patterns: &Patterns, text: &str) -> u64 {
    let mut visits = Visits::new(u64::MAX);
    patterns.first(text, &mut visits).unwrap();
    u64::MAX - visits.left()
}

const OF_REGEX: [&str; 26] = [
    "secret",
    "(?i)token",
    "^rm ",
    "\\bsudo\\b",
    "é",
    "",
    "$",
    "^$",
    "a*?b",
    "(a|b)*abb",
    "[\\w ]{3}q",
    "\\B.",
    "(?m)^b$",
    "x{2,4}",
    "\\d+",
    "\\p{Greek}",
    "[^a-z]",
    "(?-u:\\b)a",
    "a.c",
    "(?s)a.c",
    "\\s",
    "(?i)k",
    "(?x) a b # c",
    "ab|cd|",
    "\\Ab\\z",
    "\\<a",
];

const PIECES: [&str; 16] =
    ["a", "b", "c", "ab", "é", "α", " ", "\n", "secret", "TOKEN", "sudo", "rm ", "q", "7", "\u{212a}", "xxx"];

#[test]
fn both_ways_say_what_the_regex_crate_says() {
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 33) as usize % below
    };
    let rounds = std::env::var("ASSAY_REGEX_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2_000);
    for _ in 0..rounds {
        let chosen: Vec<&str> = (0..=next(4)).map(|_| OF_REGEX[next(OF_REGEX.len())]).collect();
        let (ours, theirs) = (patterns(&chosen), regex::RegexSet::new(&chosen).unwrap());
        let text: String = (0..next(12)).map(|_| PIECES[next(PIECES.len())]).collect();
        let expected = theirs.matches(&text).iter().next();
        assert_eq!(ours.first(&text, &mut Visits::new(1 << 30)).unwrap(), expected, "{chosen:?} {text:?}");
        assert_eq!(ours.follow(text.as_bytes(), &mut Visits::new(1 << 30)).unwrap(), expected, "{chosen:?} {text:?}");
    }
}

#[test]
fn what_a_search_takes_grows_with_the_text_and_no_faster() {
    // Nothing but letters and blanks at random: no two places look alike.
    let mut random = 1u64;
    let text: String = (0..20_000)
        .map(|_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            b"abcdefgh ijklm"[(random >> 33) as usize % 14] as char
        })
        .collect();
    for pattern in ["a[\\w ]{60}q$", "(?i)(?:a[\\w ]{40})q", "([a-h ]?){40}q", "\\b\\w{9}q"] {
        let p = patterns(&[pattern]);
        let (half, whole) = (cost(&p, &text[..10_000]), cost(&p, &text));
        assert!(whole <= 2 * half + half / 2, "{pattern} {half} {whole}");
        assert!(whole <= p.most(text.len()) + 160 * text.len() as u64, "{pattern} {whole}");
    }
}

#[test]
fn a_search_takes_no_more_than_it_may_and_says_so() {
    let text = format!("{}q", "aé ".repeat(500));
    let p = patterns(&["[\\w ]{30}q$", "\\bq"]);
    let cost = {
        let mut visits = Visits::new(u64::MAX);
        p.follow(text.as_bytes(), &mut visits).unwrap();
        u64::MAX - visits.left()
    };
    for left in [0, 1, cost / 2, cost - 1] {
        let mut visits = Visits::new(left);
        assert_eq!(p.follow(text.as_bytes(), &mut visits), Err(Exhausted), "{left} of {cost}");
        assert_eq!(visits.left(), 0);
    }
    assert_eq!(p.follow(text.as_bytes(), &mut Visits::new(cost)), Ok(Some(0)));
}

#[test]
fn what_policies_have_looks_at_ten_mebibytes_within_the_limits() {
    let words = "Lorem ipsum dolor sit amet, consectetur 4711 adipiscing@example.org elit; sed_do /eiusmod/tempor? ";
    let other = "Zażółć gęślą jaźń — Ελληνικά, кириллица; 漢字かな 4711 ÷ naïve@exämple.org ";
    // A tenth of the size, and a tenth of the visits: what takes no more is linear, as the test above shows.
    let bytes = 1 << 20;
    for text in [words.repeat(bytes / words.len()), other.repeat(bytes / other.len())] {
        for list in [
            &["(?i)drop\\s+table", "AKIA[0-9A-Z]{16}", "-----BEGIN [A-Z ]+PRIVATE KEY"][..],
            &["[\\w.+-]+@[\\w-]+\\.zz[\\w.-]+"],
            &["(?i)\\b(password|passwd|secret|api[_-]?key)\\b\\s*[:=]"],
            &["\\b(?:\\d[ -]*?){13,16}\\b"],
            &["ghp_[A-Za-z0-9]{36}", "xox[baprs]-[A-Za-z0-9-]{10,48}", "eyJ[A-Za-z0-9_-]{10,}\\.[A-Za-z0-9_-]{10,}"],
            &["^\\s*sudo\\b", "(?i);\\s*rm\\s+-rf", "\\$\\([^)]*\\)"],
            &["(?i)ignore (all )?previous instructions"],
        ] {
            let mut visits = Visits::new(VISITS_PER_BYTE * text.len() as u64);
            assert_eq!(patterns(list).first(&text, &mut visits), Ok(None), "{list:?}");
        }
    }
}

#[test]
fn a_pattern_that_is_too_big_is_said_to_be() {
    assert!(matches!(Patterns::new(&["[\\w ]{500}"], false, LIMIT), Err(Unbuilt::TooBig)));
    assert!(matches!(Patterns::new(&["(a"], false, LIMIT), Err(Unbuilt::Wrong(_))));
    assert!(Patterns::new(&["[\\w ]{60}q$"], false, LIMIT).is_ok());
}
