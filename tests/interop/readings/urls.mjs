// Where Node would connect for each URL: a JSON string a line in, a JSON list of [parser, host] a line out.
import { createInterface } from "node:readline";
import legacy from "node:url";

process.removeAllListeners("warning");
process.on("warning", () => {});
for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    const url = JSON.parse(line);
    const found = [];
    const read = (name, parse) => {
        try {
            const host = parse();
            if (host) found.push([name, host]);
        } catch {}
    };
    read("WHATWG", () => new URL(url).hostname);
    // As a link in a page.
    read("WHATWG, in a page", () => /^[^:]*\/\//.test(url) && new URL(url, "http://base.example/").hostname);
    read("url.parse", () => {
        const { protocol, hostname } = legacy.parse(url);
        return /^(https?|wss?|ftp):$/.test(protocol) && hostname;
    });
    process.stdout.write(JSON.stringify(found) + "\n");
}
