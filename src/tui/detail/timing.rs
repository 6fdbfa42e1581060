//! Where the time of a call went.

use super::{DetailLine, Role};
use crate::{model::Phases, numbers::duration};

/// A stretch of time within a call: name, from, to, microseconds after the request.
pub(in crate::tui) type Stretch = (&'static str, u64, u64);

/// The stretches that are known, in their order.
pub(in crate::tui) fn stretches(phases: &Phases, running_us: Option<u64>) -> Vec<Stretch> {
    let mut out = Vec::new();
    let mut from = 0;
    let marks = [
        ("policy", phases.policy_decided.filter(|_| beside(phases).is_none())),
        ("to the server", phases.request_forwarded),
        ("server works", phases.response_first_byte),
        ("answer arrives", phases.response_observed),
        ("to the client", phases.response_forwarded),
    ];
    for (name, to) in marks {
        if let Some(to) = to {
            out.push((name, from, to.max(from)));
            from = to.max(from);
        }
    }
    if let Some(now) = running_us.filter(|now| *now > from) {
        out.push(("running", from, now));
    }
    out
}

/// When the policy's verdict was there, if the call did not wait for it: in the profile `audit` the policy is asked
/// after forwarding.
const fn beside(phases: &Phases) -> Option<u64> {
    match (phases.policy_decided, phases.request_forwarded) {
        (Some(decided), Some(forwarded)) if decided > forwarded => Some(decided),
        _ => None,
    }
}

/// A waterfall: name of each phase, its length, and where in the call it is.
pub(super) fn waterfall(phases: &Phases, running_us: Option<u64>, columns: u16, ascii: bool) -> Vec<DetailLine> {
    let stretches = stretches(phases, running_us);
    let all = stretches.last().map_or(0, |s| s.2).max(1);
    let room = usize::from(columns).saturating_sub(28).min(60);
    let bar = if ascii { "#" } else { "█" };
    let mut out: Vec<DetailLine> = stretches
        .iter()
        .map(|(name, from, to)| {
            let start = (u128::from(*from) * room as u128 / u128::from(all)) as usize;
            let end =
                ((u128::from(*to) * room as u128).div_ceil(u128::from(all)) as usize).max(start + 1).min(room.max(1));
            let role = match *name {
                "server works" | "running" => Role::Accent,
                "answer arrives" => Role::Value,
                _ => Role::Good,
            };
            let start = start.min(end - 1);
            let length = to - from;
            DetailLine {
                pieces: vec![
                    (format!("{name:<15}"), Role::Dim),
                    (format!("{:>9}  ", duration(length)), Role::Text),
                    (" ".repeat(if room == 0 { 0 } else { start }), Role::Text),
                    (bar.repeat(if room == 0 { 0 } else { end - start }), role),
                ],
                copy: format!("{name} {length} µs"),
                path: String::new(),
            }
        })
        .collect();
    if let Some(us) = beside(phases) {
        let text = format!("{:<15}{:>9}  in parallel: nothing waited for it", "policy", duration(us));
        let text = crate::text::fit(&text, usize::from(columns).max(28)).into_owned();
        out.push(DetailLine { pieces: vec![(text, Role::Dim)], copy: format!("policy {us} µs"), path: String::new() });
    }
    if !stretches.is_empty() {
        let text = format!("{:<15}{:>9}", "total", duration(all));
        out.push(DetailLine { pieces: vec![(text, Role::Strong)], copy: format!("{all} µs"), path: String::new() });
    }
    out
}

/// The phases in a few columns: `·` passing on, `█` the server, `▒` the answer on its way; longer for longer calls.
pub(in crate::tui) fn bar(phases: &Phases, us: u64, columns: usize, ascii: bool) -> String {
    // One column below a millisecond, all of them from ten seconds on.
    let steps = ((us.max(1) as f64).log10() - 2.0).clamp(1.0, 5.0) / 5.0;
    let long = ((columns as f64 * steps).round() as usize).clamp(1, columns.max(1));
    let forwarded = phases.request_forwarded.unwrap_or(0);
    let first = phases.response_first_byte.unwrap_or(us);
    (0..long)
        .map(|n| {
            let at = us * (2 * n as u64 + 1) / (2 * long as u64);
            match (at < forwarded, at < first, ascii) {
                (true, _, false) => '░',
                (true, _, true) => '.',
                (_, true, false) => '█',
                (_, true, true) => '#',
                (_, _, false) => '▒',
                (_, _, true) => '=',
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_follow_each_other_and_lengths_grow_with_the_time() {
        let phases = Phases {
            policy_decided: None,
            request_forwarded: Some(10),
            response_first_byte: Some(900),
            response_observed: Some(1000),
            response_forwarded: Some(1010),
        };
        let found = stretches(&phases, None);
        assert_eq!(
            found.iter().map(|s| s.0).collect::<Vec<_>>(),
            ["to the server", "server works", "answer arrives", "to the client"]
        );
        assert!(found.windows(2).all(|w| w[0].2 == w[1].1));
        assert_eq!(stretches(&Phases::default(), Some(5)), [("running", 0, 5)]);
        // A verdict that nothing waited for is not part of the way.
        let audit = Phases { policy_decided: Some(300), ..phases };
        assert_eq!(stretches(&audit, None), found);
        let said = |p: &Phases| waterfall(p, None, 80, false)[4].pieces[0].0.clone();
        assert!(said(&audit).starts_with("policy            300 µs  in parallel"), "{}", said(&audit));
        let guard = Phases { policy_decided: Some(7), ..phases };
        assert_eq!(stretches(&guard, None)[..2], [("policy", 0, 7), ("to the server", 7, 10)]);
        let length = |us| bar(&phases, us, 8, false).chars().count();
        assert_eq!([100, 100_000, 100_000_000].map(length), [2, 5, 8]);
        for columns in 0..80 {
            let lines = waterfall(&phases, None, columns, false);
            let wide = |l: &DetailLine| l.pieces.iter().map(|(t, _)| crate::text::width(t)).sum::<usize>();
            assert!(lines.iter().all(|l| wide(l) <= usize::from(columns).max(28)), "{columns}");
        }
    }
}
