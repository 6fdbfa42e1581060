//! The time of day as people read it: where they are, or in UTC. What machines read is UTC alone.

use crate::model::WallTime;
use jiff::{Timestamp, tz::TimeZone};
use std::sync::OnceLock;

/// In which zone times are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Zone {
    /// Universal time.
    #[default]
    Utc,
    /// This machine's zone: `TZ`, else what the system is set to.
    Local,
}

impl Zone {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Utc => Self::Local,
            Self::Local => Self::Utc,
        }
    }

    /// Time of day with milliseconds: `11:30:00.000`.
    #[must_use]
    pub fn clock(self, at: WallTime) -> String {
        self.write(at, "%H:%M:%S%.3f")
    }

    /// Day and minute: `2026-03-15 11:30`.
    #[must_use]
    pub fn minute(self, at: WallTime) -> String {
        self.write(at, "%Y-%m-%d %H:%M")
    }

    /// All of it, with the zone: `2026-03-15 12:30:00.000 CET`.
    #[must_use]
    pub fn full(self, at: WallTime) -> String {
        self.write(at, "%Y-%m-%d %H:%M:%S%.3f %Z")
    }

    /// A time of evidence, all of it with the zone; what is none stays as it is.
    #[must_use]
    pub fn said(self, text: &str) -> String {
        WallTime::parse(text).map_or_else(|| text.to_owned(), |at| self.full(at))
    }

    /// The zone's name at that time: `CET`, or `+0530` where it has none.
    #[must_use]
    pub fn name(self, at: WallTime) -> String {
        self.write(at, "%Z")
    }

    fn write(self, at: WallTime, form: &str) -> String {
        static LOCAL: OnceLock<TimeZone> = OnceLock::new();
        let zone = match self {
            Self::Utc => &TimeZone::UTC,
            // A machine that does not know where it is has UTC.
            Self::Local => LOCAL.get_or_init(|| TimeZone::try_system().unwrap_or(TimeZone::UTC)),
        };
        written(zone, at, form)
    }
}

fn written(zone: &TimeZone, at: WallTime, form: &str) -> String {
    match Timestamp::from_millisecond(at.millis()) {
        Ok(time) => time.to_zoned_datetime(zone.clone()).strftime(form).to_string(),
        Err(_) => at.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_zone_with_its_name() {
        let at = WallTime::parse("2026-03-15T23:30:00.007Z").unwrap();
        let summer = WallTime::parse("2026-07-15T23:30:00.000Z").unwrap();
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let of = |at, form| written(&zone, at, form);
        assert_eq!(of(at, "%Y-%m-%d %H:%M:%S%.3f %Z"), "2026-03-16 00:30:00.007 CET");
        assert_eq!((of(summer, "%H:%M"), of(summer, "%Z")), ("01:30".to_owned(), "CEST".to_owned()));
        let india = TimeZone::posix("<+0530>-5:30").unwrap();
        assert_eq!(written(&india, at, "%H:%M %Z"), "05:00 +0530");
        assert_eq!(Zone::Utc.full(at), "2026-03-15 23:30:00.007 UTC");
        assert_eq!(Zone::Utc.said("2026-03-15T23:30:00.007Z"), Zone::Utc.full(at));
        assert_eq!(Zone::Utc.said("soon"), "soon");
        assert_eq!(
            (Zone::Utc.clock(at), Zone::Utc.minute(at)),
            ("23:30:00.007".to_owned(), "2026-03-15 23:30".to_owned())
        );
        for ms in [0, -1, -62_135_596_800_000] {
            let at = WallTime::from_millis(ms);
            assert_eq!(Zone::Utc.clock(at), at.to_string()[11..23]);
        }
        // The last day of the year 9999 may be past the end of what a zone has.
        for edge in [i64::MIN, i64::MAX] {
            assert!(!written(&zone, WallTime::from_millis(edge), "%Y-%m-%d").is_empty());
        }
    }
}
