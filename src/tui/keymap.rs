//! The one table of keys: key → command → contexts → help. Footer, help, palette and docs/keys.md come from it.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::fmt;

/// A key as a person names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// The key itself, without modifiers.
    pub code: KeyCode,
    /// With control held.
    pub ctrl: bool,
}

impl Key {
    /// The key of a terminal's event. Shift is in the character itself.
    #[must_use]
    pub fn of(event: &KeyEvent) -> Self {
        let ctrl = event.modifiers.contains(KeyModifiers::CONTROL);
        let code = match event.code {
            KeyCode::Char(c) if ctrl => KeyCode::Char(c.to_ascii_lowercase()),
            code => code,
        };
        Self { code, ctrl }
    }

    /// Reads `ctrl-d`, `PgUp`, `g`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (ctrl, name) = text.strip_prefix("ctrl-").map_or((false, text), |rest| (true, rest));
        let named = NAMES.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, code)| *code);
        let mut chars = name.chars();
        let code = match (named, chars.next(), chars.next()) {
            (Some(code), ..) => code,
            (None, Some(c), None) => KeyCode::Char(c),
            _ => return None,
        };
        Some(Self { code, ctrl })
    }
}

const NAMES: [(&str, KeyCode); 14] = [
    ("Up", KeyCode::Up),
    ("Down", KeyCode::Down),
    ("Left", KeyCode::Left),
    ("Right", KeyCode::Right),
    ("Home", KeyCode::Home),
    ("End", KeyCode::End),
    ("PgUp", KeyCode::PageUp),
    ("PgDn", KeyCode::PageDown),
    ("Enter", KeyCode::Enter),
    ("Esc", KeyCode::Esc),
    ("Tab", KeyCode::Tab),
    ("Shift-Tab", KeyCode::BackTab),
    ("Space", KeyCode::Char(' ')),
    ("Backspace", KeyCode::Backspace),
];

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ctrl {
            f.write_str("ctrl-")?;
        }
        match (NAMES.iter().find(|(_, code)| *code == self.code), self.code) {
            (Some((name, _)), _) => f.write_str(name),
            (None, KeyCode::Char(c)) => write!(f, "{c}"),
            (None, code) => write!(f, "{code}"),
        }
    }
}

/// Where keys mean something; a set of places, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contexts(u32);

macro_rules! contexts {
    ($($(#[$doc:meta])* $name:ident = $bit:literal, $title:literal;)+) => {
        impl Contexts {
            $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)+
            /// Every single place with its title.
            pub const EACH: &'static [(Self, &'static str)] = &[$((Self::$name, $title)),+];
        }
    };
}

contexts! {
    /// The calls of the live screen.
    CALLS = 0, "Live: calls";
    /// The sessions of the live screen.
    SESSIONS = 1, "Live: sessions";
    /// The detail of a call.
    DETAIL = 2, "Detail of a call";
    /// The list of packs.
    PACKS = 3, "Packs";
    /// Stages, verdicts and errors of a pack.
    PACK = 4, "Pack: verification";
    /// Receipts of a pack.
    RECEIPTS = 5, "Pack: receipts";
    /// The chain of a pack.
    CHAIN = 6, "Pack: chain";
    /// Two packs compared.
    DIFF = 7, "Diff";
    /// Help and other text that covers the screen.
    READING = 8, "Help";
    /// A line that is being typed.
    TYPING = 9, "Typing";
    /// The list of commands.
    PALETTE = 10, "Palette";
    /// The text of a policy.
    POLICY = 11, "Policy: text";
    /// What the policy would do.
    JUDGED = 12, "Policy: what it would do";
    /// The text of a policy while it is typed.
    EDITOR = 13, "Policy: typing";
    /// Servers, what they offer, and what of it is approved.
    SURFACE = 14, "Surface";
    /// The messages of the live screen.
    MESSAGES = 15, "Live: messages";
    /// The messages of a pack.
    CROSSED = 16, "Pack: messages";
    /// Calls as a picture of time.
    TIMELINE = 17, "Timeline";
}

impl Contexts {
    /// Everywhere but where text is typed.
    pub const GLOBAL: Self = Self(!(Self::TYPING.0 | Self::PALETTE.0 | Self::EDITOR.0));
    /// Where there is a list of calls or messages that a filter narrows.
    pub const LISTS: Self =
        Self(Self::CALLS.0 | Self::RECEIPTS.0 | Self::MESSAGES.0 | Self::CROSSED.0 | Self::TIMELINE.0);
    /// The screens, without what covers them.
    pub const SCREENS: Self = Self(Self::GLOBAL.0 & !Self::READING.0);

    /// The screen of policies, when nothing is typed.
    pub const POLICIES: Self = Self(Self::POLICY.0 | Self::JUDGED.0);

    /// All of this but the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The places of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether `place` is in it.
    #[must_use]
    pub const fn has(self, place: Self) -> bool {
        self.0 & place.0 != 0
    }
}

macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $help:literal;)+) => {
        /// What a key, the palette or the mouse can ask for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Command {
            $(#[doc = $help] $name),+
        }

        impl Command {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Its name in palette and footer.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word),+ }
            }

            /// What it does, for help.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(Self::$name => $help),+ }
            }
        }
    };
}

commands! {
    Up = "up", "One line up; in a list of live calls, also stop following";
    Down = "down", "One line down";
    Left = "left", "Fold, or go to the left pane";
    Right = "right", "Unfold, or go to the right pane or to the rule of a call";
    Top = "top", "Go to the first line";
    Bottom = "bottom", "Go to the last line; in a list of live calls, also follow again";
    PageUp = "page up", "One page up";
    PageDown = "page down", "One page down";
    HalfUp = "half page up", "Half a page up";
    HalfDown = "half page down", "Half a page down";
    Enter = "open", "Open what is selected";
    Back = "back", "Close what is open, clear the filter, or cancel what is running";
    Quit = "quit", "Go back; on the first screen, leave the program";
    Leave = "leave", "Leave the program at once";
    Filter = "filter", "Filter the list: tool: server: verdict: outcome: id: ms> ! and plain text";
    Next = "next problem", "Next denied, failed or slow call; next finding, next match";
    Previous = "previous problem", "Previous denied, failed or slow call, finding or match";
    Palette = "palette", "Find a command by name or key";
    Help = "help", "All keys of this screen";
    CopyValue = "copy", "Copy what is selected";
    CopyPath = "copy path", "Copy the JSON path of what is selected";
    CopyRaw = "copy raw", "Copy the whole line of evidence as it is on disk";
    Follow = "follow", "Start or stop following new calls";
    Pause = "pause", "Freeze the screen; recording continues";
    NextPane = "next pane", "Go to the next pane";
    PreviousPane = "previous pane", "Go to the previous pane";
    NextTab = "next tab", "Next tab, of the detail or of the pack";
    PreviousTab = "previous tab", "Previous tab, of the detail or of the pack";
    ShowLive = "live", "Live sessions";
    ShowPacks = "packs", "Recorded packs";
    ShowPack = "pack", "The pack that was opened last";
    ShowDiff = "diff", "The last comparison";
    ShowPolicy = "policy", "A policy, and what it would do to the selected session or pack";
    ShowSurface = "surface", "What servers offer, and what of it is approved";
    Approve = "approve", "Approve the selected item, group of changes or facet";
    ApproveAll = "approve all", "Approve all that was seen of the server; asks first and shows the root";
    Block = "block", "Block the selected item or group: under guard nobody is shown it or may call it";
    Reason = "reason", "Type the reason of the next decision; it is signed with it";
    Edit = "edit", "Start typing into the text";
    Write = "write", "Write the text into the file";
    Undo = "undo", "Undo the last change";
    Redo = "redo", "Redo the change that was undone";
    Reread = "read again", "Read the files again, or have a gateway look at the service; in a policy, drop the changes, and undo brings them back";
    Propose = "propose", "Replace the text with the smallest policy that allows the recorded calls; undo takes it back";
    Everything = "all sessions", "Judge all sessions of the audit directory, or again only the selected one";
    Messages = "messages", "All messages instead of calls, in both directions; or calls again";
    Timeline = "timeline", "Calls as a picture of time, with the totals by tool; or the list again";
    ZoomIn = "zoom in", "A shorter stretch of time; left and right move it";
    ZoomOut = "zoom out", "A longer stretch of time";
    Sessions = "sessions", "Show or hide the list of sessions";
    OpenFiles = "open files", "Open the evidence of the session: its pack, or its files while it has none";
    FoldAll = "fold all", "Fold or unfold everything";
    Prove = "prove", "Write a proof of the selected receipt or event, for people who may not see the others";
    Mark = "mark", "Mark a pack as the baseline of a comparison";
    Compare = "compare", "Compare the marked pack with this one";
    Verify = "verify", "Verify the pack again, or compare the packs again";
    Mouse = "mouse", "Turn the mouse on or off; off lets the terminal select text";
    Zone = "time zone", "Times in UTC, or again where you are";
    Theme = "theme", "Next theme: terminal colours, bright, no colours";
    Redraw = "redraw", "Redraw the screen";
    Suspend = "suspend", "Suspend until the shell's fg; while typing a policy, press Esc first";
}

/// One line of the table.
#[derive(Debug)]
pub struct Binding {
    /// Keys, any of them.
    pub keys: &'static [&'static str],
    /// What they do.
    pub command: Command,
    /// The places where the key works.
    pub contexts: Contexts,
    /// Place in the footer, smaller first; 0 is not shown.
    pub footer: u8,
}

const fn bind(keys: &'static [&'static str], command: Command, contexts: Contexts, footer: u8) -> Binding {
    Binding { keys, command, contexts, footer }
}

const PANES: Contexts = Contexts::SCREENS;
const CALLS_AND: Contexts = Contexts::CALLS.and(Contexts::SESSIONS).and(Contexts::DETAIL);
const LIVE: Contexts = CALLS_AND.and(Contexts::MESSAGES).and(Contexts::TIMELINE);
const WITH_DETAIL: Contexts = CALLS_AND.and(Contexts::RECEIPTS).and(Contexts::CHAIN);
const WITH_TABS: Contexts = WITH_DETAIL.and(Contexts::PACK).and(Contexts::CROSSED).and(Contexts::TIMELINE);
const TYPED: Contexts = Contexts::TYPING.and(Contexts::PALETTE).and(Contexts::EDITOR);
const PACKS_OWN: Contexts = Contexts::PACK.and(Contexts::RECEIPTS).and(Contexts::CHAIN).and(Contexts::CROSSED);
const PACK_AND: Contexts = PACKS_OWN.and(Contexts::DIFF);

/// Every key binding: footer, help, palette and docs/keys.md are made from it.
pub static TABLE: &[Binding] = &[
    bind(&["Up", "k"], Command::Up, Contexts::GLOBAL, 0),
    bind(&["Down", "j"], Command::Down, Contexts::GLOBAL, 0),
    bind(&["Left", "h"], Command::Left, PANES, 0),
    bind(&["Right", "l"], Command::Right, PANES, 0),
    bind(&["g", "Home"], Command::Top, Contexts::GLOBAL, 0),
    bind(&["G", "End"], Command::Bottom, Contexts::GLOBAL, 0),
    bind(&["PgUp", "ctrl-b"], Command::PageUp, Contexts::GLOBAL, 0),
    bind(&["PgDn"], Command::PageDown, Contexts::GLOBAL, 0),
    bind(&["ctrl-u"], Command::HalfUp, Contexts::GLOBAL, 0),
    bind(&["ctrl-d"], Command::HalfDown, Contexts::GLOBAL, 0),
    bind(&["Enter"], Command::Enter, PANES.without(Contexts::POLICY), 3),
    bind(&["Enter", "i"], Command::Edit, Contexts::POLICY, 3),
    bind(&["w"], Command::Write, Contexts::POLICIES, 4),
    bind(&["Esc"], Command::Back, Contexts::EDITOR, 2),
    bind(&["ctrl-s"], Command::Write, Contexts::EDITOR, 3),
    bind(&["ctrl-z"], Command::Undo, Contexts::EDITOR, 4),
    bind(&["ctrl-y"], Command::Redo, Contexts::EDITOR, 5),
    bind(&["u"], Command::Undo, Contexts::POLICIES, 8),
    bind(&["ctrl-r"], Command::Redo, Contexts::POLICIES, 0),
    bind(&["R"], Command::Reread, Contexts::POLICIES.and(Contexts::SURFACE), 0),
    bind(&["a"], Command::Approve, Contexts::SURFACE, 4),
    bind(&["A"], Command::ApproveAll, Contexts::SURFACE, 5),
    bind(&["b"], Command::Block, Contexts::SURFACE, 6),
    bind(&["e"], Command::Reason, Contexts::SURFACE, 8),
    bind(&["p"], Command::Propose, Contexts::POLICIES, 9),
    bind(&["a"], Command::Everything, Contexts::POLICIES, 6),
    bind(
        &["/"],
        Command::Filter,
        Contexts::LISTS.and(Contexts::SESSIONS).and(Contexts::DETAIL).and(Contexts::PACKS).and(Contexts::DIFF),
        4,
    ),
    bind(&["f"], Command::Follow, LIVE, 6),
    bind(&["Space"], Command::Pause, LIVE, 9),
    bind(&["n"], Command::Next, PANES, 5),
    bind(&["N"], Command::Previous, PANES, 0),
    bind(&["Tab"], Command::NextPane, PANES, 7),
    bind(&["Shift-Tab"], Command::PreviousPane, PANES, 0),
    bind(&["]", "."], Command::NextTab, WITH_TABS, 8),
    bind(&["[", ","], Command::PreviousTab, WITH_TABS, 0),
    bind(&["y"], Command::CopyValue, PANES, 10),
    bind(&["Y"], Command::CopyPath, PANES, 0),
    bind(&["ctrl-y"], Command::CopyRaw, PANES, 0),
    bind(&["z"], Command::FoldAll, WITH_DETAIL.and(Contexts::DIFF), 0),
    bind(&["o"], Command::OpenFiles, LIVE.and(Contexts::POLICIES), 12),
    bind(&["s"], Command::Sessions, LIVE, 11),
    bind(&["m"], Command::Messages, LIVE.and(PACKS_OWN), 9),
    bind(&["t"], Command::Timeline, LIVE.and(PACKS_OWN), 9),
    bind(&["+", "="], Command::ZoomIn, Contexts::TIMELINE, 4),
    bind(&["-"], Command::ZoomOut, Contexts::TIMELINE, 5),
    bind(&["P"], Command::Prove, Contexts::RECEIPTS.and(Contexts::CHAIN), 0),
    bind(&["m"], Command::Mark, Contexts::PACKS, 5),
    bind(&["d"], Command::Compare, Contexts::PACKS, 6),
    bind(&["v"], Command::Verify, Contexts::PACKS.and(PACK_AND), 7),
    bind(&["1"], Command::ShowLive, PANES, 0),
    bind(&["2"], Command::ShowPacks, PANES, 0),
    bind(&["3"], Command::ShowPack, PANES, 0),
    bind(&["4"], Command::ShowDiff, PANES, 0),
    bind(&["5"], Command::ShowPolicy, PANES, 0),
    bind(&["6"], Command::ShowSurface, PANES, 0),
    bind(&["Esc"], Command::Back, Contexts::GLOBAL, 12),
    bind(&[":", "ctrl-p"], Command::Palette, PANES, 2),
    bind(&["?"], Command::Help, PANES, 1),
    bind(&["q"], Command::Quit, Contexts::GLOBAL, 13),
    bind(&["M"], Command::Mouse, PANES, 0),
    bind(&["T"], Command::Theme, PANES, 0),
    bind(&["Z"], Command::Zone, PANES, 0),
    bind(&["ctrl-l"], Command::Redraw, Contexts::GLOBAL, 0),
    bind(&["ctrl-z"], Command::Suspend, TYPED.and(Contexts::GLOBAL).without(Contexts::EDITOR), 0),
    bind(&["ctrl-c"], Command::Leave, TYPED.and(Contexts::GLOBAL), 0),
];

/// What a key asks for in a place.
#[must_use]
pub fn command(key: Key, place: Contexts) -> Option<Command> {
    let mut bindings = TABLE.iter().filter(|b| b.contexts.has(place));
    bindings.find(|b| b.keys.iter().any(|k| Key::parse(k) == Some(key))).map(|b| b.command)
}

/// The keys of a command in a place, for showing.
#[must_use]
pub fn keys(command: Command, place: Contexts) -> Option<&'static [&'static str]> {
    TABLE.iter().find(|b| b.command == command && b.contexts.has(place)).map(|b| b.keys)
}

/// What the footer shows in a place, the most important first.
#[must_use]
pub fn footer(place: Contexts) -> Vec<&'static Binding> {
    let mut shown: Vec<_> = TABLE.iter().filter(|b| b.footer > 0 && b.contexts.has(place)).collect();
    shown.sort_by_key(|b| b.footer);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// The text of docs/keys.md.
    fn markdown() -> String {
        use std::fmt::Write as _;
        let mut out = String::from(
            "# Keys of the dashboard\n\nMade from `src/tui/keymap.rs`, where footer, help and palette come from too; \
             `UPDATE_DOCS=1 cargo test --lib keymap` writes it again.\n",
        );
        for (place, title) in Contexts::EACH.iter().filter(|(p, _)| TABLE.iter().any(|b| b.contexts.has(*p))) {
            let _ = write!(out, "\n## {title}\n\n| key | command | what it does |\n|---|---|---|\n");
            for b in TABLE.iter().filter(|b| b.contexts.has(*place)) {
                let keys: Vec<String> = b.keys.iter().map(|k| format!("`{k}`")).collect();
                let _ = writeln!(out, "| {} | {} | {} |", keys.join(" "), b.command.word(), b.command.help());
            }
        }
        out.push_str(
            "\n## While typing\n\nEnter takes what was typed, Esc leaves it; arrows, Home, End, `ctrl-a`, `ctrl-e`, `ctrl-w`, \
             `ctrl-k` and `ctrl-u` edit.\n\nIn the text of a policy Esc ends typing and leaves nothing out; Enter begins a line as deep as the \
             one before, Tab and Shift-Tab move by two blanks, ctrl-Left and ctrl-Right by a word.\n",
        );
        out
    }

    #[test]
    fn every_key_is_one_and_means_one_thing_in_each_place() {
        for (place, title) in Contexts::EACH {
            let mut seen = HashSet::new();
            for b in TABLE.iter().filter(|b| b.contexts.has(*place)) {
                for text in b.keys {
                    let key = Key::parse(text).unwrap_or_else(|| panic!("{text} is no key"));
                    assert_eq!(key.to_string(), *text);
                    assert!(seen.insert(key), "{title}: {text} twice");
                }
            }
        }
    }

    #[test]
    fn every_command_has_a_key_and_a_help_text() {
        for c in Command::ALL {
            assert!(!c.help().is_empty() && !c.word().is_empty(), "{c:?}");
            assert!(TABLE.iter().any(|b| b.command == *c), "{c:?} has no key");
        }
        let words: HashSet<_> = Command::ALL.iter().map(|c| c.word()).collect();
        assert_eq!(words.len(), Command::ALL.len(), "two commands with one name");
    }

    #[test]
    fn the_page_of_keys_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/keys.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, markdown()).unwrap();
        }
        let stored = std::fs::read_to_string(path).unwrap();
        assert!(stored == markdown(), "docs/keys.md is old: UPDATE_DOCS=1 cargo test --lib keymap");
    }
}
