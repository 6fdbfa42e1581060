// Runs one scripted session with a TypeScript SDK client and writes down what it saw.
//
// usage: node drive.mjs JOB.json OUT.json
//
// JOB and OUT are those of `drive.py`; besides, JOB has `modules` (the directory with node_modules), `client` ("ts1" for
// @modelcontextprotocol/sdk, "ts2" for @modelcontextprotocol/client) and `stubborn` (the server outlives its stdin).
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

const ANSWER_WITHIN = 30_000;
const job = JSON.parse(readFileSync(process.argv[2], "utf8"));
const out = process.argv[3];
const require = createRequire(job.modules + "/");

const answers = {
  "sampling/createMessage": ({ params }) => ({
    role: "assistant",
    model: "scripted",
    content: { type: "text", text: `sampled ${params.messages.length} message, at most ${params.maxTokens} tokens: grüße` },
  }),
  "elicitation/create": ({ params }) => {
    const { properties = {}, required = [] } = params.requestedSchema ?? {};
    const value = (type) => ({ boolean: true, integer: 7, number: 7.5 })[type] ?? "naïve ☃";
    const names = Object.keys(properties).filter((name) => required.includes(name));
    return { action: "accept", content: Object.fromEntries(names.map((name) => [name, value(properties[name].type)])) };
  },
  "roots/list": () => ({ roots: [{ uri: "file:///tmp/%C3%BCber", name: "über" }] }),
};

function connect() {
  const info = { name: `interop-${job.client}`, version: "1" };
  const capabilities = { sampling: {}, elicitation: { form: {} }, roots: { listChanged: true } };
  if (job.client === "ts1") {
    const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
    const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
    const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const types = require("@modelcontextprotocol/sdk/types.js");
    const client = new Client(info, { capabilities });
    client.setRequestHandler(types.CreateMessageRequestSchema, answers["sampling/createMessage"]);
    client.setRequestHandler(types.ElicitRequestSchema, answers["elicitation/create"]);
    client.setRequestHandler(types.ListRootsRequestSchema, answers["roots/list"]);
    const call = (params, options) => client.callTool(params, undefined, options);
    return { client, call, Stdio: StdioClientTransport, Http: StreamableHTTPClientTransport };
  }
  const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
  const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");
  const mode = ["legacy", "auto"].includes(job.mode) ? job.mode : { pin: job.mode };
  const client = new Client(info, { capabilities, versionNegotiation: { mode } });
  for (const [method, answer] of Object.entries(answers)) client.setRequestHandler(method, answer);
  const call = (params, options) => client.callTool(params, options);
  return { client, call, Stdio: StdioClientTransport, Http: StreamableHTTPClientTransport };
}

/** Spawns the command, and keeps a copy of every line of its stdin and stdout. */
function stdio(Transport) {
  const [command, ...args] = job.command;
  const transport = new Transport({ command, args, env: job.env, cwd: job.cwd, stderr: "pipe" });
  const [input, output, errors] = [[], [], []];
  const wire = {
    sent: () => lines(input),
    received: () => lines(output),
    stderr: () => Buffer.concat(errors).toString("utf8"),
    exit: null,
  };
  transport.stderr.on("data", (chunk) => errors.push(chunk));
  const start = transport.start.bind(transport);
  transport.start = async () => {
    await start();
    const child = transport._process;
    const write = child.stdin.write.bind(child.stdin);
    child.stdin.write = (data, ...rest) => {
      input.push(Buffer.from(data));
      return write(data, ...rest);
    };
    child.stdout.on("data", (chunk) => output.push(chunk));
    wire.end = () => child.stdin.end();
    wire.exited = new Promise((done) => child.once("close", (code) => done((wire.exit = code))));
  };
  return { transport, wire };
}

/** Keeps a copy of the bodies of requests and answers; of event streams, the data of each event. */
function http(Transport) {
  const [sent, bodies] = [[], []];
  const tapped = async (url, init) => {
    if (init?.body) sent.push(String(init.body));
    const response = await fetch(url, init);
    if (!response.body) return response;
    const body = { stream: response.headers.get("content-type")?.startsWith("text/event-stream"), chunks: [] };
    bodies.push(body);
    const tap = new TransformStream({
      transform(chunk, controller) {
        body.chunks.push(chunk);
        controller.enqueue(chunk);
      },
    });
    const { status, statusText, headers } = response;
    return new Response(response.body.pipeThrough(tap), { status, statusText, headers });
  };
  const received = () => bodies.flatMap(({ stream, chunks }) => messages(stream, Buffer.concat(chunks).toString("utf8")));
  const wire = { sent: () => sent, received, stderr: () => "", exit: null };
  return { transport: new Transport(new URL(job.url), { fetch: tapped }), wire };
}

function messages(stream, text) {
  if (!stream) return text.startsWith("{") ? [text] : [];
  const events = text.replaceAll("\r\n", "\n").split("\n\n").slice(0, -1);
  const data = (event) => {
    const lines = event.split("\n").filter((line) => line.startsWith("data:"));
    return lines.map((line) => line.replace(/^data: ?/, "")).join("\n");
  };
  return events.map(data).filter((text) => text);
}

const lines = (chunks) => Buffer.concat(chunks).toString("utf8").split("\n").slice(0, -1);

const { client, call, Stdio, Http } = connect();
const { transport, wire } = job.url ? http(Http) : stdio(Stdio);

const steps = {
  server: async () => ({
    version: client.getNegotiatedProtocolVersion?.() ?? null,
    info: client.getServerVersion(),
    capabilities: client.getServerCapabilities(),
    instructions: client.getInstructions() ?? null,
  }),
  tools: async () => (await client.listTools()).tools,
  resources: async () => (await client.listResources()).resources,
  prompts: async () => (await client.listPrompts()).prompts,
  read: async ({ uri }) => client.readResource({ uri }),
  prompt: async ({ name, args }) => client.getPrompt({ name, arguments: args }),
  call: async ({ name, args, meta, progress }) => {
    const options = progress ? { onprogress: () => {} } : {};
    return call({ name, arguments: args, ...(meta && { _meta: meta }) }, options);
  },
  parallel: async ({ calls }) => Promise.all(calls.map((step) => run({ op: "call", ...step }))),
  cancel: async ({ name, args }) => {
    const controller = new AbortController();
    const options = { signal: controller.signal, onprogress: () => controller.abort("enough") };
    const ended = await call({ name, arguments: args }, options).then(
      () => "answered",
      () => "gave up",
    );
    return { cancelled: ended === "gave up" };
  },
  task: async ({ name, args }) => {
    const task = client.experimental.tasks.callToolStream({ name, arguments: args }, undefined, { task: {} });
    let created = false;
    for await (const message of task) {
      created ||= message.type === "taskCreated";
      if (message.type === "result") return { created, content: message.result.content };
      if (message.type === "error") return { created, error: { message: String(message.error) } };
    }
  },
  notified: async ({ method, count = 1 }) => {
    const seen = () => wire.received().filter((line) => JSON.parse(line).method === method).length;
    while (seen() < count) await sleep(10);
    return method;
  },
};

function within(promise, what) {
  const late = sleep(ANSWER_WITHIN, null, { ref: false }).then(() => {
    throw new Error(`not done within ${ANSWER_WITHIN} ms: ${what}`);
  });
  return Promise.race([promise, late]);
}

async function run(step) {
  const done = steps[step.op](step).catch((error) => {
    if (error.code === undefined) throw error;
    return { error: { code: error.code, message: error.message } };
  });
  return within(done, JSON.stringify(step).slice(0, 200));
}

await client.connect(transport);
const results = [];
for (const step of job.steps) results.push((await run(step)) ?? null);
if (job.url) {
  // Modern servers have no sessions to end.
  if (transport.sessionId !== undefined) await within(transport.terminateSession(), "end of the session");
  await client.close();
} else {
  // Ending stdin is how the client closes, too; but it kills what is not gone after two seconds, which a busy machine needs.
  if (!job.stubborn) {
    wire.end();
    await within(wire.exited, "end of stdin");
  }
  await client.close();
  await within(wire.exited, "close");
}
const report = { results, sent: wire.sent(), received: wire.received(), exit: wire.exit, stderr: wire.stderr() };
writeFileSync(out, JSON.stringify(report));
process.exit(0);
