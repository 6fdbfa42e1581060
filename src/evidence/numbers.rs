//! Numbers as people read them. Command line, pages and dashboard take their forms from here; machine-readable output and
//! evidence keep plain numbers in the unit that their name says. `docs/contributing.md` has the forms.

use crate::text::noun;

/// Shown in place of an unknown number.
pub const NONE: &str = "–";

/// `part` in whole units, rounded half up.
const fn rounded(value: u64, unit: u64) -> u64 {
    value / unit + (value % unit >= unit.div_ceil(2)) as u64
}

/// A duration in microseconds, rounded half up: `500 µs`, `1.50 ms`, `12 ms`, `12.3 s`, `1m01s`, `1h01m`, `1d01h`.
///
/// At most 7 columns below a thousand days.
#[must_use]
pub fn duration(us: u64) -> String {
    const MS: u64 = 1000;
    const S: u64 = 1000 * MS;
    const MIN: u64 = 60 * S;
    const HOUR: u64 = 60 * MIN;
    // What rounds up to the border of a form has the next form.
    let (hundredths, ms, tenths) = (rounded(us, MS / 100), rounded(us, MS), rounded(us, S / 10));
    let (s, min, hours) = (rounded(us, S), rounded(us, MIN), rounded(us, HOUR));
    if us < 1000 {
        format!("{us} µs")
    } else if hundredths < 1000 {
        format!("{}.{:02} ms", hundredths / 100, hundredths % 100)
    } else if ms < 10_000 {
        format!("{ms} ms")
    } else if tenths < 600 {
        format!("{}.{} s", tenths / 10, tenths % 10)
    } else if s < 3600 {
        format!("{}m{:02}s", s / 60, s % 60)
    } else if min < 24 * 60 {
        format!("{}h{:02}m", min / 60, min % 60)
    } else {
        format!("{}d{:02}h", hours / 24, hours % 24)
    }
}

/// A duration that may not be known.
#[must_use]
pub fn duration_if(us: Option<u64>) -> String {
    us.map_or_else(|| NONE.to_owned(), duration)
}

/// How long ago something was, in whole units that have passed: `59 s`, `5 min`, `3 h`, `2 d`.
#[must_use]
pub fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A size, rounded half up: `12 B`, `2.0 KiB`, `5.0 GiB`. At most 10 columns.
#[must_use]
pub fn size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut unit = 1024;
    for name in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        let whole = bytes / unit;
        // A remainder below 2^60: its tenths fit.
        let tenths = whole * 10 + rounded(bytes % unit * 10, unit);
        if tenths < 10_240 || name == "EiB" {
            return format!("{}.{} {name}", tenths / 10, tenths % 10);
        }
        unit *= 1024;
    }
    format!("{bytes} B")
}

/// A number in groups of three digits: `3 400`.
#[must_use]
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// `1 call`, `12 345 calls`.
#[must_use]
pub fn counted(n: u64, one: &str) -> String {
    format!("{} {}", grouped(n), noun(n, one))
}

/// How many whole percent of `total` are done, at most 100. Of nothing, all is done.
#[must_use]
pub fn percent(done: u64, total: u64) -> u64 {
    let percent = (u128::from(done) * 100).checked_div(u128::from(total));
    percent.map_or(100, |percent| percent.min(100) as u64)
}

/// By how many percent `b` is above `a`; negative when it is below, infinite from 0. `None` when either is unknown.
#[must_use]
pub fn increase_pct(a: Option<u64>, b: Option<u64>) -> Option<f64> {
    match (a?, b?) {
        (0, 0) => Some(0.0),
        (0, _) => Some(f64::INFINITY),
        (a, b) => Some((b as f64 - a as f64) / a as f64 * 100.0),
    }
}

/// An increase in words: `+50 %`, `-3 %`, `same`, `from 0`; nothing when it is not known. At most 8 columns.
#[must_use]
pub fn increase(pct: Option<f64>) -> String {
    match pct {
        None => String::new(),
        Some(pct) if pct.is_infinite() => "from 0".to_owned(),
        Some(pct) if pct.round() == 0.0 => "same".to_owned(),
        Some(pct) => format!("{:+.0} %", pct.min(99_999.0)),
    }
}

/// By how much `b` is above `a`: `+3`, `-1 200`; nothing when they are the same.
#[must_use]
pub fn difference(a: u64, b: u64) -> String {
    match a.abs_diff(b) {
        0 => String::new(),
        by => format!("{}{}", if b > a { '+' } else { '-' }, grouped(by)),
    }
}

/// Which of `count` sorted values, from 1, is the quantile of `per_mille` thousandths: the nearest rank, so that it is one that
/// was seen. 1 where there are none.
#[must_use]
pub fn nearest_rank(count: u64, per_mille: u64) -> u64 {
    // 2^64 thousandths are more than a count has: nothing is lost.
    (u128::from(count) * u128::from(per_mille)).div_ceil(1000).max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::width;
    use proptest::prelude::*;

    /// The middle of the range that a text means, in the smallest unit, and half the value of its last digit.
    fn read(text: &str) -> (f64, f64) {
        let units = [
            (" µs", 1.0),
            (" ms", 1e3),
            (" s", 1e6),
            (" B", 1.0),
            (" KiB", 1024.0),
            (" MiB", 1024f64.powi(2)),
            (" GiB", 1024f64.powi(3)),
            (" TiB", 1024f64.powi(4)),
            (" PiB", 1024f64.powi(5)),
            (" EiB", 1024f64.powi(6)),
        ];
        for (unit, worth) in units {
            if let Some(number) = text.strip_suffix(unit) {
                let places = number.split_once('.').map_or(0, |(_, tail)| tail.len());
                return (number.parse::<f64>().unwrap() * worth, worth / 10f64.powi(places as i32) / 2.0);
            }
        }
        for (big, small, worth) in [('m', 's', 1e6), ('h', 'm', 60e6), ('d', 'h', 3600e6)] {
            if let Some((whole, part)) = text.strip_suffix(small).and_then(|t| t.split_once(big)) {
                let base = if big == 'd' { 24.0 } else { 60.0 };
                let (whole, part): (f64, f64) = (whole.parse().unwrap(), part.parse().unwrap());
                assert!(part < base, "{text}");
                return ((whole * base + part) * worth, worth / 2.0);
            }
        }
        panic!("{text} has no unit");
    }

    /// Values around the borders of forms, and any others.
    fn values() -> impl Strategy<Value = u64> {
        let borders = prop::sample::select(vec![
            1000u64,
            10_000,
            10_000_000,
            60_000_000,
            3_600_000_000,
            86_400_000_000,
            1 << 10,
            1 << 20,
            1 << 30,
            1 << 40,
            1 << 50,
            1 << 60,
        ]);
        let near = (borders, -1000i64..1000, 1u64..1000).prop_map(|(at, off, scale)| {
            at.saturating_add_signed(off.saturating_mul((at / 1_000_000 * scale).max(1).cast_signed()))
        });
        prop_oneof![near, (0u32..64, any::<u64>()).prop_map(|(shift, n)| n >> shift)]
    }

    proptest! {
        #[test]
        fn durations_and_sizes_say_what_they_are_within_their_last_place(n in values()) {
            for text in [duration(n), size(n)] {
                let (value, half) = read(&text);
                prop_assert!((value - n as f64).abs() <= half * (1.0 + 1e-9) + n as f64 * 1e-15, "{n}: {text}");
            }
        }

        #[test]
        fn what_is_longer_never_reads_as_less(a in values(), b in values()) {
            let (a, b) = (a.min(b), a.max(b));
            prop_assert!(read(&duration(a)).0 <= read(&duration(b)).0, "{a} {b}");
            prop_assert!(read(&size(a)).0 <= read(&size(b)).0, "{a} {b}");
            prop_assert!(percent(a, u64::MAX) <= percent(b, u64::MAX));
        }

        #[test]
        fn texts_stay_in_their_columns(n in values()) {
            const THOUSAND_DAYS: u64 = 1000 * 86_400_000_000;
            prop_assert!(width(&duration(n)) <= if n < THOUSAND_DAYS - 1_800_000_000 { 7 } else { 13 }, "{}", duration(n));
            prop_assert!(width(&size(n)) <= 10, "{}", size(n));
            prop_assert!(width(&increase(increase_pct(Some(n), Some(u64::MAX)))) <= 8);
            prop_assert_eq!(grouped(n).replace(' ', ""), n.to_string());
            prop_assert!(grouped(n).split(' ').skip(1).all(|group| group.len() == 3));
        }

        #[test]
        fn the_nearest_rank_is_that_of_a_value(count in 1u64.., per_mille in 0u64..=1000) {
            let rank = nearest_rank(count, per_mille);
            prop_assert!((1..=count).contains(&rank));
            prop_assert!(u128::from(rank) * 1000 >= u128::from(count) * u128::from(per_mille));
        }
    }

    #[test]
    fn each_form_ends_where_the_next_begins() {
        for (us, text) in [
            (0, "0 µs"),
            (500, "500 µs"),
            (999, "999 µs"),
            (1000, "1.00 ms"),
            (1500, "1.50 ms"),
            (9_994, "9.99 ms"),
            (9_995, "10 ms"),
            (12_345, "12 ms"),
            (9_999_499, "9999 ms"),
            (9_999_500, "10.0 s"),
            (59_949_999, "59.9 s"),
            (59_950_000, "1m00s"),
            (61_000_000, "1m01s"),
            (3_599_499_999, "59m59s"),
            (3_599_500_000, "1h00m"),
            (86_369_999_999, "23h59m"),
            (86_370_000_000, "1d00h"),
            (90_000_000_000, "1d01h"),
            (u64::MAX, "213503982d08h"),
        ] {
            assert_eq!(duration(us), text, "{us}");
        }
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (2048, "2.0 KiB"),
            ((1 << 20) - 52, "1023.9 KiB"),
            ((1 << 20) - 51, "1.0 MiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(size(bytes), text, "{bytes}");
        }
        for (s, text) in [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h"), (172_800, "2 d")] {
            assert_eq!(age(s), text, "{s}");
        }
    }

    #[test]
    fn shares_and_differences_read_well() {
        assert_eq!([(0, 0), (0, 7), (1, 3), (7, 7), (9, 7)].map(|(a, b)| percent(a, b)), [100, 0, 33, 100, 100]);
        assert_eq!(percent(u64::MAX / 2, u64::MAX), 49);
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1 000", "1 234 567"].map(str::to_owned));
        assert_eq!([1, 12_345].map(|n| counted(n, "call")), ["1 call", "12 345 calls"].map(str::to_owned));
        assert_eq!([(3, 3), (0, 1), (1201, 1)].map(|(a, b)| difference(a, b)), ["", "+1", "-1 200"].map(str::to_owned));
        assert_eq!(difference(0, u64::MAX), "+18 446 744 073 709 551 615");
        let shift = |a, b| increase(increase_pct(a, b));
        assert_eq!(shift(Some(100), Some(150)), "+50 %");
        assert_eq!(shift(Some(1000), Some(1004)), "same");
        assert_eq!(shift(Some(2), Some(1)), "-50 %");
        assert_eq!(shift(Some(0), Some(1)), "from 0");
        assert_eq!(shift(Some(1), Some(u64::MAX)), "+99999 %");
        assert_eq!(shift(None, Some(1)), "");
        assert_eq!(duration_if(None), NONE);
    }
}
