//! Times as other builders write them.

use crate::model::WallTime;

/// Reads an RFC 3339 date-time with an explicit zone, as assay's schema demands it: `2026-01-15T11:59:00+00:00`, any number
/// of decimals. Gives UTC to the millisecond; `None` for days that do not exist, leap seconds and local times.
#[must_use]
pub fn parse_date_time(text: &str) -> Option<WallTime> {
    let (date, zone) = parse(text, true)?;
    Some(WallTime::from_millis(date.millis() - zone?))
}

/// Reads what Python's `datetime.fromisoformat` reads of extended ISO 8601: as assay-ai's verifier judges the `timestamp`
/// of a receipt. A time without a zone counts as UTC.
#[must_use]
pub fn parse_iso(text: &str) -> Option<WallTime> {
    let (date, zone) = parse(text, false)?;
    Some(WallTime::from_millis(date.millis() - zone.unwrap_or(0)))
}

fn parse(text: &str, strict: bool) -> Option<(WallTime, Option<i64>)> {
    if !text.is_ascii() {
        return None;
    }
    let date = text.get(..10)?;
    let midnight = |time: &str| WallTime::parse(&format!("{date}T{time}Z"));
    if text.len() == 10 && !strict {
        return Some((midnight("00:00:00.000")?, None));
    }
    let separator = text.as_bytes().get(10)?;
    if strict && *separator != b'T' {
        return None;
    }
    let rest = &text[11..];
    let zone_at = rest.find(['Z', '+', '-']).unwrap_or(rest.len());
    let (clock, zone) = rest.split_at(zone_at);
    let (whole, fraction) = clock.split_once('.').map_or((clock, None), |(w, f)| (w, Some(f)));
    let full = match (whole.len(), strict) {
        (8, _) => whole.to_owned(),
        (5, false) => format!("{whole}:00"),
        (2, false) => format!("{whole}:00:00"),
        _ => return None,
    };
    let millis = match fraction {
        None => "000".to_owned(),
        Some(f) if !f.is_empty() && f.bytes().all(|b| b.is_ascii_digit()) => format!("{f:0<3}")[..3].to_owned(),
        Some(_) => return None,
    };
    // Python's years begin with 1.
    let time = midnight(&format!("{full}.{millis}")).filter(|_| !text.starts_with("0000"))?;
    Some((time, zone_millis(zone)?))
}

#[allow(clippy::option_option)]
fn zone_millis(zone: &str) -> Option<Option<i64>> {
    match zone {
        "" => Some(None),
        "Z" => Some(Some(0)),
        _ => {
            let sign = if zone.starts_with('-') { -1 } else { 1 };
            let (h, m) = zone[1..].split_once(':')?;
            let number = |s: &str, below: i64| {
                (s.len() == 2 && s.bytes().all(|b| b.is_ascii_digit()))
                    .then(|| s.parse::<i64>().ok())?
                    .filter(|n| *n < below)
            };
            Some(Some(sign * (number(h, 24)? * 60 + number(m, 60)?) * 60_000))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_times_with_offsets() {
        for (text, utc) in [
            ("2026-01-15T11:59:00+00:00", "2026-01-15T11:59:00.000Z"),
            ("2026-01-15T11:59:00.123456-01:30", "2026-01-15T13:29:00.123Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(parse_date_time(text).map(|t| t.to_string()).as_deref(), Some(utc));
        }
        for bad in [
            "2026-01-15",
            "2026-01-15T11:59:00",
            "2026-01-15 11:59:00Z",
            "2026-01-15T11:59:60Z",
            "2026-02-30T11:59:00Z",
            "0000-01-15T11:59:00Z",
            "2026-01-15T11:59:00.Z",
            "2026-01-15T11:59:00+24:00",
            "2026-01-15T11:59:00+0000",
            "2026-01-15t11:59:00z",
            "２026-01-15T11:59:00Z",
        ] {
            assert_eq!(parse_date_time(bad), None, "{bad}");
        }
        assert!(parse_iso("2026-01-15").is_some() && parse_iso("2026-01-15 11:59").is_some());
        assert!(parse_iso("yesterday").is_none() && parse_iso("").is_none());
    }
}
