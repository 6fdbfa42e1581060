//! Every way past a guard that was seen in the wild, and some that were not.

/// What the client is told.
pub enum Told {
    /// An error with this rule.
    Rule(&'static str),
    /// An error with the id `null`, this code and this rule.
    Null(i64, &'static str),
    /// Nothing: it wants no answer.
    Nothing,
}
use Told::{Nothing, Null, Rule};

/// A message (`ID` stands for its id), and what becomes of it.
pub fn cases() -> Vec<(&'static str, Vec<u8>, Told)> {
    let t = |name, text: &str, told| (name, text.as_bytes().to_vec(), told);
    let b = |name, bytes: &[u8], told| (name, bytes.to_vec(), told);
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{{"name":"echo","arguments":{{"a":{}{}}}}}}}"#,
        "[".repeat(140),
        "]".repeat(140)
    );
    vec![
        t("a denied tool", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"rm"}}"#, Rule("denylist[0] (rm)")),
        t("a tool that nothing names", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"other"}}"#, Rule("default")),
        t("a string id", r#"{"jsonrpc":"2.0","id":"sID","method":"tools/call","params":{"name":"rm"}}"#, Rule("denylist[0] (rm)")),
        t("a batch of one", r#"[{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"rm"}}]"#, Rule("denylist[0] (rm)")),
        t("a batch with an innocent element", r#"[{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"echo"}},{"jsonrpc":"2.0","method":"tools/call","params":{"name":"rm"}}]"#, Rule("guard.batch")),
        t("a batch behind blanks", "  \t[{\"jsonrpc\":\"2.0\",\"id\":ID,\"method\":\"tools/call\",\"params\":{\"name\":\"rm\"}}]", Rule("denylist[0] (rm)")),
        b("a batch behind a byte order mark", b"\xef\xbb\xbf[{\"jsonrpc\":\"2.0\",\"id\":ID,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\"}}]", Null(-32700, "guard.byte_order_mark")),
        b("a byte order mark", b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":ID,\"method\":\"tools/call\",\"params\":{\"name\":\"rm\"}}", Null(-32700, "guard.byte_order_mark")),
        t("a batch in a batch", r#"[[{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"rm"}}]]"#, Null(-32600, "guard.shape")),
        t("an empty batch", "[]", Null(-32600, "guard.bad_batch")),
        t("a notification", r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"rm"}}"#, Nothing),
        t("no params", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call"}"#, Rule("guard.bad_params")),
        t("params null", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":null}"#, Rule("guard.bad_params")),
        t("params an array", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":["rm",{}]}"#, Rule("guard.bad_params")),
        t("no name", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"arguments":{}}}"#, Rule("guard.bad_tool_name")),
        t("a name that is none", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":["rm"]}}"#, Rule("guard.bad_tool_name")),
        t("arguments an array", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"echo","arguments":[]}}"#, Rule("guard.bad_arguments")),
        t("two names", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"echo","name":"rm"}}"#, Rule("guard.duplicate_key")),
        t("two names, one escaped", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"echo","n\u0061me":"rm"}}"#, Rule("guard.duplicate_key")),
        t("two methods", r#"{"jsonrpc":"2.0","id":ID,"method":"ping","method":"tools/call","params":{"name":"rm"}}"#, Rule("guard.duplicate_key")),
        t("two params", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"echo"},"params":{"name":"rm"}}"#, Rule("guard.duplicate_key")),
        t("two arguments inside", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"echo","arguments":{"x":[{"p":1,"p":2}]}}}"#, Rule("guard.duplicate_key")),
        t("Method", r#"{"jsonrpc":"2.0","id":ID,"Method":"tools/call","params":{"name":"rm"}}"#, Rule("guard.folded_name")),
        t("method and Method", r#"{"jsonrpc":"2.0","id":ID,"method":"ping","METHOD":"tools/call","params":{"name":"rm"}}"#, Rule("guard.folded_name")),
        t("param\u{17f}", "{\"jsonrpc\":\"2.0\",\"id\":ID,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\"},\"param\u{17f}\":{\"name\":\"rm\"}}", Rule("guard.folded_name")),
        t("Name", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"echo","Name":"rm"}}"#, Rule("guard.folded_name")),
        t("Kelvin", "{\"jsonrpc\":\"2.0\",\"id\":ID,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":{\"key\":1,\"\u{212a}ey\":2}}}", Rule("guard.folded_name")),
        t("arguments twins", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"echo","arguments":{"path":"/ok","Path":"/etc"}}}"#, Rule("guard.folded_name")),
        t("an escaped member", r#"{"jsonrpc":"2.0","id":ID,"m\u0065thod":"tools/call","params":{"name":"rm"}}"#, Rule("guard.escaped_name")),
        t("an escaped name member", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"n\u0061me":"echo"}}"#, Rule("guard.escaped_name")),
        t("a method in other case", r#"{"jsonrpc":"2.0","id":ID,"method":"Tools/Call","params":{"name":"rm"}}"#, Rule("guard.bad_method")),
        t("a method with a blank", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call ","params":{"name":"rm"}}"#, Rule("guard.bad_method")),
        t("a method that is none", r#"{"jsonrpc":"2.0","id":ID,"method":["tools/call"],"params":{"name":"rm"}}"#, Rule("guard.bad_method")),
        t("a tool in other case", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"RM"}}"#, Rule("denylist[0] (rm)")),
        t("a tool with a blank", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"rm "}}"#, Rule("guard.bad_tool_name")),
        t("a tool with an invisible character", "{\"jsonrpc\":\"2.0\",\"id\":ID,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\u{200b}\"}}", Rule("guard.bad_tool_name")),
        t("a tool behind NUL", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"rm\u0000echo"}}"#, Rule("guard.nul")),
        b("a raw NUL", b"{\"jsonrpc\":\"2.0\",\"id\":ID,\"method\":\"tools/call\",\"params\":{\"name\":\"rm\"}}\0", Null(-32700, "guard.nul")),
        t("a response that answers nothing", r#"{"jsonrpc":"2.0","id":ID,"result":{}}"#, Nothing),
        t("a response that carries a method", r#"{"jsonrpc":"2.0","id":ID,"result":{},"method":"tools/call","params":{"name":"rm"}}"#, Rule("guard.shape")),
        t("an id that is none", r#"{"jsonrpc":"2.0","id":{"a":ID},"method":"tools/call","params":{"name":"rm"}}"#, Null(-32600, "guard.bad_id")),
        t("two values on a line", r#"{"jsonrpc":"2.0","method":"notifications/x"}{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"rm"}}"#, Null(-32700, "guard.malformed")),
        t("garbage behind", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"rm"}} trailing"#, Null(-32700, "guard.malformed")),
        t("garbage before", r#"x{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"rm"}}"#, Nothing),
        t("JSON5", r#"{"jsonrpc":"2.0","id":ID,/* */"method":'tools/call',params:{"name":"rm"},}"#, Null(-32700, "guard.malformed")),
        b("a line inside of a line", b"{\"jsonrpc\":\"2.0\",\"x\":\r{\"jsonrpc\":\"2.0\",\"id\":ID,\"method\":\"tools/call\",\"params\":{\"name\":\"rm\"}}\r}", Null(-32600, "guard.line_break")),
        b("a carriage return inside", b"{\"jsonrpc\":\"2.0\",\"id\":ID,\r\"method\":\"tools/list\"}", Rule("guard.line_break")),
        t("U+2028 before a message", "{\"jsonrpc\":\"2.0\",\"id\":ID,\"method\":\"x\",\"params\":{\"a\":\"\u{2028}{'method':'tools/call','params':{'name':'rm'}}\"}}", Rule("guard.line_break")),
        t("U+2028 with a call behind other text", "{\"jsonrpc\":\"2.0\",\"id\":ID,\"method\":\"x\",\"params\":{\"a\":\"\u{2028}x {'method':'tools/call','params':{'name':'rm'}}\"}}", Rule("guard.line_break")),
        t("U+0085 with a call spelt otherwise", "{\"jsonrpc\":\"2.0\",\"id\":ID,\"method\":\"x\",\"params\":{\"a\":\"\u{85}x\",\"method\":\"TO\\tols\\u002f_call\",\"params\":{\"name\":\"rm\"}}}", Rule("guard.line_break")),
        t("U+2029 with a careless reader's escape", "{\"jsonrpc\":\"2.0\",\"id\":ID,\"method\":\"x\",\"params\":{\"a\":\"\u{2029}x\",\"method\":\"\\tools/call\",\"params\":{\"name\":\"rm\"}}}", Rule("guard.line_break")),
        b("invalid UTF-8", b"{\"jsonrpc\":\"2.0\",\"id\":ID,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":{\"a\":\"\xff\"}}}", Rule("guard.invalid_utf8")),
        b("overlong UTF-8", b"{\"jsonrpc\":\"2.0\",\"id\":ID,\"method\":\"tools/call\",\"params\":{\"name\":\"\xc1\xb2m\"}}", Rule("guard.invalid_utf8")),
        b("a control byte", b"{\"jsonrpc\":\"2.0\",\"id\":ID,\"method\":\"tools/call\",\"params\":{\"name\":\"r\x01m\"}}", Null(-32700, "guard.malformed")),
        t("half a surrogate pair", r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"echo","arguments":{"a":"\ud800"}}}"#, Rule("guard.lone_surrogate")),
        t("too deep", &deep, Rule("guard.too_deep")),
        t("UTF-16", "{\0\"\0m\0e\0t\0h\0o\0d\0\"\0:\0", Null(-32700, "guard.nul")),
        t("resources/read", r#"{"jsonrpc":"2.0","id":ID,"method":"resources/read","params":{"uri":"file:///etc/passwd"}}"#, Rule("default")),
        t("a header and a call", "Content-Length: 9\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":ID,\"method\":\"tools/call\",\"params\":{\"name\":\"rm\"}}", Rule("denylist[0] (rm)")),
        t("no JSON", "call rm", Nothing),
        t("an object that says nothing", r#"{"jsonrpc":"2.0"}"#, Null(-32600, "guard.shape")),
        t("a value that is no message", "42", Null(-32600, "guard.shape")),
    ]
}

/// The line of a case, its id put in.
pub fn line(text: &[u8], id: usize) -> Vec<u8> {
    let id = id.to_string();
    let mut line = Vec::new();
    let mut rest = text;
    while let Some(n) = memchr::memmem::find(rest, b"ID") {
        line.extend_from_slice(&rest[..n]);
        line.extend_from_slice(id.as_bytes());
        rest = &rest[n + 2..];
    }
    line.extend_from_slice(rest);
    line.push(b'\n');
    line
}
