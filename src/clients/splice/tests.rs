#![allow(clippy::format_push_string, clippy::range_plus_one)]

mod by_url;

use super::*;
use crate::clients::{entry::entries, table::ANYWHERE};

fn ours() -> Ours {
    Ours {
        program: "/home/me/bin/assay".to_owned(),
        flags: ["--audit-dir", "/home/me/.assay/mcp", "--server-id", "s"].map(str::to_owned).to_vec(),
    }
}

/// The slots of all entries that have one.
fn slots(dialect: Dialect, text: &str) -> Vec<Slot> {
    let tree = read::tree(dialect, text).unwrap_or_else(|e| panic!("{e}\n{text}")).unwrap();
    entries(text, &tree, ANYWHERE).unwrap().into_iter().filter_map(|entry| entry.slot).collect()
}

/// Wraps every entry, checks each, and unwraps them in this order.
fn there_and_back(dialect: Dialect, text: &str) -> Result<String, String> {
    let mut now = text.to_owned();
    let slots = slots(dialect, text);
    assert!(!slots.is_empty(), "{text}");
    for slot in &slots {
        let before = argv(dialect, &now, slot).map_err(|e| e.to_string())?;
        now = wrap(dialect, &now, slot, &ours()).map_err(|e| format!("{e}\n{now}"))?;
        let after = argv(dialect, &now, slot).map_err(|e| e.to_string())?;
        let wrapped = Wrapped::read(&after).unwrap();
        assert_eq!(after[wrapped.ours..], before[..], "{now}");
        assert_eq!((&wrapped.program, &wrapped.flags), (&ours().program, &ours().flags), "{now}");
    }
    let all = now.clone();
    for slot in &slots {
        now = unwrap(dialect, &now, slot).map_err(|e| format!("{e}\n{now}"))?;
    }
    assert_eq!(now, text, "wrapped:\n{all}");
    Ok(all)
}

#[test]
fn elements_go_in_as_the_file_writes_its_own_and_out_again() {
    for (dialect, text, wrapped) in [
        (
            Dialect::Json,
            "{\"mcpServers\":{\"a\":{\"command\":\"npx\",\"args\":[\"-y\",\"x\"]}}}",
            "{\"mcpServers\":{\"a\":{\"command\":\"/home/me/bin/assay\",\"args\":[\"mcp-proxy\",\"--audit-dir\",\
             \"/home/me/.assay/mcp\",\"--server-id\",\"s\",\"--wrapped=1\",\"--\",\"npx\",\"-y\",\"x\"]}}}",
        ),
        (
            Dialect::Json,
            "{\"mcpServers\":{\"a\":{\"command\":\"npx\"}}}",
            "{\"mcpServers\":{\"a\":{\"command\":\"/home/me/bin/assay\",\"args\":[\"mcp-proxy\",\"--audit-dir\",\
             \"/home/me/.assay/mcp\",\"--server-id\",\"s\",\"--wrapped=1,args\",\"--\",\"npx\"]}}}",
        ),
        (
            Dialect::Toml,
            "[mcp_servers.a]\ncommand = 'C:\\x y' # old\n",
            "[mcp_servers.a]\ncommand = \"/home/me/bin/assay\" # old\nargs = [\"mcp-proxy\", \"--audit-dir\", \
             \"/home/me/.assay/mcp\", \"--server-id\", \"s\", \"--wrapped=1,args\", \"--\", 'C:\\x y']\n",
        ),
        (
            Dialect::Yaml,
            "extensions:\n  a:\n    args:\n    - -y # first\n    - x\n    cmd: npx # run\n    type: stdio\n",
            "extensions:\n  a:\n    args:\n    - mcp-proxy\n    - --audit-dir\n    - /home/me/.assay/mcp\n    \
             - --server-id\n    - s\n    - \"--wrapped=1\"\n    - \"--\"\n    - npx\n    - -y # first\n    - x\n    \
             cmd: /home/me/bin/assay # run\n    type: stdio\n",
        ),
        (
            Dialect::Yaml,
            "extensions:\n  a:\n    args: [x]\n    cmd: C:\\a,b [1] # why\n",
            "extensions:\n  a:\n    args: [mcp-proxy, --audit-dir, /home/me/.assay/mcp, --server-id, s, \"--wrapped=1,plain\", \
             \"--\", \"C:\\\\a,b [1]\", x]\n    cmd: /home/me/bin/assay # why\n",
        ),
        (
            Dialect::Yaml,
            "mcpServers:\n  - command: npx\n    name: a\n",
            "mcpServers:\n  - command: /home/me/bin/assay\n    args:\n      - mcp-proxy\n      - --audit-dir\n      \
             - /home/me/.assay/mcp\n      - --server-id\n      - s\n      - \"--wrapped=1,args\"\n      - \"--\"\n      \
             - npx\n    name: a\n",
        ),
    ] {
        assert_eq!(there_and_back(dialect, text).unwrap(), wrapped);
    }
}

#[test]
fn shapes_of_every_client_come_back_byte_for_byte() {
    for (dialect, text) in [
        (Dialect::Json, "\u{feff}{\r\n\t\"mcpServers\" : {\r\n\t\t\"a\" : {\r\n\t\t\t\"command\" : \"n\\u0070x\",\r\n\t\t\t\"args\" : [\r\n\t\t\t\t\"-y\",\r\n\t\t\t\t\"x\"\r\n\t\t\t]\r\n\t\t}\r\n\t}\r\n}\r\n"),
        (Dialect::Json, "{ // c\n  \"servers\": {\n    \"a\": { /* x */ \"args\": [ /* y */ \"-y\", /* z */ \"x\", ], \"command\": \"npx\", },\n  },\n}"),
        (Dialect::Json, "{\"mcpServers\":{\"a\":{\"command\":\"x\",\"args\":[ ]},\"b\":{\"args\":[/* none */],\"command\":\"y\"}}}"),
        (Dialect::Json, "{\"mcpServers\":{\"a\":\n  {\n    // first\n    \"command\": \"x\", // why\n    \"env\": {\"A\": \"b\"}\n  }}}"),
        (Dialect::Json, "{\"mcpServers\":{\"a\":{\"command\":\n\"x\"\n}}}"),
        (Dialect::Json, "{\"mcp\":{\"a\":{\"type\":\"local\",\"command\":[\"npx\",\"-y\"],\"enabled\":true},\n// \"b\":{},\n\"c\":{\"command\":[ \"x\" ]}}}"),
        (Dialect::Json, "{\"mcp\":{\"servers\":{\"a\":{\"command\":[\n  \"npx\"\n]}}}}"),
        (Dialect::Json, "{\"context_servers\":{\"a\":{\"command\":{\"path\":\"/x\",\"args\":[\"1\"],\"env\":null}},\"b\":{\"command\":{\"path\":\"y\"}}}}"),
        (Dialect::Json, "{\"projects\":{\"/p\":{\"mcpServers\":{\"a\":{\"type\":\"stdio\",\"command\":\"x\",\"args\":[],\"env\":{}}}}},\"mcpServers\":{\"a\":{\"command\":\"z\"}}}"),
        (Dialect::Json, "{\"mcpServers\":{\"日本 \\\"語\":{\"command\":\"é\",\"args\":[\"ü\"]}}}"),
        (Dialect::Toml, "# top\n[mcp_servers.\"a b\"]\r\ncommand = \"npx\"\r\nargs = [\"-y\", \"x\"] # c\r\n[mcp_servers.\"a b\".env]\r\nA = \"1\"\r\n"),
        (Dialect::Toml, "[mcp_servers]\na = { command = \"npx\", args = [] }\nb = {command='x'}\nc.command = '''y'''\nc.args = [\n  # why\n  'z', # zz\n  \"w\",\n]\nd.command = \"q\"\n"),
        (Dialect::Toml, "mcp_servers.a.command = \"x\"\nmcp_servers.a.startup_timeout_sec = 2\n"),
        (Dialect::Toml, "mcp_servers = { a = { command = \"x\", env = { A = \"1\" } } }"),
        (Dialect::Toml, "\u{feff}[mcp_servers.a]\n  command=\"x\""),
        (Dialect::Yaml, "# g\r\nextensions:\r\n  a:\r\n    args: []\r\n    cmd: 'it''s'\r\n    type: stdio\r\n  b: {type: stdio, cmd: x, args: [y, 'z']}\r\n  c: {cmd: x}\r\n"),
        (Dialect::Yaml, "mcpServers:\n- name: a\n  command: npx   # c\n  args:\n  -   -y\n\n  - \"x: y\"\n- name: é\n  command: \"y\"\nother: *x\n".replace("*x", "1").leak()),
        (Dialect::Yaml, "anchors: &x [1]\nmore: *x\nmcpServers:\n  - name: a\n    command: x"),
    ] {
        if let Err(why) = there_and_back(dialect, text) {
            panic!("{why}\n{text}");
        }
    }
}

#[test]
fn what_is_refused_says_why() {
    for (dialect, text, why) in [
        (Dialect::Json, "{\"mcpServers\":{\"a\":{\"command\":\"x\",\"command\":\"y\"}}}", "twice"),
        (Dialect::Json, "{\"mcpServers\":{},\"mcpServers\":{\"a\":{\"command\":\"x\"}}}", "twice"),
        (Dialect::Json, "{\"mcpServers\":{\"a\":{\"command\":\"x\",\"args\":[1]}}}", "something else than strings"),
        (Dialect::Json, "{\"mcpServers\":{\"a\":{\"command\":\"x\",\"args\":\"y\"}}}", "not a list"),
        (Dialect::Json, "{\"mcpServers\":{\"a\":{\"command\":[]}}}", "empty"),
        (Dialect::Yaml, "extensions:\n  a: &x\n    cmd: y\n", "anchor"),
        (Dialect::Yaml, "extensions: !t\n  a:\n    cmd: y\n", "tag"),
        (Dialect::Yaml, "e: &e {A: b}\nextensions:\n  a:\n    cmd: y\n    envs: *e\n", "alias"),
        (Dialect::Yaml, "extensions:\n  a:\n    cmd: y\n     z\n", "several lines"),
        (Dialect::Yaml, "extensions:\n  a: {cmd: \"x\", args: }\n", "not a list"),
        (
            Dialect::Yaml,
            "extensions:\n  a:\n    cmd: x\n    args:\n    - |\n      two\n      lines\n",
            "a line of their own",
        ),
    ] {
        let slot = slots(dialect, text).pop().unwrap();
        let refused = wrap(dialect, text, &slot, &ours()).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}\n{text}");
    }
}

#[test]
fn what_was_written_by_hand_and_what_a_client_wrote_anew_is_undone_by_meaning() {
    for (dialect, text, undone) in [
        (
            Dialect::Json,
            "{\"mcpServers\":{\"a\":{\"command\":\"assay\",\"args\":[\"mcp-proxy\",\"--\",\"npx\",\"-y\"]}}}",
            "{\"mcpServers\":{\"a\":{\"command\":\"npx\",\"args\":[\"-y\"]}}}",
        ),
        (
            Dialect::Json,
            "{\"mcpServers\":{\"a\":{\"args\":[\n\"mcp-proxy\",\n\"--wrapped=1,args\",\n\"--\",\n\"npx\",\n],\"command\":\"/x/assay\"}}}",
            "{\"mcpServers\":{\"a\":{\"command\":\"npx\"}}}",
        ),
        (
            Dialect::Json,
            "{\"mcpServers\":{\"a\":{\"command\":\"/x/assay\",\"args\":[\"mcp-proxy\",\"--wrapped=1\",\"--\",\"npx\",]}}}",
            "{\"mcpServers\":{\"a\":{\"command\":\"npx\",\"args\":[]}}}",
        ),
        (
            Dialect::Json,
            "{\"mcpServers\":{\"a\":{\"command\":\"/x/assay\",\"args\":[\"mcp-proxy\",\"--wrapped=1,args\",\"--\",\"npx\",\"new\"]}}}",
            "{\"mcpServers\":{\"a\":{\"command\":\"npx\",\"args\":[\"new\"]}}}",
        ),
        (
            Dialect::Yaml,
            "extensions:\n  a:\n    args:\n    - mcp-proxy\n    - --wrapped=1,args\n    - --\n    - npx\n    cmd: assay\n",
            "extensions:\n  a:\n    cmd: npx\n",
        ),
        (
            Dialect::Toml,
            "[mcp_servers.a]\nargs = [\"mcp-proxy\", \"--wrapped=1,args\", \"--\", \"npx\"]\ncommand = \"assay\"\n",
            "[mcp_servers.a]\ncommand = \"npx\"\n",
        ),
    ] {
        let slot = slots(dialect, text).pop().unwrap();
        assert_eq!(unwrap(dialect, text, &slot).unwrap_or_else(|e| panic!("{e}\n{text}")), undone);
    }
    let text = "{\"mcpServers\":{\"a\":{\"command\":\"assay\",\"args\":[\"mcp-proxy\",\"--\"]}}}";
    let slot = slots(Dialect::Json, text).pop().unwrap();
    assert!(unwrap(Dialect::Json, text, &slot).unwrap_err().to_string().contains("no server's command"));
}

/// A source of random choices.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.roll(choices.len())]
    }

    fn coin(&mut self) -> bool {
        self.roll(2) == 0
    }
}

/// White space and comments between two tokens of JSON.
fn blank(dice: &mut Dice, eol: &str) -> String {
    let mut text = String::new();
    for _ in 0..dice.roll(3) {
        match dice.roll(8) {
            0 => text.push_str(&format!("// c, [\" }}{eol}")),
            1 => text.push_str("/* ] \" */"),
            2 => text.push('\t'),
            3 => text.push_str(eol),
            4 => text.push_str(&format!("{eol}    ")),
            _ => text.push(' '),
        }
    }
    text
}

const WORDS: [&str; 12] =
    ["npx", "-y", "@s/p", "a b", "C:\\x y", "q\"q", "it's", "日本", "--", "-", "${HOME}/x", "a,b]"];

fn json_string(dice: &mut Dice) -> String {
    let word = dice.of(&WORDS);
    let mut text = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '/' if dice.coin() => text.push_str("\\/"),
            c if c.is_ascii() && dice.roll(6) == 0 => text.push_str(&format!("\\u{:04X}", c as u32)),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

fn json_file(dice: &mut Dice) -> String {
    let eol = dice.of(&["\n", "\r\n"]);
    let list = |dice: &mut Dice, least: usize| {
        let mut text = String::from("[");
        let count = least + dice.roll(4);
        for n in 0..count {
            text.push_str(&blank(dice, eol));
            text.push_str(&json_string(dice));
            text.push_str(&blank(dice, eol));
            if n + 1 < count || dice.roll(4) == 0 {
                text.push(',');
            }
        }
        text + &blank(dice, eol) + "]"
    };
    let key = dice.of(&["mcpServers", "servers", "context_servers", "mcp"]);
    let mut text = format!(
        "{}{}{{{}\"{key}\":{}{{",
        dice.of(&["", "\u{feff}"]),
        blank(dice, eol),
        blank(dice, eol),
        blank(dice, eol)
    );
    let count = 1 + dice.roll(3);
    for n in 0..count {
        let mut members = vec!["\"env\": {\"A\": [1, 2.50, true, null]}".to_owned()];
        let one_list = dice.roll(4) == 0;
        let command = if one_list { list(dice, 1) } else { json_string(dice) };
        members.push(format!("\"command\"{}:{}{command}", blank(dice, eol), blank(dice, eol)));
        if !one_list && dice.coin() {
            members.push(format!("\"args\"{}:{}{}", blank(dice, eol), blank(dice, eol), list(dice, 0)));
        }
        let turn = dice.roll(members.len());
        members.rotate_left(turn);
        let between = format!("{},{}", blank(dice, eol), blank(dice, eol));
        text.push_str(&format!(
            "{}\"s{n}\":{{{}{}{}}}",
            blank(dice, eol),
            blank(dice, eol),
            members.join(&between),
            blank(dice, eol)
        ));
        if n + 1 < count || dice.roll(4) == 0 {
            text.push(',');
        }
    }
    text + &blank(dice, eol) + "}" + &blank(dice, eol) + "}" + &blank(dice, eol)
}

fn toml_string(dice: &mut Dice) -> String {
    let word = dice.of(&WORDS);
    match dice.roll(4) {
        0 if !word.contains('\'') => format!("'{word}'"),
        1 if !word.contains('\'') => format!("'''{word}'''"),
        2 => format!("\"\"\"{}\"\"\"", word.replace('\\', "\\\\").replace('"', "\\\"")),
        _ => serde_json::Value::from(word).to_string(),
    }
}

fn toml_file(dice: &mut Dice) -> String {
    let eol = dice.of(&["\n", "\r\n"]);
    let mut text = String::from(dice.of(&["", "\u{feff}", "# [mcp.x] \n", "model = \"m\"\n"])).replace('\n', eol);
    let gap = dice.of(&[" = ", "=", "  =\t"]);
    let mut inlined = String::new();
    let list = |dice: &mut Dice, flat: bool| {
        let mut list = String::from("[");
        let count = dice.roll(4);
        let between =
            if flat { dice.of(&["", " "]) } else { dice.of(&["", " ", "\n  ", " # c ]\n  "]) }.replace('\n', eol);
        for n in 0..count {
            list.push_str(&between);
            list.push_str(&toml_string(dice));
            if n + 1 < count || dice.roll(4) == 0 {
                list.push(',');
            }
        }
        list + &between + "]"
    };
    for n in 0..1 + dice.roll(3) {
        let comment = dice.of(&["", " # c", "   "]);
        let indent = dice.of(&["", "  ", "\t"]);
        let mut members = vec![format!("command{gap}{}", toml_string(dice)), format!("cwd{gap}'/'")];
        let inline = dice.roll(3) == 0;
        if dice.coin() {
            members.push(format!("args{gap}{}", list(dice, inline)));
        }
        let turn = dice.roll(members.len());
        members.rotate_left(turn);
        if inline {
            inlined.push_str(&format!("mcp_servers.i{n}{gap}{{ {} }}{comment}{eol}", members.join(", ")));
        } else {
            text.push_str(&format!(
                "[mcp_servers.{}]{comment}{eol}",
                dice.of(&["s", "'s s'", "\"é\""]).replace('s', &format!("s{n}")).replace('é', &format!("é{n}"))
            ));
            for member in members {
                text.push_str(&format!("{indent}{member}{comment}{eol}"));
            }
        }
    }
    // Keys of the whole file stand before the tables.
    let whole = match text.find("[mcp_servers") {
        Some(at) => format!("{}{inlined}{}", &text[..at], &text[at..]),
        None => text + &inlined,
    };
    if dice.roll(3) == 0 { whole.trim_end().to_owned() } else { whole }
}

fn yaml_string(dice: &mut Dice) -> String {
    let word =
        dice.of(&["npx", "-y", "@s/p", "a b", "C:\\x y", "q\"q", "it's", "日本", "x: y", "--", "${HOME}/x", "a#b"]);
    let plain = !word.contains(": ") && !word.starts_with('@') && !word.contains('{');
    match dice.roll(3) {
        0 if plain => word.to_owned(),
        1 => format!("'{}'", word.replace('\'', "''")),
        _ => serde_json::Value::from(word).to_string(),
    }
}

fn yaml_file(dice: &mut Dice) -> String {
    let eol = dice.of(&["\n", "\r\n"]);
    let (goose, step) = (dice.coin(), dice.of(&["  ", "    "]));
    let mut text = format!(
        "{}{}:{eol}",
        dice.of(&["", "# top\n", "a: &x 1\nb: *x\n", "\u{feff}"]).replace('\n', eol),
        if goose { "extensions" } else { "mcpServers" }
    );
    for n in 0..1 + dice.roll(3) {
        let comment = dice.of(&["", " # c", "   # d: e"]);
        let key = if goose { "cmd" } else { "command" };
        let deep = if goose { format!("{step}{step}") } else { format!("{step}  ") };
        let mut members = vec![format!("{key}: {}{comment}", yaml_string(dice)), "type: stdio".to_owned()];
        if !goose {
            members.push(format!("name: s{n}"));
        }
        match dice.roll(4) {
            0 => members.push(format!("args: []{comment}")),
            1 => {
                let items: Vec<String> =
                    (0..1 + dice.roll(3)).map(|_| serde_json::Value::from(dice.of(&WORDS)).to_string()).collect();
                members.push(format!("args: [{}]{comment}", items.join(dice.of(&[", ", ","]))));
            }
            2 => {
                let indent = dice.of(&["", "  "]);
                let mut list = format!("args:{comment}");
                for _ in 0..1 + dice.roll(3) {
                    list.push_str(&format!(
                        "{eol}{deep}{indent}-{}{}{comment}",
                        dice.of(&[" ", "   "]),
                        yaml_string(dice)
                    ));
                    if dice.roll(5) == 0 {
                        list.push_str(&format!("{eol}{deep}{indent}# between"));
                    }
                }
                members.push(list);
            }
            _ => {}
        }
        let turn = dice.roll(members.len());
        members.rotate_left(turn);
        if goose {
            text.push_str(&format!("{step}s{n}:{comment}{eol}{deep}{}{eol}", members.join(&format!("{eol}{deep}"))));
        } else {
            text.push_str(&format!("{step}- {}{eol}", members.join(&format!("{eol}{deep}"))));
        }
    }
    if dice.roll(3) == 0 { text.trim_end().to_owned() } else { text }
}

/// `ASSAY_SPLICES` files, and `ASSAY_SPLICE_SEED` alone if that is given.
#[test]
fn generated_files_of_all_languages_come_back_byte_for_byte() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let seeds = match number("ASSAY_SPLICE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("ASSAY_SPLICES").unwrap_or(3000),
    };
    let mut done = 0_u64;
    for seed in seeds {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            dice.roll(2);
        }
        let (dialect, text) = match seed % 3 {
            0 => (Dialect::Json, json_file(&mut dice)),
            1 => (Dialect::Toml, toml_file(&mut dice)),
            _ => (Dialect::Yaml, yaml_file(&mut dice)),
        };
        if slots(dialect, &text).is_empty() {
            continue;
        }
        match there_and_back(dialect, &text) {
            Ok(_) => done += 1,
            Err(why) => panic!("seed {seed}: {why}\n{text}"),
        }
    }
    assert!(done > 0);
}
