//! `assay analyze --html`: the counts as a page, and the calls as a picture of time.

use super::html::{self, escape};
use crate::{
    model::WallTime,
    numbers::{counted, duration, duration_if, grouped},
    pack::{
        analysis::AnalysisRow,
        timeline::{Fate, Timeline, View},
    },
};
use std::fmt::Write as _;

/// Rows of a table that the page shows.
const SHOWN: usize = 100;
/// Places into which the time is divided, and their width in the picture.
const PLACES: usize = 900;
/// Where the names are.
const NAMES: usize = 150;
/// Heights of a row of a lane, and of the calls in flight.
const ROW: usize = 12;
const FLIGHT: usize = 60;

/// What was counted.
#[derive(Debug)]
pub struct Counted<'a> {
    /// Where it comes from: packs and their verdicts, or the history.
    pub sources: &'a [String],
    /// All together.
    pub total: &'a AnalysisRow,
    /// By tool.
    pub tools: &'a [AnalysisRow],
    /// By server.
    pub servers: &'a [AnalysisRow],
    /// By day.
    pub days: &'a [AnalysisRow],
    /// The calls in time; empty where single calls are not known.
    pub timeline: &'a Timeline,
}

/// The page.
#[must_use]
pub fn page(c: &Counted<'_>) -> String {
    let mut out = String::from("<h1>Tool calls</h1>\n");
    let t = c.total;
    let _ = writeln!(
        out,
        "<p class=\"answer\">{}, {} failed, {} denied, p50 {}, p95 {}</p>",
        counted(t.calls, "call"),
        grouped(t.errors + t.timeouts),
        grouped(t.denied),
        duration_if(t.p50_us),
        duration_if(t.p95_us)
    );
    for source in c.sources {
        let _ = writeln!(out, "<p><code>{}</code></p>", escape(source));
    }
    picture(&mut out, c.timeline);
    by_time(&mut out, c.timeline);
    for (title, rows) in [("Tools", c.tools), ("Servers", c.servers), ("Days (UTC)", c.days)] {
        table(&mut out, title, rows);
    }
    html::page("Tool calls", &out)
}

/// A lane for each server, and how many calls were in flight.
fn picture(out: &mut String, timeline: &Timeline) {
    let Some((from, to)) = timeline.range() else { return };
    let view = timeline.view(from, to, PLACES);
    let rows: usize = view.lanes.iter().map(|lane| lane.rows.len()).sum();
    let (width, height) = (NAMES + PLACES, FLIGHT + 24 + rows * ROW + view.lanes.len() * 8 + 20);
    let at = |us: i64| WallTime::from_millis(us.div_euclid(1000)).to_string();
    let _ = writeln!(
        out,
        "<h2>In time</h2>\n<p class=\"dim\"><span class=\"time\">{}</span> to <span class=\"time\">{}</span>: {}</p>\n\
         <div class=\"wide\"><svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
         aria-label=\"Calls of each server in time, and how many were in flight\">",
        at(from),
        at(to),
        duration((to - from).unsigned_abs())
    );
    let mut y = flight(out, &view) + 24;
    for lane in &view.lanes {
        let title = format!("{}, {}", lane.server, counted(lane.calls, "call"));
        let _ = writeln!(
            out,
            "<text x=\"0\" y=\"{}\"><title>{}</title>{}</text>",
            y + 10,
            escape(&title),
            cut(&lane.server)
        );
        for row in &lane.rows {
            let mut x = NAMES;
            for run in row.chunk_by(|a, b| a == b) {
                if let Some(fate) = run[0] {
                    let (w, h) = (run.len(), ROW - 2);
                    let _ = writeln!(
                        out,
                        "<rect class=\"{}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"><title>{}</title></rect>",
                        class(fate),
                        fate.word()
                    );
                }
                x += run.len();
            }
            y += ROW;
        }
        y += 8;
    }
    out.push_str("</svg></div>\n<p class=\"dim\">");
    for fate in Fate::ALL {
        let _ = write!(out, "<span class=\"{}\">■</span> {}  ", class(fate), fate.word());
    }
    out.push_str("</p>\n");
    if timeline.left_out() > 0 {
        let _ =
            writeln!(out, "<p class=\"warn\">{} more are only in the tables</p>", counted(timeline.left_out(), "call"));
    }
}

/// The calls in flight as an area; where it ends.
fn flight(out: &mut String, view: &View) -> usize {
    let most = view.most().max(1) as usize;
    let mut path = format!("M{NAMES} {FLIGHT}");
    for (x, count) in view.in_flight.iter().enumerate() {
        let y = FLIGHT - *count as usize * (FLIGHT - 4) / most;
        let _ = write!(path, "L{} {y}L{} {y}", NAMES + x, NAMES + x + 1);
    }
    let _ = writeln!(
        out,
        "<text x=\"0\" y=\"12\">in flight</text><text class=\"dim\" x=\"0\" y=\"28\">most at once: {most}</text>\n\
         <path class=\"flight\" d=\"{path}L{} {FLIGHT}Z\"/>",
        NAMES + PLACES
    );
    FLIGHT
}

const fn class(fate: Fate) -> &'static str {
    match fate {
        Fate::Answered => "good",
        Fate::Running => "dim",
        Fate::Denied => "warn",
        Fate::Failed => "bad",
    }
}

/// A name that has room in the picture.
fn cut(name: &str) -> String {
    escape(&crate::text::fit(name, 18))
}

/// The tools by the time of all their calls, as bars.
fn by_time(out: &mut String, timeline: &Timeline) {
    let tools = timeline.tools();
    let Some(longest) = tools.iter().map(|(_, t)| t.us).max().filter(|us| *us > 0) else { return };
    out.push_str(
        "<h2>Time by tool</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>tool</th><th class=\"n\">calls</th>\
         <th class=\"n\">time</th><th></th></tr></thead>\n<tbody>\n",
    );
    for (tool, total) in tools.iter().take(SHOWN) {
        let percent = u128::from(total.us) * 100 / u128::from(longest);
        let _ = writeln!(
            out,
            "<tr><td class=\"name\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"bars\"><div class=\"bar\" style=\"width:{percent}%\"></div></td></tr>",
            escape(tool),
            grouped(total.calls),
            duration(total.us)
        );
    }
    out.push_str("</tbody></table></div>\n");
    more(out, tools.len());
}

fn more(out: &mut String, rows: usize) {
    if rows > SHOWN {
        let _ = writeln!(out, "<p class=\"dim\">and {} more</p>", grouped((rows - SHOWN) as u64));
    }
}

fn table(out: &mut String, title: &str, rows: &[AnalysisRow]) {
    const HEADS: [&str; 6] = ["calls", "failed", "denied", "p50", "p95", "longest"];
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "<h2>{title}</h2>\n<div class=\"wide\"><table class=\"cards\">\n<thead><tr><th></th>");
    for head in HEADS {
        let _ = write!(out, "<th class=\"n\">{head}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for r in rows.iter().take(SHOWN) {
        let _ = write!(out, "<tr><td class=\"name\">{}</td>", escape(&r.name));
        let cells = [grouped(r.calls), grouped(r.errors + r.timeouts), grouped(r.denied)];
        for (head, cell) in HEADS.iter().zip(cells.into_iter().chain([r.p50_us, r.p95_us, r.max_us].map(duration_if))) {
            let _ = write!(out, "<td class=\"n\" data-is=\"{head}\">{cell}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    more(out, rows.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::receipt::TOOL_CALL,
        pack::{analysis::Analysis, calls::Seen},
    };

    #[test]
    fn a_page_has_lanes_bars_and_tables_and_nothing_from_outside_is_markup() {
        let (mut analysis, mut timeline) = (Analysis::default(), Timeline::default());
        for n in 0..6 {
            let line = serde_json::json!({
                "duration_ms": 2000, "outcome": if n == 3 { "error" } else { "forwarded" }, "policy_verdict": "no_policy",
                "request_observed_at": format!("2026-03-15T11:30:0{n}.000Z"), "server_id": "<script>fs",
                "timestamp": format!("2026-03-15T11:30:0{}.000Z", n + 2), "tool_name": "read\u{202e}<b>", "type": TOOL_CALL,
            })
            .to_string();
            let seen = Seen::read(line.as_bytes()).unwrap();
            assert!(seen.is_call(), "{line}");
            analysis.receipt(&seen);
            timeline.receipt(&seen);
        }
        let (tools, servers, days) = (analysis.by_tool(), analysis.by_server(), analysis.by_day());
        let (sources, total) = (vec!["pack & <i>".to_owned()], analysis.total());
        let counted = Counted {
            sources: &sources,
            total: &total,
            tools: &tools,
            servers: &servers,
            days: &days,
            timeline: &timeline,
        };
        let page = page(&counted);
        for part in [
            "6 calls, 1 failed",
            "most at once: 2",
            "class=\"bad\" x=",
            "style=\"width:100%\"",
            "<h2>Servers</h2>",
            "data-is=\"failed\">1<",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        for evil in ["<script", "<b>", "<i>", "\u{202e}"] {
            assert!(!page.contains(evil), "{evil}");
        }
        let (tools, nothing) = (Vec::new(), Timeline::default());
        let empty = Counted { sources: &[], total: &total, tools: &tools, servers: &[], days: &[], timeline: &nothing };
        assert!(!super::page(&empty).contains("<svg"));
    }
}
