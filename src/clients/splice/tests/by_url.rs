#![allow(clippy::format_push_string)]

use super::*;

/// The way to the only entry of a text.
fn way(dialect: Dialect, text: &str) -> Vec<Step> {
    let tree = read::tree(dialect, text).unwrap_or_else(|e| panic!("{e}\n{text}")).unwrap();
    entries(text, &tree, ANYWHERE).unwrap().pop().unwrap().path
}

fn bridged(dialect: Dialect, text: &str) -> Result<(String, Slot), Refusal> {
    let ours = Ours { program: "/b/assay".to_owned(), flags: ["--server-id", "s"].map(str::to_owned).to_vec() };
    remote::wrap(dialect, text, &way(dialect, text), &crate::clients::table::NAMED, &ours)
}

#[test]
fn a_url_becomes_the_bridge_where_it_stands_and_comes_back_byte_for_byte() {
    for (dialect, text, wrapped) in [
        (
            Dialect::Json,
            "{\"mcpServers\":{\"a\":{\"type\":\"http\",\"url\":\"https://h/mcp\",\"headers\":{\"X-A\":\"S\"}}}}",
            "{\"mcpServers\":{\"a\":{\"type\":\"stdio\",\"command\":\"/b/assay\",\"args\":[\"mcp-proxy\",\"--server-id\",\"s\",\
             \"--header-env\",\"X-A=ASSAY_HEADER_1\",\"--wrapped=1,url=url,type=http,headers=headers\",\"--upstream-url\",\
             \"https://h/mcp\"],\"env\":{\"ASSAY_HEADER_1\":\"S\"}}}}",
        ),
        (
            Dialect::Json,
            "{\n  \"mcpServers\": {\n    \"a\": {\n      \"serverUrl\": \"https:\\/\\/h\", // c\n      \"disabled\": true\n    }\n  }\n}",
            "{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"/b/assay\",\n      \"args\": [\"mcp-proxy\", \"--server-id\", \"s\", \
             \"--wrapped=1,url=serverUrl\", \"--upstream-url\", \"https:\\/\\/h\"], // c\n      \"disabled\": true\n    }\n  }\n}",
        ),
        (
            Dialect::Json,
            "{\"mcp\": {\"a\": {\"type\": \"remote\", \"url\": \"https://h\", \"oauth\": false, \"headers\": {}}}}",
            "{\"mcp\": {\"a\": {\"type\": \"local\", \"command\": [\"/b/assay\", \"mcp-proxy\", \"--server-id\", \"s\", \
             \"--wrapped=1,url=url,type=remote,headers=headers\", \"--upstream-url\", \"https://h\"], \"oauth\": false, \
             \"environment\": {}}}}",
        ),
        (
            Dialect::Toml,
            "[mcp_servers.a]\nurl = 'https://h' # c\n\n[mcp_servers.a.http_headers]\n'X-A' = \"S\"\nB = \"T\"\n",
            "[mcp_servers.a]\ncommand = \"/b/assay\" # c\nargs = [\"mcp-proxy\", \"--server-id\", \"s\", \"--header-env\", \
             \"X-A=ASSAY_HEADER_1\", \"--header-env\", \"B=ASSAY_HEADER_2\", \"--wrapped=1,url=url,headers=http_headers\", \
             \"--upstream-url\", 'https://h']\n\n[mcp_servers.a.env]\n'ASSAY_HEADER_1' = \"S\"\nASSAY_HEADER_2 = \"T\"\n",
        ),
        (
            Dialect::Yaml,
            "extensions:\n  a:\n    headers:\n      X-A: S # c\n    type: sse\n    uri: https://h/sse\n",
            "extensions:\n  a:\n    envs:\n      ASSAY_HEADER_1: S # c\n    type: stdio\n    cmd: /b/assay\n    args:\n      - mcp-proxy\n      \
             - --server-id\n      - s\n      - --transport\n      - sse\n      - --header-env\n      - \"X-A=ASSAY_HEADER_1\"\n      \
             - \"--wrapped=1,url=uri,type=sse,headers=headers\"\n      - --upstream-url\n      - https://h/sse\n",
        ),
        (
            Dialect::Yaml,
            "mcpServers:\n  - url: https://h\n    name: a\n    type: streamable-http\n",
            "mcpServers:\n  - command: /b/assay\n    args:\n      - mcp-proxy\n      - --server-id\n      - s\n      \
             - \"--wrapped=1,url=url,type=streamable-http\"\n      - --upstream-url\n      - https://h\n    name: a\n    type: stdio\n",
        ),
    ] {
        let (new, slot) = bridged(dialect, text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(new, wrapped);
        assert_eq!(slots(dialect, &new), std::slice::from_ref(&slot));
        let line = argv(dialect, &new, &slot).unwrap();
        assert!(!line.iter().any(|word| word == "S" || word == "T"), "{line:?}");
        assert_eq!(unwrap(dialect, &new, &slot).unwrap(), text);
    }
}

#[test]
fn a_url_stays_where_the_client_logs_in_itself_or_a_secret_would_show() {
    for (entry, why) in [
        ("\"url\":\"https://h\",\"oauth\":{\"clientId\":\"c\"}", "log in"),
        ("\"url\":\"https://h\",\"auth\":{}", "log in"),
        ("\"url\":\"https://h\",\"headersHelper\":\"/bin/x\"", "log in"),
        ("\"url\":\"https://h/mcp?key=hidden\"", "query"),
        ("\"url\":\"https://u:p@h/mcp\"", "password"),
        ("\"url\":\"wss://h\"", "wss"),
        ("\"url\":\"h\"", "its URL is none"),
        ("\"url\":\"https://$HOST/\"", "variable"),
        ("\"url\":\"https://h\",\"headers\":{\"A\":\"${T}\"}", "variable"),
        ("\"url\":\"https://h\",\"headers\":{\"A\":1}", "no text for a value"),
        ("\"url\":\"https://h\",\"headers\":{\"Host\":\"x\"}", "cannot be given"),
        ("\"url\":\"https://h\",\"headers\":{\"a b\":\"x\"}", "cannot be given"),
        ("\"url\":\"https://h\",\"headers\":{\"A\":\"x\",\"a\":\"y\"}", "is there twice"),
        ("\"url\":\"https://h\",\"headers\":[]", "no object"),
        ("\"url\":\"https://h\",\"httpUrl\":\"https://h\"", "two URLs"),
        ("\"url\":\"https://h\",\"env\":{}", "a URL and `env`"),
        ("\"url\":\"https://h\",\"type\":7", "is not a word"),
    ] {
        let text = format!("{{\"mcpServers\":{{\"a\":{{{entry}}}}}}}");
        let refused = bridged(Dialect::Json, &text).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}\n{text}");
        assert!(!refused.contains("hidden"), "{refused}");
    }
}

#[test]
fn what_became_of_a_bridge_meanwhile_is_undone_by_meaning_or_left() {
    let entry = |args: &str, env: &str| {
        format!("{{\"mcpServers\":{{\"a\":{{\"command\":\"assay\",\"args\":[\"mcp-proxy\",{args}]{env}}}}}}}")
    };
    let mark = "\"--wrapped=1,url=url,headers=headers\",\"--header-env\",\"A=ASSAY_HEADER_1\",\"--upstream-url\",\"https://h\"";
    let undone = |text: &str| {
        let slot = slots(Dialect::Json, text).pop().unwrap();
        unwrap(Dialect::Json, text, &slot).map_err(|e| e.to_string())
    };
    assert_eq!(
        undone(&entry(mark, ",\"env\":{\"ASSAY_HEADER_1\":\"S\"}")).unwrap(),
        "{\"mcpServers\":{\"a\":{\"url\":\"https://h\",\"headers\":{\"A\":\"S\"}}}}"
    );
    assert!(undone(&entry(mark, "")).unwrap_err().contains("are gone"));
    assert!(undone(&entry(mark, ",\"env\":{\"DEBUG\":\"1\"}")).unwrap_err().contains("DEBUG, which is no header"));
    let by_hand = entry("\"--upstream-url\",\"https://h\"", "");
    assert!(undone(&by_hand).unwrap_err().contains("by hand"));
}

/// An entry by URL in one of the languages, with whatever may stand around.
fn remote_file(dice: &mut Dice) -> (Dialect, String) {
    let eol = dice.of(&["\n", "\r\n"]);
    let headers: Vec<&str> = ["Authorization", "X-Key", "x_y"][..dice.roll(4)].to_vec();
    let kind = dice.of(&["", "http", "sse", "streamable-http"]);
    match dice.roll(3) {
        0 => {
            let open_code = dice.coin();
            let kind = if open_code { "remote" } else { kind };
            let url = if open_code { "url" } else { dice.of(&["url", "serverUrl", "httpUrl"]) };
            let mut gap = || blank(dice, eol);
            let member = |key: &str, value: &str, gap: &mut dyn FnMut() -> String| {
                format!("{}\"{key}\"{}:{}{value}{}", gap(), gap(), gap(), gap())
            };
            let mut members = vec![member(url, "\"https:\\/\\/h/mcp\"", &mut gap)];
            if !kind.is_empty() {
                members.push(member("type", &format!("\"{kind}\""), &mut gap));
            }
            if !headers.is_empty() {
                let values: Vec<String> =
                    headers.iter().map(|name| member(name, "\"a \\\"b\\\" 日本\"", &mut gap)).collect();
                members.push(member("headers", &format!("{{{}}}", values.join(",")), &mut gap));
            }
            members.push(member("more", "{\"n\": [1.50, null]}", &mut gap));
            let turn = dice.roll(members.len());
            members.rotate_left(turn);
            let key = if open_code { "mcp" } else { "mcpServers" };
            (Dialect::Json, format!("{{\"{key}\":{{\"a\":{{{}}}}}}}", members.join(",")))
        }
        1 => {
            let (gap, comment) = (dice.of(&[" = ", "="]), dice.of(&["", " # c"]));
            let mut members = vec![format!("url{gap}{}", dice.of(&["'https://h'", "\"https://h\""]))];
            members.push(format!("timeout{gap}3"));
            let values: Vec<String> = headers.iter().map(|name| format!("{name}{gap}'v'")).collect();
            let table = dice.coin();
            if !table && !values.is_empty() {
                members.push(format!("\"http_headers\"{gap}{{ {} }}", values.join(", ")));
            }
            let turn = dice.roll(members.len());
            members.rotate_left(turn);
            let mut text =
                format!("[mcp_servers.a]{comment}{eol}{}{comment}{eol}", members.join(&format!("{comment}{eol}")));
            if table && !values.is_empty() {
                text.push_str(&format!("{eol}[mcp_servers.a.http_headers]{eol}{}{eol}", values.join(eol)));
            }
            (Dialect::Toml, text)
        }
        _ => {
            let goose = dice.coin();
            let (url, comment) = (if goose { "uri" } else { "url" }, dice.of(&["", " # c"]));
            let mut members =
                vec![format!("{url}: {}{comment}", dice.of(&["https://h", "'https://h'", "\"https://h\""]))];
            members.push(if goose { "x: 1".to_owned() } else { "name: a".to_owned() });
            if !kind.is_empty() {
                members.push(format!("type: {}", dice.of(&["K", "'K'", "\"K\""]).replace('K', kind)));
            }
            if !headers.is_empty() {
                let deep = "      ";
                let values: Vec<String> =
                    headers.iter().map(|name| format!("{eol}{deep}{name}: 'v v'{comment}")).collect();
                members.push(format!("headers:{}", values.concat()));
            }
            let turn = dice.roll(members.len());
            members.rotate_left(turn);
            let between = format!("{eol}    ");
            let text = if goose {
                format!("extensions:{eol}  a:{eol}    {}{eol}", members.join(&between))
            } else {
                format!("mcpServers:{eol}  - {}{eol}", members.join(&between))
            };
            (Dialect::Yaml, text)
        }
    }
}

#[test]
fn generated_entries_by_url_come_back_byte_for_byte() {
    let seeds = std::env::var("ASSAY_SPLICES").ok().and_then(|n| n.parse::<u64>().ok()).unwrap_or(3000);
    let (mut done, mut refused) = (0_u64, 0_u64);
    for seed in 0..seeds {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            dice.roll(2);
        }
        let (dialect, text) = remote_file(&mut dice);
        match bridged(dialect, &text) {
            Ok((new, slot)) => {
                assert_eq!(unwrap(dialect, &new, &slot).unwrap(), text, "seed {seed}: {new}");
                done += 1;
            }
            // A comment beside the new list would be lost with it.
            Err(why) if why.to_string().contains("there is a comment beside") => refused += 1,
            Err(why) => panic!("seed {seed}: {why}\n{text}"),
        }
    }
    assert!(refused * 20 < done + 20, "{refused} refused, {done} done");
}
