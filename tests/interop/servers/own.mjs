// The tools of `own.py`, on the TypeScript v2 server.
import { createRequire } from "node:module";
const require = createRequire(process.argv[2] + "/");
const { McpServer, inputRequired, inputResponse } = require("@modelcontextprotocol/server");
const { serveStdio } = require("@modelcontextprotocol/server/stdio");
const z = require("zod");

const text = (value) => ({ content: [{ type: "text", text: value }] });
const schema = { type: "object", properties: { value: { type: "boolean" } }, required: ["value"] };

serveStdio(() => {
  const server = new McpServer({ name: "own-typescript", version: "1.0" });
  const tool = (name, inputSchema, run) => server.registerTool(name, { inputSchema: z.object(inputSchema) }, run);
  const progress = async (ctx, params) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    if (progressToken !== undefined) {
      await ctx.mcpReq.notify({ method: "notifications/progress", params: { progressToken, ...params } });
    }
  };

  tool("echo", { text: z.string() }, async ({ text: said }) => text(`écho: ${said}`));
  tool("big", { count: z.number() }, async ({ count }) => text('ß☃𝄞\n"\\'.repeat(count)));
  tool("fail", { why: z.string() }, async ({ why }) => {
    throw new Error(`refusé: ${why}`);
  });
  tool("image", {}, async () => {
    const data = Buffer.alloc(64 * 256, Buffer.from(Array.from({ length: 256 }, (_, i) => i))).toString("base64");
    return { content: [{ type: "image", data, mimeType: "image/png" }] };
  });
  tool("noise", { lines: z.number() }, async ({ lines }) => {
    for (let i = 0; i < lines; i++) console.error(`interop: ${i} ${"x".repeat(200)}`);
    return text("said");
  });
  tool("steps", { count: z.number() }, async ({ count }, ctx) => {
    for (let i = 0; i < count; i++) await progress(ctx, { progress: i + 0.5, total: count, message: `étape ${i}` });
    return text(String(count));
  });
  tool("slow", {}, async (_, ctx) => {
    await progress(ctx, { progress: 0, total: 1 });
    await new Promise((done) => setTimeout(done, 500));
    return text("late");
  });
  tool("ask", {}, async (_, ctx) => {
    const params = { message: "Vraiment ?", requestedSchema: schema };
    let answer;
    if (ctx.mcpReq.envelope?.["io.modelcontextprotocol/protocolVersion"] === undefined) {
      answer = await ctx.mcpReq.elicitInput({ mode: "form", ...params });
    } else {
      answer = inputResponse(ctx.mcpReq.inputResponses, "sure");
      if (answer.kind === "missing") {
        return inputRequired({ inputRequests: { sure: inputRequired.elicit(params) }, requestState: "asked" });
      }
    }
    return text(`${answer.action} ${JSON.stringify(answer.content)}`);
  });
  tool("grow", {}, async () => {
    tool("grown", {}, async () => text("neu"));
    return text("grew");
  });
  return server;
});
