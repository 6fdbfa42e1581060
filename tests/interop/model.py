"""A model on loopback that answers every conversation with one call of a tool whose name ends in `echo`, then with a word.

Speaks what five clients speak: OpenAI's chat completions and responses, Anthropic's messages, Google's generateContent. Prints its
port. Exits with its parent's end of standard input.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ARGUMENTS = {"text": "called by a client"}


def names(value):
    """Every string under a `name`, wherever tools stand."""
    if isinstance(value, dict):
        if isinstance(value.get("name"), str):
            yield value["name"], value
        for inner in value.values():
            yield from names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from names(inner)


def tool(body):
    for owner in body.get("tools") or []:
        for name, _ in names(owner):
            if name.endswith("echo"):
                return name, owner.get("name") if owner.get("type") == "namespace" else None
    return None, None


def chat(body):
    name, _ = tool(body)
    done = any(message.get("role") == "tool" for message in body["messages"])
    if name and not done:
        call = {"index": 0, "id": "call_1", "type": "function",
                "function": {"name": name, "arguments": json.dumps(ARGUMENTS)}}
        delta, end = {"role": "assistant", "tool_calls": [call]}, "tool_calls"
    else:
        delta, end = {"role": "assistant", "content": "done"}, "stop"
    base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": body.get("model", "m")}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    if not body.get("stream"):
        for call in delta.get("tool_calls", []):
            call.pop("index")
        yield None, {**base, "object": "chat.completion", "usage": usage,
                     "choices": [{"index": 0, "message": {"content": None, **delta}, "finish_reason": end}]}
        return
    yield None, {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield None, {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": end}], "usage": usage}
    yield None, "[DONE]"


def responses(body):
    name, namespace = tool(body)
    done = any(item.get("type") == "function_call_output" for item in body["input"])
    if name and not done:
        item = {"type": "function_call", "id": "f", "call_id": "call_1", "name": name, "arguments": json.dumps(ARGUMENTS)}
        if namespace:
            item["namespace"] = namespace
    else:
        item = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    yield "response.created", {"type": "response.created", "response": {"id": "r"}}
    yield "response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield "response.completed", {"type": "response.completed", "response": {"id": "r", "output": [item], "usage": usage}}


def messages(body):
    name, _ = tool(body)
    done = "tool_result" in json.dumps(body["messages"])
    if name and not done:
        block, end = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}, "tool_use"
        delta = {"type": "input_json_delta", "partial_json": json.dumps(ARGUMENTS)}
    else:
        block, end = {"type": "text", "text": ""}, "end_turn"
        delta = {"type": "text_delta", "text": "done"}
    usage = {"input_tokens": 1, "output_tokens": 1}
    start = {"id": "m", "type": "message", "role": "assistant", "model": body.get("model"), "content": [],
             "stop_reason": None, "stop_sequence": None, "usage": usage}
    if not body.get("stream"):
        content = {**block, "input": ARGUMENTS} if end == "tool_use" else {"type": "text", "text": "done"}
        yield None, {**start, "content": [content], "stop_reason": end}
        return
    for event in (
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": end, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ):
        yield event["type"], event


def generate(body):
    name, _ = tool(body)
    done = "functionResponse" in json.dumps(body["contents"])
    part = {"functionCall": {"name": name, "args": ARGUMENTS}} if name and not done else {"text": "done"}
    yield None, {"candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
                 "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}}


WAYS = {"chat/completions": chat, "responses": responses, "messages": messages, "GenerateContent": generate,
        "generateContent": generate}


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, kind, text, status=200):
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.answer("application/json", json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}], "models": []}))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        path = self.path.split("?")[0]
        way = next((way for end, way in WAYS.items() if path.endswith(end)), None)
        print(f"{self.path} {[name for name, _ in names(body.get('tools') or [])][:60]}", file=sys.stderr, flush=True)
        if way is None:
            self.answer("application/json", json.dumps({"totalTokens": 1, "input_tokens": 1}))
            return
        events = list(way(body))
        if not (body.get("stream") or "streamGenerate" in path):
            self.answer("application/json", json.dumps(events[0][1]))
            return
        lines = []
        for event, data in events:
            text = data if isinstance(data, str) else json.dumps(data)
            lines.append((f"event: {event}\n" if event else "") + f"data: {text}\n\n")
        self.answer("text/event-stream", "".join(lines))

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
print(server.server_address[1], flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
