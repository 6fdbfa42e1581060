//! Wall-clock times and durations as evidence holds them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

/// A wall-clock time: RFC 3339 in UTC with exactly three decimals, `2026-03-15T11:30:00.000Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(i64);

/// Milliseconds of 0000-01-01 and 9999-12-31T23:59:59.999Z: what four year digits hold.
const RANGE: std::ops::RangeInclusive<i64> = -62_167_219_200_000..=253_402_300_799_999;

impl WallTime {
    /// A time from milliseconds since the Unix epoch; clamped to the years 0 to 9999.
    #[must_use]
    pub fn from_millis(ms: i64) -> Self {
        Self(ms.clamp(*RANGE.start(), *RANGE.end()))
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// The host's wall clock, unchecked: the same one that turns marks in a capture into times.
    #[must_use]
    pub fn now() -> Self {
        let ns = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_nanos().cast_signed(),
            Err(before) => -before.duration().as_nanos().cast_signed(),
        };
        Self::from_millis(ns.div_euclid(1_000_000) as i64)
    }

    /// The form in file names: `20260315T113000Z`.
    #[must_use]
    pub fn compact(self) -> String {
        let t = self.to_string();
        t.chars().filter(|c| c.is_ascii_digit() || *c == 'T').take(15).chain(['Z']).collect()
    }

    /// Reads exactly the form that [`fmt::Display`] writes; days that do not exist and leap seconds are refused.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let b = text.as_bytes();
        let digits = |r: std::ops::Range<usize>| -> Option<i64> {
            b.get(r)?.iter().try_fold(0i64, |n, d| d.is_ascii_digit().then(|| n * 10 + i64::from(d - b'0')))
        };
        let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'.'), (23, b'Z')];
        if b.len() != 24 || marks.iter().any(|&(i, m)| b[i] != m) {
            return None;
        }
        let (year, month, day) = (digits(0..4)?, digits(5..7)?, digits(8..10)?);
        let (hour, minute, second, ms) = (digits(11..13)?, digits(14..16)?, digits(17..19)?, digits(20..23)?);
        if !(1..=12).contains(&month)
            || day < 1
            || day > days_in(year, month)
            || hour > 23
            || minute > 59
            || second > 59
        {
            return None;
        }
        Some(Self((((days_from_civil(year, month, day) * 24 + hour) * 60 + minute) * 60 + second) * 1000 + ms))
    }
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 of a proleptic Gregorian date. A verifier reads four million of these; `jiff` is the test's oracle.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let doy = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.0.div_euclid(86_400_000);
        let ms = self.0.rem_euclid(86_400_000);
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let doe = shifted.rem_euclid(146_097);
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let day = doy - (153 * mp + 2) / 5 + 1;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        let year = yoe + era * 400 + i64::from(month <= 2);
        let (hour, minute, second, frac) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{frac:03}Z")
    }
}

impl Serialize for WallTime {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WallTime {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = WallTime;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a UTC time with three decimals, 2026-03-15T11:30:00.000Z")
            }
            fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<WallTime, E> {
                WallTime::parse(v).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(v), &self))
            }
        }
        d.deserialize_str(Visitor)
    }
}

/// A duration in milliseconds with at most three decimals, from the monotonic clock; held as whole microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurationMs(pub u64);

impl Serialize for DurationMs {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        // An integer prints as one: RFC 8785 has no `234.0`.
        if self.0.is_multiple_of(1000) {
            s.serialize_u64(self.0 / 1000)
        } else {
            s.serialize_f64(self.0 as f64 / 1000.0)
        }
    }
}

impl<'de> Deserialize<'de> for DurationMs {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let ms = f64::deserialize(d)?;
        if (0.0..=9.0e12).contains(&ms) {
            Ok(Self((ms * 1000.0).round() as u64))
        } else {
            Err(serde::de::Error::custom("a duration in milliseconds is not negative and below 9e12"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_agrees_with_jiff_from_year_0_to_9999() {
        for ms in (*RANGE.start()..*RANGE.end()).step_by(86_400_000 * 17 + 12_345_677) {
            let t = WallTime::from_millis(ms);
            let oracle = format!("{:.3}", jiff::Timestamp::from_millisecond(ms).unwrap());
            assert_eq!(t.to_string(), oracle);
            assert_eq!(WallTime::parse(&oracle), Some(t));
        }
    }

    #[test]
    fn times_that_are_not_are_refused() {
        for bad in [
            "2026-02-29T00:00:00.000Z",
            "2026-01-01T00:00:60.000Z",
            "2026-01-01T24:00:00.000Z",
            "2026-01-01T00:00:00Z",
            "2026-01-01T00:00:00.000+00:00",
            "2026-13-01T00:00:00.000Z",
            "2026-00-01T00:00:00.000Z",
            "x026-01-01T00:00:00.000Z",
            "",
        ] {
            assert_eq!(WallTime::parse(bad), None, "{bad}");
        }
        assert_eq!(WallTime::from_millis(0).compact(), "19700101T000000Z");
    }

    #[test]
    fn durations_print_as_rfc_8785_numbers() {
        for (us, text) in [(0, "0"), (234_000, "234"), (1, "0.001"), (1_500, "1.5"), (86_400_000_001, "86400000.001")] {
            assert_eq!(serde_json::to_string(&DurationMs(us)).unwrap(), text);
            assert_eq!(serde_json::from_str::<DurationMs>(text).unwrap(), DurationMs(us));
        }
    }
}
