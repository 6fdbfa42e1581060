//! Real MCP servers, driven by real SDK clients, directly and through `assay mcp-proxy`.
//!
//! Every session runs twice: the results must be the same, and what the proxy recorded must be what the client saw on
//! its own pipe. `tests/run.sh` installs the servers, the SDKs and assay-ai into `target/interop`.
#![allow(clippy::pedantic, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod clients;
mod evidence;
mod guard;
mod http;
mod install;
mod readings;
mod receipted;
mod scenario;
mod second;
mod suites;
mod surface;
mod verdicts;
mod workflow;

/// One test per scenario file and family of clients, so that they run side by side and are named in the output.
macro_rules! scenarios {
    ($($name:ident: $file:literal, $clients:literal;)*) => {$(
        #[test]
        fn $name() {
            scenario::run($file, $clients);
        }
    )*};
}

scenarios! {
    everything_with_the_python_client: "everything", "py:";
    everything_with_the_typescript_1_client: "everything", "ts1:";
    everything_with_the_typescript_2_client: "everything", "ts2:";
    everything_with_tasks_and_a_server_that_has_to_be_signalled: "everything-tasks", "";
    filesystem: "filesystem", "";
    git: "git", "";
    memory: "memory", "";
    sequential_thinking: "sequential-thinking", "";
    time: "time", "";
    fastmcp_with_the_python_client: "own", "own.py py:";
    fastmcp_with_the_typescript_clients: "own", "own.py ts";
    typescript_2_with_the_python_client: "own", "own.mjs py:";
    typescript_2_with_the_typescript_clients: "own", "own.mjs ts";
}

#[test]
fn everything_is_replayed_to_the_python_client() {
    scenario::replay("everything py:");
}

#[test]
fn everything_is_replayed_to_the_typescript_clients() {
    scenario::replay("everything ts");
}

#[test]
fn a_server_of_both_eras_is_replayed_to_all_clients() {
    scenario::replay("own.py");
}

#[test]
fn exports_are_read_by_parsers_of_others() {
    scenario::export();
}

#[test]
fn an_http_archive_has_the_exchanges_of_a_session() {
    scenario::archive();
}

#[test]
fn the_python_sdks_own_stdio_tests_pass_through_the_proxy() {
    suites::python_sdk_stdio_tests();
}

#[test]
fn the_python_sdks_stories_pass_through_the_proxy() {
    suites::python_sdk_stories();
}

#[test]
fn a_pack_that_assay_ai_built_verifies_and_one_changed_byte_is_found() {
    suites::packs_of_assay_ai();
}

#[test]
fn the_inspector_calls_a_tool_through_the_proxy() {
    suites::inspector();
}
