//! `assay gateway`, as far as it needs no server.

use assay_support::rig::{rig, stderr, stdout};
use serde_json::Value;
use std::{fs, os::unix::fs::PermissionsExt};

#[test]
fn a_configuration_is_read_and_said() {
    let rig = rig!();
    let file = rig.at("gw.yaml");
    fs::write(rig.at("token"), "c4n4ry").unwrap();
    fs::write(rig.at("all.yaml"), "version: \"1\"\ndefault: allow\n").unwrap();
    fs::write(
        &file,
        "version: \"1\"\nlisten: localhost:0\nservices:\n  search:\n    url: https://mcp.example.com/mcp?key=c4n4ry\n    \
         headers: { Authorization: { file: token, prefix: \"Bearer \" }, X-Key: { env: ASSAY_NO_SUCH_VARIABLE } }\n  \
         files: { url: \"http://127.0.0.1:3000/mcp\", profile: guard, policy: all.yaml, enabled: false }\n",
    )
    .unwrap();
    let file = file.to_str().unwrap();
    let out = rig.run(&["gateway", "check-config", "--config", file]);
    assert!(out.status.success(), "{}", stderr(&out));
    let text = stdout(&out);
    for said in [
        "listens on localhost:0, 2 services",
        "/files/mcp   http://127.0.0.1:3000/mcp  guard  disabled",
        "/search/mcp  https://mcp.example.com/mcp  audit\n",
        "warning: the environment variable ASSAY_NO_SUCH_VARIABLE is not set",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let json = rig.run(&["gateway", "check-config", "--json", "--config", file]);
    let value: Value = serde_json::from_slice(&json.stdout).unwrap();
    let [files, search] = &value["services"].as_array().unwrap()[..] else { panic!("{value}") };
    assert!(files["enabled"] == false && files["profile"] == "guard" && files["path"] == "/files/mcp", "{value}");
    assert_eq!(search["headers"][0]["name"], "authorization");
    assert!(search["headers"][0]["from"].as_str().unwrap().starts_with("file:"), "{value}");
    assert!(!text.contains("c4n4ry") && !stdout(&json).contains("c4n4ry"));
}

#[test]
fn a_configuration_that_cannot_be_used_is_refused_with_its_place_and_without_what_it_holds() {
    let rig = rig!();
    let file = rig.at("gw.yaml");
    let ask = |text: &str, json: bool| {
        fs::write(&file, text).unwrap();
        let mut args = vec!["gateway", "check-config", "--config", file.to_str().unwrap()];
        args.extend(json.then_some("--json"));
        let out = rig.run(&args);
        assert_eq!(out.status.code(), Some(3), "{text}");
        assert!(!stderr(&out).contains("c4n4ry") && !stdout(&out).contains("c4n4ry"), "{}", stderr(&out));
        if json { stdout(&out) } else { stderr(&out) }
    };
    let literal = "version: \"1\"\nservices:\n  a: { url: http://x/, headers: { Authorization: c4n4ry } }\n";
    for json in [false, true] {
        let said = ask(literal, json);
        assert!(said.contains("gw.yaml:3:50") && said.contains("a credential in the file itself"), "{said}");
    }
    assert!(
        ask("version: \"1\"\nservices: { a: { url: http://x/, polcy: p } }\n", false).contains("did you mean `policy`")
    );
    let policy = ask("version: \"1\"\nservices: { a: { url: http://x/, policy: none.yaml } }\n", false);
    assert!(policy.contains("the policy of a") && policy.contains("none.yaml"), "{policy}");
    fs::remove_file(&file).unwrap();
    let out = rig.run(&["gateway", "check-config", "--config", file.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(3));
    assert!(stderr(&out).contains("name the file with --config"), "{}", stderr(&out));
}

#[test]
fn a_registry_that_cannot_be_used_is_left_alone_and_says_what_to_do() {
    let rig = rig!();
    fs::write(rig.at("gw.yaml"), "version: \"1\"\n").unwrap();
    let run = |command: &str| {
        let config = if command == "run" { &["--config", "gw.yaml"][..] } else { &[] };
        rig.run(&[&["gateway", command, "--data", "data"][..], config].concat())
    };
    let none = run("services");
    assert!(none.status.code() == Some(3) && stderr(&none).contains("no gateway has run"), "{}", stderr(&none));
    assert_eq!(run("health").status.code(), Some(2));
    fs::create_dir(rig.at("data")).unwrap();
    fs::set_permissions(rig.at("data"), PermissionsExt::from_mode(0o700)).unwrap();
    let file = rig.at("data/gateway.sqlite3");
    fs::write(&file, vec![0xa5; 8192]).unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    for command in ["run", "services"] {
        let out = run(command);
        let said = stderr(&out);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(
            said.contains("is damaged") && said.contains("gateway restore") && said.contains("gateway rebuild"),
            "{said}"
        );
    }
    assert_eq!(fs::read(&file).unwrap(), vec![0xa5; 8192]);
}
