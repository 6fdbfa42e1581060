// A second verifier of proof packs, written from docs/formats.md and sharing no code with `assay`. The page `verify.html` and `node
// verify.mjs` are this one file. It needs no dependencies, no network, and writes nothing.

export const NAME = "assay-second-verifier";
const READS = {
  receipt: ["3.0", "3.1", "3.2", "3.3", "3.4"],
  event: [1, 5],
  session: [1, 4],
  surface: [1, 2],
  approval: [1, 1],
  approved: [1, 1],
  checkpoint: [1, 1],
  proof: [1, 2],
  ledger: [1, 5],
};
const MANIFEST = "pack_manifest.json", SIGNATURE = "pack_signature.sig", RECEIPTS = "receipt_pack.jsonl", EVENTS = "audit_log.jsonl";
const CHECKPOINTS = "checkpoints.jsonl", SESSION = "session.json", REPORT = "verify_report.json", TRANSCRIPT = "verify_transcript.md";
const SURFACE = "surface.json", DECISIONS = "surface_approvals.jsonl", APPROVED = "surface_approved.json";
const BY_LINE = [RECEIPTS, EVENTS, CHECKPOINTS, DECISIONS];
export const STAGES = ["validate_schema", "validate_paths", "validate_file_hashes", "validate_receipts", "validate_attestation",
  "verify_signature", "check_d12_invariant", "verify_chain", "match_receipts_to_chain", "verify_surface", "verify_checkpoints",
  "session_completeness", "signer_trust"];
const MIB = 1 << 20;
const LIMIT = { manifest: 4 * MIB, files: 10_000, line: 64 * MIB, document: 256 * MIB, session: 16 * MIB, byLine: 2 ** 40, excess: MIB,
  depth: 128, note: 256 << 10, signatures: 100, keys: 1000, proof: 4 * MIB, ledger: 64 << 10, path: 63, unsigned: 256 * MIB, findings: 200 };

// ---- Bytes ----

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();
const bytesOf = (text) => encoder.encode(text);
const hexOf = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
const unhex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const equal = (a, b) => a.length === b.length && a.every((byte, i) => byte === b[i]);

function joined(parts) {
  const all = new Uint8Array(parts.reduce((n, part) => n + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Base64 with padding and in its one form, or null. */
function unbase64(text) {
  if (!/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(text)) return null;
  const raw = atob(text);
  return btoa(raw) === text ? Uint8Array.from(raw, (c) => c.charCodeAt(0)) : null;
}

function base64(bytes) {
  let raw = "";
  for (const byte of bytes) raw += String.fromCharCode(byte);
  return btoa(raw);
}

// ---- SHA-256 (FIPS 180-4) ----

const K = (() => {
  const primes = [];
  for (let n = 2; primes.length < 64; n++) if (primes.every((p) => n % p)) primes.push(n);
  const fraction = (root) => Math.floor((root - Math.floor(root)) * 2 ** 32) | 0;
  return { round: Int32Array.from(primes, (p) => fraction(Math.cbrt(p))), start: primes.slice(0, 8).map((p) => fraction(Math.sqrt(p))) };
})();

class Sha256 {
  h = Int32Array.from(K.start);
  w = new Int32Array(64);
  block = new Uint8Array(64);
  held = 0;
  length = 0;

  update(bytes) {
    this.length += bytes.length;
    let at = 0;
    if (this.held) {
      at = Math.min(64 - this.held, bytes.length);
      this.block.set(bytes.subarray(0, at), this.held);
      this.held += at;
      if (this.held < 64) return this;
      this.compress(this.block, 0);
      this.held = 0;
    }
    for (; at + 64 <= bytes.length; at += 64) this.compress(bytes, at);
    this.block.set(bytes.subarray(at));
    this.held = bytes.length - at;
    return this;
  }

  compress(bytes, at) {
    const w = this.w, k = K.round;
    for (let i = 0; i < 16; i++, at += 4) w[i] = (bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3];
    for (let i = 16; i < 64; i++) {
      const x = w[i - 15], y = w[i - 2];
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[i] = (w[i - 16] + s0 + w[i - 7] + s1) | 0;
    }
    let [a, b, c, d, e, f, g, h] = this.h;
    for (let i = 0; i < 64; i++) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + k[i] + w[i]) | 0;
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g; g = f; f = e; e = (d + t1) | 0; d = c; c = b; b = a; a = (t1 + t2) | 0;
    }
    const out = this.h;
    out[0] += a; out[1] += b; out[2] += c; out[3] += d; out[4] += e; out[5] += f; out[6] += g; out[7] += h;
  }

  digest() {
    const bits = this.length * 8, pad = new Uint8Array(((this.held < 56 ? 64 : 128) - this.held));
    pad[0] = 0x80;
    const view = new DataView(pad.buffer);
    view.setUint32(pad.length - 8, Math.floor(bits / 2 ** 32));
    view.setUint32(pad.length - 4, bits >>> 0);
    this.update(pad);
    const out = new Uint8Array(32);
    this.h.forEach((word, i) => new DataView(out.buffer).setInt32(i * 4, word));
    return out;
  }
}

/** A hash that takes bytes piece by piece; node's own is faster. */
let hasher = () => new Sha256();
const sha256 = (...parts) => {
  const hash = hasher();
  for (const part of parts) hash.update(part);
  return hash.digest();
};
const sha256hex = (data) => hexOf(sha256(typeof data === "string" ? bytesOf(data) : data));

// ---- JSON, and its RFC 8785 form ----

/** Something that is not what its format says. */
class Bad extends Error {}

const WELL_FORMED = /^(?:[^\ud800-\udfff]|[\ud800-\udbff][\udc00-\udfff])*$/;

/** The RFC 8785 form: JavaScript's own form of numbers and strings, members sorted by UTF-16 code units. */
function canonical(value, depth = 0) {
  if (depth > LIMIT.depth) throw new Bad("nested more than 128 deep");
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new Bad("a number out of range");
    return JSON.stringify(value);
  }
  if (value === null || typeof value === "boolean") return String(value);
  if (Array.isArray(value)) return `[${value.map((v) => canonical(v, depth + 1)).join(",")}]`;
  const names = Object.keys(value).sort();
  return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(value[name], depth + 1)}`).join(",")}}`;
}

/** Reads JSON strictly: no member twice, no lone surrogate, no number that a double does not hold, nothing behind it. */
function parse(text) {
  let at = 0;
  const fail = (what) => { throw new Bad(`${what} at character ${at + 1}`); };
  const blank = () => { while (at < text.length && " \t\n\r".includes(text[at])) at++; };
  const string = () => {
    const from = at++;
    while (text[at] !== '"') {
      if (at >= text.length || text.charCodeAt(at) < 0x20) fail("a broken string");
      at += text[at] === "\\" ? 2 : 1;
    }
    at++;
    let value;
    try { value = JSON.parse(text.slice(from, at)); } catch { fail("a broken string"); }
    if (!WELL_FORMED.test(value)) fail("a lone surrogate");
    return value;
  };
  const value = (depth) => {
    if (depth > LIMIT.depth) fail("nested more than 128 deep,");
    blank();
    const c = text[at];
    if (c === '"') return string();
    if (c === "{" || c === "[") {
      const close = c === "{" ? "}" : "]", out = c === "{" ? Object.create(null) : [];
      at++;
      blank();
      if (text[at] === close) { at++; return out; }
      for (;;) {
        blank();
        if (c === "[") out.push(value(depth + 1));
        else {
          if (text[at] !== '"') fail("no name of a member");
          const name = string();
          if (name in out) fail(`the member ${JSON.stringify(name)} twice`);
          blank();
          if (text[at++] !== ":") fail("no colon");
          out[name] = value(depth + 1);
        }
        blank();
        const next = text[at++];
        if (next === close) return out;
        if (next !== ",") fail("no comma");
      }
    }
    const word = /^(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)/.exec(text.slice(at, at + 400))?.[0];
    if (!word) fail("no JSON");
    at += word.length;
    const read = JSON.parse(word);
    if (typeof read === "number" && (!Number.isFinite(read) || (/^-?\d+$/.test(word) && !Number.isSafeInteger(read) && String(BigInt(read)) !== word))) {
      fail("a number that cannot be kept");
    }
    return read;
  };
  const read = value(0);
  blank();
  if (at < text.length) fail("something behind the end");
  return read;
}

/** A line that must be in RFC 8785 form. */
function line(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Bad("not JSON");
  }
  const same = canonical(value) === text;
  if (!same || (text.includes("\\ud") && !sound(value))) throw new Bad("not the RFC 8785 form of what it says");
  return value;
}

/** Whether no text in it has half of a surrogate pair. */
function sound(value) {
  if (typeof value === "string") return WELL_FORMED.test(value);
  if (value === null || typeof value !== "object") return true;
  return Object.entries(value).every(([name, v]) => WELL_FORMED.test(name) && sound(v));
}

function textOf(bytes) {
  try {
    return utf8.decode(bytes);
  } catch {
    throw new Bad("not UTF-8");
  }
}

// ---- Versions ----

/** Thrown for what a later version wrote. */
class Newer extends Error {
  constructor(found, reads) {
    super(`version ${found}; this verifier reads up to ${reads}`);
    Object.assign(this, { found, reads });
  }
}

const numbers = (text) => text.split(".").map(Number);
const compare = (a, b) => {
  for (let i = 0; i < 3; i++) if ((a[i] ?? 0) !== (b[i] ?? 0)) return (a[i] ?? 0) - (b[i] ?? 0);
  return 0;
};

/** A version that is written as an integer, and as a text from a later minor version on. */
function integerVersion(value, [oldest, newest]) {
  if (typeof value === "number") {
    if (!Number.isSafeInteger(value) || value < oldest) throw new Bad("a version that no version writes");
    if (value > newest) throw new Newer(String(value), `${newest}`);
    return value;
  }
  if (typeof value !== "string" || !/^(?:0|[1-9]\d{0,15})\.(?:0|[1-9]\d{0,15})$/.test(value)) throw new Bad("a version that no version writes");
  if (compare(numbers(value), [newest]) > 0) throw new Newer(value, `${newest}`);
  throw new Bad("a version that no version writes");
}

/** A version that is written as a text. */
function textVersion(value, known, parts, prefix = "") {
  if (known.includes(value)) return value;
  const newest = known.at(-1);
  const text = Number.isSafeInteger(value) && value >= 0 && !prefix ? String(value) : value;
  if (typeof text !== "string" || !text.startsWith(prefix)) throw new Bad("a version that no version writes");
  const number = text.slice(prefix.length);
  if (!new RegExp(`^(?:0|[1-9]\\d{0,15})(?:\\.(?:0|[1-9]\\d{0,15})){0,${parts - 1}}$`).test(number)) throw new Bad("a version that no version writes");
  if (compare(numbers(number), numbers(newest.slice(prefix.length))) > 0) throw new Newer(number, newest.slice(prefix.length));
  throw new Bad("a version that no version writes");
}

// ---- Ed25519 (RFC 8032), strict ----

const P = 2n ** 255n - 19n, L = 2n ** 252n + 27742317777372353535851937790883648493n;
const littleEndian = (bytes) => bytes.reduceRight((n, byte) => (n << 8n) | BigInt(byte), 0n);
/** The y of the points whose order divides 8: 1, −1, 0, and the two of order 8. */
const SMALL = new Set([1n, P - 1n, 0n, ...["26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
  "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"].map((hex) => littleEndian(unhex(hex)))]);

/** Whether 32 bytes are the one form of a point whose order is not small. That it is on the curve, the platform checks. */
function goodPoint(bytes) {
  const y = littleEndian(bytes) & (2n ** 255n - 1n);
  return y < P && !SMALL.has(y);
}

const verified = new Map();
/** Whether a signature holds. WebCrypto takes keys of small order and other forms of points: these are refused here. */
async function signatureHolds(key, signature, message) {
  if (key.length !== 32 || signature.length !== 64) return false;
  if (!goodPoint(key) || !goodPoint(signature.subarray(0, 32)) || littleEndian(signature.subarray(32)) >= L) return false;
  const { subtle } = globalThis.crypto;
  try {
    const of = hexOf(key);
    if (verified.size > 64) verified.clear();
    if (!verified.has(of)) verified.set(of, await subtle.importKey("raw", key, { name: "Ed25519" }, false, ["verify"]));
    return await subtle.verify({ name: "Ed25519" }, verified.get(of), signature, message);
  } catch (error) {
    if (error.name === "NotSupportedError") throw new Error("this browser cannot check Ed25519 signatures: use a later one, or node");
    return false;
  }
}

// ---- Notes (C2SP signed-note) ----

/** A verifier key: `name+<8 hex digits>+base64`. */
async function verifierKey(text) {
  const parts = /^([^+\s]+)\+([0-9a-f]{8})\+(.+)$/u.exec(text);
  const raw = parts && unbase64(parts[3]);
  if (!raw || raw.length !== 33 || raw[0] !== 1) throw new Bad("not a verifier key");
  const key = { name: parts[1], id: parts[2], key: raw.subarray(1), text };
  if (hexOf(sha256(bytesOf(`${key.name}\n`), raw)).slice(0, 8) !== key.id) throw new Bad("the id of a verifier key is not its own");
  return key;
}

/** A key under another name. */
const named = (name, key) => ({ name, key, id: hexOf(sha256(bytesOf(`${name}\n`), Uint8Array.of(1), key)).slice(0, 8) });

/** The text of a note, if this key signed it. */
async function openNote(note, by) {
  if (bytesOf(note).length > LIMIT.note) throw new Bad("a note of more than 256 KiB");
  if (/[\u0000-\u0009\u000b-\u001f]/.test(note) || !WELL_FORMED.test(note)) throw new Bad("a character that no note has");
  const split = note.lastIndexOf("\n\n");
  if (split < 0 || !note.endsWith("\n")) throw new Bad("a note without signatures");
  const text = note.slice(0, split + 1), below = note.slice(split + 2).split("\n").slice(0, -1);
  if (!below.length || below.length > LIMIT.signatures) throw new Bad("a note with no or more than 100 signatures");
  let holds = false;
  for (const one of below) {
    const parts = /^\u2014 ([^+\s]+) (\S+)$/u.exec(one), raw = parts && unbase64(parts[2]);
    if (!raw || raw.length < 5) throw new Bad("a line below a note that is no signature");
    if (parts[1] !== by.name || hexOf(raw.subarray(0, 4)) !== by.id) continue;
    if (holds) throw new Bad("a note that the key signed twice");
    if (!(await signatureHolds(by.key, raw.subarray(4), bytesOf(text)))) throw new Bad("a signature of a note that does not hold");
    holds = true;
  }
  if (!holds) throw new Bad("a note that the key did not sign");
  return text;
}

// ---- The tree (RFC 9162 §2.1) ----

const leafHash = (hash) => sha256(Uint8Array.of(0), hash);
const nodeHash = (left, right) => sha256(Uint8Array.of(1), left, right);

/** The roots of whole subtrees, largest first: all that is needed for the root of what was added. */
class Frontier {
  size = 0;
  peaks = [];

  add(leaf) {
    for (let n = this.size; n & 1; n = Math.floor(n / 2)) leaf = nodeHash(this.peaks.pop(), leaf);
    this.peaks.push(leaf);
    this.size++;
  }

  root() {
    return this.peaks.length ? this.peaks.reduceRight((right, left) => nodeHash(left, right)) : sha256();
  }
}

/** The root to which an inclusion proof leads (RFC 9162 §2.1.3.2), or null. */
function rootOfProof(index, size, leaf, path) {
  if (index >= size) return null;
  let fn = BigInt(index), sn = BigInt(size) - 1n, r = leaf;
  for (const p of path) {
    if (sn === 0n) return null;
    if (fn & 1n || fn === sn) {
      r = nodeHash(p, r);
      while (!(fn & 1n) && fn) { fn >>= 1n; sn >>= 1n; }
    } else r = nodeHash(r, p);
    fn >>= 1n;
    sn >>= 1n;
  }
  return sn === 0n ? r : null;
}
// ---- Where a pack is: a directory, an archive, files that a browser was given ----

const plainName = (name) => name !== "" && name !== "." && name !== ".." && !/[\\/\u0000-\u001f\u007f-\u009f]/.test(name);

/** Names of a pack below the one directory that has its manifest. */
function within(entries) {
  const roots = entries.filter((e) => e.name === MANIFEST || e.name.endsWith(`/${MANIFEST}`)).map((e) => e.name.slice(0, -MANIFEST.length));
  roots.sort((a, b) => a.length - b.length);
  if (!roots.length) throw new NotAPack(`no ${MANIFEST} in it`);
  if (roots.length > 1 && roots[1].length === roots[0].length) throw new NotAPack("more than one pack in it");
  const root = roots[0], files = new Map(), others = [];
  for (const entry of entries) {
    if (!entry.name.startsWith(root) || entry.name === root) continue;
    const name = entry.name.slice(root.length), [first] = name.split("/");
    if (name !== first) {
      if (!others.includes(first)) others.push(first);
    } else if (files.has(name)) throw new NotAPack(`the name ${show(name)} twice in it`);
    else files.set(name, entry);
  }
  return { files, others };
}

/** What cannot be read as a pack at all. */
class NotAPack extends Error {}

/** A pack whose files are blobs: picked or dropped, or parts of an archive. Each has `name` and `blob`, perhaps `deflated` and `size`. */
function blobs(entries) {
  const { files, others } = within(entries);
  return {
    entries: () => [...[...files.keys()].map((name) => ({ name, file: true })), ...others.map((name) => ({ name, file: false }))],
    size: (name) => files.get(name)?.size ?? files.get(name)?.blob.size ?? null,
    async *chunks(name) {
      const { blob, deflated } = files.get(name);
      const stream = deflated ? blob.stream().pipeThrough(new DecompressionStream("deflate-raw")) : blob.stream();
      const reader = stream.getReader();
      try {
        for (;;) {
          const { done, value } = await reader.read();
          if (done) return;
          yield value;
        }
      } finally {
        reader.cancel().catch(() => {});
      }
    },
  };
}

/** The entries of an archive, .zip or .tar, none of them unpacked. */
async function archive(blob) {
  const at = async (from, length) => new Uint8Array(await blob.slice(from, from + length).arrayBuffer());
  const head = await at(0, 512);
  if (head[0] === 0x1f && head[1] === 0x8b) throw new NotAPack("a compressed archive: unpack it, or give the .tar");
  return head[0] === 0x50 && head[1] === 0x4b ? zip(blob, at) : tar(blob, at, head);
}

async function zip(blob, at) {
  const tail = await at(Math.max(0, blob.size - 65_557), 65_557), view = new DataView(tail.buffer);
  let end = tail.length - 22;
  while (end >= 0 && view.getUint32(end, true) !== 0x06054b50) end--;
  if (end < 0) throw new NotAPack("a .zip without its directory");
  const count = view.getUint16(end + 10, true), length = view.getUint32(end + 12, true), from = view.getUint32(end + 16, true);
  if (count === 0xffff || from === 0xffffffff) throw new NotAPack("a .zip of more than 4 GiB: unpack it");
  const list = await at(from, length), of = new DataView(list.buffer), entries = [];
  for (let n = 0, p = 0; n < count; n++) {
    if (p + 46 > list.length || of.getUint32(p, true) !== 0x02014b50) throw new NotAPack("a .zip whose directory is broken");
    const [method, packed, size] = [of.getUint16(p + 10, true), of.getUint32(p + 20, true), of.getUint32(p + 24, true)];
    const [nameLength, extra, comment] = [28, 30, 32].map((o) => of.getUint16(p + o, true)), local = of.getUint32(p + 42, true);
    const name = textOf(list.subarray(p + 46, p + 46 + nameLength));
    p += 46 + nameLength + extra + comment;
    if (name.endsWith("/")) continue;
    if (![0, 8].includes(method)) throw new NotAPack(`${show(name)} is packed in a way that is not read here`);
    const start = new DataView((await at(local, 30)).buffer);
    const data = local + 30 + start.getUint16(26, true) + start.getUint16(28, true);
    entries.push({ name, size, deflated: method === 8, blob: blob.slice(data, data + packed) });
  }
  return entries;
}

async function tar(blob, at, head) {
  const entries = [], field = (block, from, length) => textOf(block.subarray(from, from + length)).replace(/\0.*$/s, "");
  let long = null;
  for (let p = 0; p + 512 <= blob.size; ) {
    const block = p ? await at(p, 512) : head;
    if (block.every((byte) => byte === 0)) break;
    const sum = block.reduce((n, byte, i) => n + (i >= 148 && i < 156 ? 32 : byte), 0);
    const size = parseInt(field(block, 124, 12).trim(), 8), type = String.fromCharCode(block[156] || 48);
    if (parseInt(field(block, 148, 8).trim(), 8) !== sum || !(size >= 0)) throw new NotAPack("neither a directory nor a .zip or .tar");
    const prefix = field(block, 257, 5) === "ustar" ? field(block, 345, 155) : "";
    const name = long ?? (prefix ? `${prefix}/` : "") + field(block, 0, 100), data = blob.slice(p + 512, p + 512 + size);
    long = null;
    if (type === "x") long = /(?:^|\n)\d+ path=([^\n]*)\n/.exec(textOf(new Uint8Array(await data.arrayBuffer())))?.[1] ?? null;
    else if (type === "L") long = field(new Uint8Array(await data.arrayBuffer()), 0, size);
    else if (type === "0") entries.push({ name: name.replace(/^\.\//, ""), blob: data });
    else if (!"5g".includes(type)) entries.push({ name: `${name.replace(/^\.\//, "")}/link`, blob: data });
    p += 512 + Math.ceil(size / 512) * 512;
  }
  return entries;
}

/** The lines of a file, with the hash of all its bytes. */
class Lines {
  waiting = [];
  next = 0;
  rest = [];
  restLength = 0;
  number = 0;
  hash = hasher();
  bytes = 0;

  constructor(source, name, limit = Infinity) {
    Object.assign(this, { chunks: source.chunks(name), limit });
  }

  /** The next line's bytes, without its line feed; null at the end. */
  async read() {
    while (this.next === this.waiting.length) {
      if (this.ended) return null;
      await this.more();
    }
    this.number++;
    return this.waiting[this.next++];
  }

  async more() {
    [this.waiting, this.next] = [[], 0];
    const { done, value } = await this.chunks.next();
    if (done) {
      this.ended = true;
      if (this.restLength) throw new Bad("the last line has no line feed");
      return;
    }
    this.hash.update(value);
    this.bytes += value.length;
    if (this.bytes > this.limit) throw new Bad("longer than it is listed");
    let from = 0;
    for (let to = value.indexOf(10); to >= 0; to = value.indexOf(10, from)) {
      const part = value.subarray(from, to);
      this.waiting.push(this.restLength ? joined([...this.rest, part]) : part);
      [this.rest, this.restLength] = [[], 0];
      from = to + 1;
    }
    if (from < value.length) {
      this.rest.push(value.slice(from));
      this.restLength += value.length - from;
      if (this.restLength > LIMIT.line) throw new Bad("a line of more than 64 MiB");
    }
  }

  /** Reads what is left, so that the hash is of all. */
  async drain() {
    for (this.rest = [], this.restLength = 0; !this.ended; ) {
      try {
        await this.more();
      } catch (error) {
        if (!(error instanceof Bad)) throw error;
      }
      [this.waiting, this.next, this.rest, this.restLength] = [[], 0, [], 0];
    }
    return hexOf(this.hash.digest());
  }
}

// ---- What members there are ----

const ONE = {
  s: (v) => typeof v === "string",
  b: (v) => typeof v === "boolean",
  i: (v) => Number.isSafeInteger(v) && v >= 0,
  I: (v) => Number.isSafeInteger(v),
  n: (v) => typeof v === "number" && v >= 0,
  j: () => true,
  z: (v) => v === null,
  texts: (v) => ONE.o(v) && Object.values(v).every(ONE.s),
  o: (v) => v !== null && typeof v === "object" && !Array.isArray(v),
  t: (v) => typeof v === "string" && /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(v) && time(v) !== null,
  x: (v) => typeof v === "string" && /^[0-9a-f]{64}$/.test(v),
  h: (v) => typeof v === "string" && /^sha256(?:-raw)?:[0-9a-f]{64}$/.test(v),
  H: (v) => typeof v === "string" && /^sha256:[0-9a-f]{64}$/.test(v),
  d: (v) => typeof v === "string" && /^[0-9a-f]{16}$/.test(v),
  id: (v) => v === null || typeof v === "string" || Number.isSafeInteger(v),
};
for (const id of ["mcp", "inv", "mtc", "mtr", "mtd", "mte", "sap", "mcp_session"]) {
  const form = new RegExp(`^${id}_[0-9a-f]{16}$`);
  ONE[id] = (v) => typeof v === "string" && form.test(v);
}

/** Milliseconds of a time in the form that is written, or null. */
function time(text) {
  const ms = Date.parse(text);
  return Number.isNaN(ms) || new Date(ms).toISOString() !== text ? null : ms;
}

/** Reads `name:type` pairs. `?` may be null, `*` is an array of it, `~` may be absent; `(a|b)` are the words that it may be, `{name}` another shape. */
function shape(spec) {
  const members = new Map();
  for (const pair of spec.trim().split(/\s+/)) {
    const [, name, type, suffix] = /^([^:]+):(\(.*\)|\{.*\}|[A-Za-z_]+)([?*~]*)$/.exec(pair);
    let test = ONE[type];
    if (type[0] === "(") {
      const words = type.slice(1, -1).split("|");
      test = (v) => words.includes(v);
    } else if (type[0] === "{") test = (v) => !wrong(v, SHAPES[type.slice(1, -1)]);
    if (!test) throw new Error(`no type ${type}`);
    for (const mark of suffix) {
      const inner = test;
      if (mark === "*") test = (v) => Array.isArray(v) && v.every(inner);
      if (mark === "?") test = (v) => v === null || inner(v);
    }
    members.set(name, { test, optional: suffix.includes("~") });
  }
  return members;
}

/** What is wrong with the members of an object, or null. */
function wrong(value, of) {
  if (!ONE.o(value)) return "not an object";
  for (const name of Object.keys(value)) if (!of.has(name)) return `the member ${show(name)} is not one of it`;
  for (const [name, { test, optional }] of of) {
    if (!Object.hasOwn(value, name)) {
      if (!optional) return `the member ${name} is missing`;
    } else if (!test(value[name])) return `the member ${name} is not what it must be`;
  }
  return null;
}

const SHAPES = {};
const RECEIPT = `integration_source:s receipt_id:mtc schema_version:s seq:i timestamp:t trace_id:mcp type:s`;
const CALL = `${RECEIPT} anomalies:s* arguments_content:j arguments_hash:h duration_ms:n? invocation_id:inv mcp_request_id:id meta:j
  outcome:(forwarded|denied|error|timeout) outcome_reason:s? parent_receipt_id:mtc? phases_us:{phases} policy_decided_at:t? policy_hash:H?
  policy_reason:s? policy_ref:s? policy_verdict:(allowed|denied|no_policy) proxy_version:s request_observed_at:t response_observed_at:t?
  result_content:j result_hash:h? result_is_error:b? result_type:s? server_id:s server_transport:s session_id:mcp tool_name:s`;
const ASSERTED = `surface_age_ms:i? surface_approval_id:sap? surface_item_hash:h? surface_root:H? surface_state:(approved|first_use|new|changed|blocked|ambiguous|unlisted|not_listed_here)?`;
const OWN = `integration_source:s schema_version:s seq:i timestamp:t trace_id:mcp type:s anomalies:s* arguments_hash:h invocation_id:inv
  recorder_version:s server_id:s tool_name:s`;
const EXCHANGE = `bytes:i? encoding:s? headers:s* sha256:x? values:texts`;
const SPECS = {
  phases: `policy_decided:i? request_forwarded:i? response_first_byte:i? response_forwarded:i? response_observed:i?`,
  peer: `name:s version:s?`,
  counts: `calls:i denied:i errors:i malformed:i missed:i missed_bytes:i policy_denied:i requests:i timeouts:i`,
  "mcp_tool_call 3.0": CALL,
  "mcp_tool_call 3.1": `${CALL} ${ASSERTED}`,
  "mcp_tool_call 3.2": `${CALL} arguments_redacted:j`,
  "mcp_tool_call 3.2 surface": `${CALL} ${ASSERTED} arguments_redacted:j`,
  "mcp_tool_requested 3.0": `${OWN} receipt_id:mtr actor:s? arguments_content:j arguments_redacted:j mcp_request_id:id meta:j
    parent_receipt_id:mte? protocol_version:s? server_transport:(stdio|streamable-http) session_id:mcp_session?`,
  "mcp_tool_denied 3.0": `${OWN} receipt_id:mtd denial_reason:s denied:b policy_hash:H? policy_reason:s policy_ref:s? request_receipt_id:mtr`,
  "mcp_tool_executed 3.0": `${OWN} receipt_id:mte decision_receipt_id:mtd? duration_ms:n? error:s? outcome:(success|error|timeout)
    outcome_reason:s? parent_receipt_id:mte? policy_hash:H? policy_reason:s? policy_ref:s? policy_verdict:(allowed|no_policy|denied)
    request_receipt_id:mtr result_content:j result_hash:h? result_is_error:b? result_redacted:j result_type:s?`,
  "mcp.session_start 3.0": `${RECEIPT} chain_head:x client_info:{peer}? command_digest:s continues:mcp? policy_hash:H?
    profile:(audit|guard) protocol_version:s? proxy_version:s server_id:s server_info:{peer}? server_transport:s session_id:mcp started_at:t`,
  "mcp.session_end 3.0": `${RECEIPT} chain_hash:x counts:{counts} end_reason:s proxy_version:s session_complete:b session_id:mcp`,
  "mcp.recorder_gap 3.0": `${RECEIPT} bytes:i messages:i reason:s session_id:mcp`,
  event: `at:t detail:o direction:(client_to_server|server_to_client)? event:s event_seq:i hash:x invocation_id:inv? method:s? mono_us:i
    prev_hash:x rpc_id:id session_id:mcp transport:(stdio|streamable-http|sse) v:j wire_bytes:i? wire_sha256:x?`,
  chain_start: `carried_in:inv* command:s*? command_digest:s continues:mcp? policy_hash:H~ profile:(audit|guard) recorder_version:s server_id:s`,
  request_received: `anomalies:s* arguments_hash:h? era:s meta:j offset:i parent_receipt_id:mtc? tool_name:s?`,
  request_forwarded: `offset:i receipt_id:mtc? receipt_sha256:x?`,
  response_sent: `offset:i receipt_id:mtc? receipt_sha256:x?`,
  response_received: `anomalies:s* error_code:I? first_byte_us:i is_error:b? offset:i result_hash:h? result_type:s?`,
  policy_decision: `enforced:b offset:i policy_hash:H? reason:s rule:s? unseen:s* verdict:(allowed|denied)`,
  request_blocked: `offset:i reason:s receipt_id:mtc? receipt_sha256:x?`,
  policy_reloaded: `error:s? policy_hash:H previous:H`,
  malformed: `offset:i reason:s?`,
  malformed_lines: `first_us:i lines:i offset:i reason:s?`,
  notification: `offset:i reason:s?`,
  anomaly: `kind:s note:s? offset:i? receipt_id:mtc? receipt_sha256:x?`,
  recorder_gap: `bytes:i messages:i reason:s receipt_id:mtc? receipt_sha256:x?`,
  http_exchange: `answered_by:s? carries:j* client:s? credential:d? downstream:(h1|h2)? ended:s? endpoint:b exchange:i method:s
    notes:s* origin:(client|bridge|assay) phase:(end|open) request:{asked} response:{answer}? rewrote:s* session:d? target:{target}
    upstream:(h1|h2)? upstream_reused:b?`,
  asked: EXCHANGE,
  answer: `${EXCHANGE} first_byte_us:i? head_us:i? status:i trailers:s*`,
  target: `path:s query:s*`,
  tool_requested: `call:i receipt_id:mtr receipt_sha256:x`,
  tool_denied: `call:i receipt_id:mtd receipt_sha256:x`,
  tool_executed: `call:i receipt_id:mte receipt_sha256:x`,
  surface_decision: `approvals:i error:s? first:(tofu|approve) last:sap? mode:(report|enforce) pinned:s* rules_hash:s? sha256:x`,
  surface_observed: `age_ms:i context:{context} facet:(capabilities|instructions|prompts|resource_templates|resources|tools) gone:s* items:{announced}* root:H? whole:b`,
  announced: `approval_id:sap? hash:h name:s state:s`,
  surface_drift: `changes:{change}* changes_hash:H? count:i new_context:b root:H? severity:(critical|high|medium|low|info)`,
  change: `facet:s? kind:s name:s severity:(critical|high|medium|low|info)`,
  chain_end: `carried_out:inv* complete:b counts:{counts} events:i reason:s receipts:i`,
  context: `auth:s? client_capabilities:h? era:s? protocol_version:s?`,
  session: `chain_first:x chain_last:x client_info:{peer}? clock_steps:{step}* command:s*? command_digest:s continues:mcp? counts:{counts}
    coverage:{coverage}~ end_reason:s ended_at:t ended_mono_us:i event_count:i exit_code:I? http:{http}~ ledger_hash:x live_events_missed:i
    policy_hash:H? profile:(audit|guard) protocol_version:s? receipt_count:i recorder:(library)~ recorder_version:s recovery_notes:s*
    server_id:s server_info:{peer}? session_complete:b session_id:mcp started_at:t stderr_bytes:i surface_hash:x?
    teardown:s? transport:(stdio|streamable-http|sse) v:j`,
  step: `at:t delta_ms:I`,
  coverage: `denied:i executed:i open:i requested:i`,
  http: `client_key:s? client_key_shared:b downstream:s* endpoint:{endpoint} exchanges:i joined_midway:b key_lasts:b~ mcp_session:d? upstream:s*`,
  endpoint: `digest:H url:s?`,
  manifest: `pack_id:s pack_version:s manifest_version:s hash_alg:(sha256) attestation:{attestation} attestation_sha256:x suite_hash:x
    claim_set_id:s claim_set_hash:x redaction_policy_sha256:x?~ receipt_count_expected:i files:{file}* expected_files:s* signer_id:s signer_pubkey:s
    signer_pubkey_sha256:x signature_alg:(ed25519) signature_scope:(JCS(pack_manifest_excluding_signature_and_pack_root_sha256)) signature:s
    pack_root_sha256:x`,
  file: `path:s sha256:x bytes:i`,
  attestation: `pack_format_version:s fingerprint_version:i pack_id:s run_id:s suite_id:s suite_hash:x verifier_version:s canon_version:s
    canon_impl:s canon_impl_version:s policy_hash:x claim_set_id:s claim_set_hash:x receipt_integrity:(PASS|FAIL) claim_check:(PASS|FAIL|N/A)
    discrepancy_fingerprint:x? assurance_level:(L0|L1|L2|L3) proof_tier:s mode:(shadow|enforced) head_hash:x
    head_hash_algorithm:(last-receipt-digest-v0) time_authority:s n_receipts:i timestamp_start:s timestamp_end:s ci_binding:{ci}?
    valid_until:s?~ superseded_by:s?~`,
  ci: `provider:s commit_sha:s repo:s?~ ref:s?~ run_id:s?~ run_attempt:s?~ workflow_ref:s?~ actor:s?~`,
  key: `kind:(key) note:s signer:s v:j`,
  checkpoint: `kind:(checkpoint) note:s v:j`,
  extra: `event:s key:s ledger:s? receipt:s? reveal:j* v:j`,
  ledger_end: `at:t complete:b? event_count:i hash:x kind:(segment_end) ledger_seq:i note:s? prev_hash:x segment:s segment_hash:x
    session_id:mcp session_key:x tree_root:x v:j`,
  surface: `capabilities:{entry}? changes:i context:{context} endpoint:H facets:{facets} fingerprint:(assay.surface/2) instructions:{entry}?
    left_out:s* prompts:{list} protocol_version:s? resource_templates:{list} resources:{list} root:H? rules_hash:h? server_id:s
    server_info:{peer}? tools:{list} truncated:b v:j`,
  list: `items:{entry}* reason:s? state:(complete|incomplete|not_offered|unknown)`,
  entry: `ambiguity:s? content:j hash:h name:s`,
  facets: `capabilities:h? instructions:h? prompts:h? resource_templates:h? resources:h? tools:h?`,
  "surface 1": `capabilities:j changes:i instructions:j omitted_hash:j prompts:{old}* protocol_version:s? resource_templates:{old}* resources:{old}*
    server_info:{peer}? tools:{old}* truncated:b v:j`,
  old: `entry:j hash:h name:s`,
  decision: `approval_id:sap approver:{approver} at:t changes:{change}* changes_hash:H? contexts:{context}* decision:(approve|block|revoke|first_use)
    endpoint:H facets:{facets} hash:x items:{item}* prev_hash:x previous:sap? reason:s? root:H? rules_hash:h? seq:i server_id:s signature:s
    signer:{signer} type:(mcp.surface_approval) v:j`,
  approver: `auth:(key|token|local_user) name:s via:(cli|tui|api|ui|file|proxy)`,
  item: `facet:s hash:h name:s`,
  signer: `fingerprint:x id:s public_key:s`,
  approved: `endpoint:H fingerprint:(assay.surface/2) items:{kept}* server_id:s v:j`,
  kept: `approval_id:sap? content:s? facet:s hash:h name:s state:s`,
  report: `schema_version:s report_id:j pack_id:s run_id:s pack_root_sha256:x pack_manifest_sha256:j integrity_verdict:(PASS|TAMPERED)
    claim_verdict:s replay_verdict:s trust_verdict:s evaluation_profile:j required_channels:j overall_verdict:s overall_reason:j
    blocking_channel:s? verified_at:t verifier:{verifier} expectations:{expectations} verification_inputs_sha256:x verifier_config_sha256:j
    provenance:o evidence_refs:{ref}* checks:j summary:j errors:o* warnings:s* passed:b receipt_count:i head_hash:x session_complete:b
    completeness_verdict:(COMPLETE|INCOMPLETE|UNTERMINATED|NOT_EVALUATED) end_reason:s error_count:i`,
  verifier: `name:j version:s policy_id:j`,
  expectations: `policy_id:j policy_sha256:x claim_set_id:s claim_set_hash:x`,
  ref: `kind:s path:s sha256:x?`,
};
for (const [name, spec] of Object.entries(SPECS)) SHAPES[name] = shape(spec);

// ---- The report ----

/** Text of others with every character visible that could hide or change something. */
export function show(text, most = 200) {
  const cut = text.length > most ? `${text.slice(0, most)}… (${text.length} characters)` : text;
  return cut.replace(/[\u0000-\u001f\u007f-\u00a0\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff]/gu,
    (c) => `\\u{${c.codePointAt(0).toString(16)}}`).replace(/[\u{e0000}-\u{e0fff}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

/** A stage that has nothing to look at. */
class Skip extends Error {}

class Report {
  findings = [];
  omitted = 0;
  warnings = [];
  stages = new Map();
  newer = false;

  find(stage, message, where = {}) {
    this.stages.set(stage, { status: "fail" });
    this.tampered = true;
    if (this.findings.length < LIMIT.findings) this.findings.push({ stage, message, ...where });
    else this.omitted++;
  }

  tooNew(stage, error, where) {
    this.newer = true;
    if (!this.stages.has(stage)) this.stages.set(stage, { status: "unsupported" });
    this.findings.push({ code: "E_VERSION_UNSUPPORTED", stage, message: error.message, found: error.found, expected: error.reads, ...where });
  }

  skip(stage, reason) {
    if (!this.stages.has(stage)) this.stages.set(stage, { status: "skipped", reason });
  }

  /** Runs a stage: what it throws is its finding. Gives what it gives, or undefined. */
  async run(stage, body, where) {
    try {
      const out = await body();
      if (!this.stages.has(stage)) this.stages.set(stage, { status: "ok" });
      return out;
    } catch (error) {
      if (error instanceof Bad) this.find(stage, error.message, where);
      else if (error instanceof Newer) this.tooNew(stage, error, where);
      else if (error instanceof Skip) this.skip(stage, error.message);
      else throw error;
      return undefined;
    }
  }
}

const must = (holds, message) => { if (!holds) throw new Bad(message); };
const same = (a, b) => a === b || canonical(a) === canonical(b);

// ---- A pack ----

/** Verifies a pack. `signers` are fingerprints of keys that are expected; `progress` is told how many bytes were read. */
export async function verifyPack(source, { signers = [], strict = false, progress = () => {} } = {}) {
  const report = new Report(), pack = { source, report, progress, read: 0 };
  const manifest = await readManifest(pack);
  if (manifest) {
    pack.manifest = manifest;
    await checkPaths(pack, strict);
    await checkSignature(pack);
    if (!report.stages.get("validate_paths")?.status.startsWith("f")) await checkFiles(pack);
  }
  for (const stage of STAGES.slice(0, -1)) report.skip(stage, manifest ? "nothing to look at" : "the manifest could not be read");
  return conclude(pack, signers, strict);
}

async function wholeFile(source, name, limit) {
  const parts = [];
  let length = 0;
  for await (const chunk of source.chunks(name)) {
    length += chunk.length;
    if (length > limit) throw new Bad(`longer than ${limit} bytes`);
    parts.push(chunk.slice());
  }
  return joined(parts);
}

async function readManifest(pack) {
  const { source, report } = pack, where = { file: MANIFEST };
  const entry = source.entries().find((e) => e.name === MANIFEST);
  if (!entry) throw new NotAPack(`no ${MANIFEST} in it`);
  return report.run("validate_schema", async () => {
    must(entry.file, "not a plain file");
    const bytes = await wholeFile(source, MANIFEST, LIMIT.manifest);
    pack.manifestSha256 = sha256hex(bytes);
    const text = textOf(bytes), value = parse(text);
    must(ONE.o(value), "not an object");
    const attestation = ONE.o(value.attestation) ? value.attestation : {};
    const versions = [["pack_version", () => textVersion(value.pack_version, ["0.1.0"], 3)],
      ["manifest_version", () => textVersion(value.manifest_version, ["1.0.0"], 3)],
      ["pack_format_version", () => textVersion(attestation.pack_format_version, ["0.1.0"], 3)],
      ["fingerprint_version", () => integerVersion(attestation.fingerprint_version, [1, 1])]];
    for (const [field, check] of versions) {
      try {
        check();
      } catch (error) {
        if (!(error instanceof Newer)) throw new Bad(`${field}: ${error.message}`);
        report.tooNew("validate_schema", error, { ...where, field });
        pack.newerManifest = true;
      }
    }
    const fault = wrong(value, SHAPES.manifest);
    if (fault && pack.newerManifest) throw new Skip("the manifest is of a later version");
    must(!fault, fault);
    const recorded = value.files.some((f) => f.path === EVENTS);
    if (!pack.newerManifest && recorded && JSON.stringify(value, null, 2) !== text) report.find("validate_schema", "not in the form in which manifests are written", where);
    must(value.files.length <= LIMIT.files, "more than 10 000 files");
    return value;
  }, where);
}

async function checkPaths(pack, strict) {
  const { manifest, report, source } = pack;
  await report.run("validate_paths", () => {
    const listed = new Set();
    for (const { path } of manifest.files) {
      must(plainName(path), `the name ${show(path)} is not the plain name of a file`);
      must(path !== MANIFEST && path !== SIGNATURE, `${path} cannot list itself`);
      must(!listed.has(path), `${show(path)} is listed twice`);
      listed.add(path);
    }
    const expected = new Set();
    for (const path of manifest.expected_files) {
      must(plainName(path), `the name ${show(path)} is not the plain name of a file`);
      must(!expected.has(path), `${show(path)} is expected twice`);
      must(listed.has(path) || path === MANIFEST || path === SIGNATURE, `${show(path)} is expected, but has no hash`);
      expected.add(path);
    }
    for (const path of listed) must(expected.has(path), `${show(path)} is listed, but not expected`);
    if (!pack.newerManifest) {
      for (const path of [RECEIPTS, REPORT, TRANSCRIPT]) must(listed.has(path), `${path} is not listed`);
      for (const path of [MANIFEST, SIGNATURE]) must(expected.has(path), `${path} is not expected`);
    }
    pack.extra = source.entries().filter((e) => !expected.has(e.name) && ![MANIFEST, SIGNATURE].includes(e.name) && !(e.name === "_unsigned" && !e.file && !e.link));
    for (const { name } of pack.extra.slice(0, 20)) report.warnings.push(`${show(name)} is not listed: nothing vouches for it`);
    if (pack.extra.length > 20) report.warnings.push(`and ${pack.extra.length - 20} more entries that are not listed`);
    for (const path of expected) {
      const entry = source.entries().find((e) => e.name === path);
      if (!entry) report.find("validate_file_hashes", "the file is missing", { file: path });
      else if (!entry.file) report.find("validate_file_hashes", "not a plain file", { file: path });
    }
  }, { file: MANIFEST });
}

async function checkSignature(pack) {
  const { manifest, report, source } = pack;
  await report.run("verify_signature", async () => {
    const key = unbase64(manifest.signer_pubkey), signature = unbase64(manifest.signature);
    must(key?.length === 32, "signer_pubkey is not a key in base64");
    pack.fingerprint = sha256hex(key);
    must(signature?.length === 64, "signature is not a signature in base64");
    must(pack.fingerprint === manifest.signer_pubkey_sha256, "signer_pubkey_sha256 is not the hash of the key");
    const { signature: _s, pack_root_sha256: _r, ...signed } = manifest;
    must(await signatureHolds(key, signature, bytesOf(canonical(signed))), "the signature does not hold");
    const entry = source.entries().find((e) => e.name === SIGNATURE);
    must(entry?.file, `${SIGNATURE} is missing`);
    must(equal(await wholeFile(source, SIGNATURE, 4096), signature), `${SIGNATURE} is not the signature of the manifest`);
    pack.signed = true;
  }, { file: MANIFEST });
  await report.run("check_d12_invariant", () => {
    must(manifest.pack_root_sha256 === manifest.attestation_sha256, "pack_root_sha256 is not attestation_sha256");
  }, { file: MANIFEST });
}

async function checkFiles(pack) {
  const { manifest, report, source } = pack;
  const present = new Map(manifest.files.map((f) => [f.path, f]));
  for (const { path } of manifest.files) if (!source.entries().find((e) => e.name === path)?.file) present.delete(path);
  pack.has = (name) => present.has(name);
  pack.documents = new Map();
  const large = manifest.files.reduce((n, f) => n + f.bytes, 0) > LIMIT.unsigned && !pack.signed;
  for (const [name, { bytes, sha256: listed }] of [...present]) {
    const size = source.size(name), lines = BY_LINE.includes(name);
    const most = lines ? LIMIT.byLine : name === SESSION ? LIMIT.session : LIMIT.document;
    if (large || bytes > most || size > bytes + LIMIT.excess) {
      if (!large || size !== bytes) report.find("validate_file_hashes", bytes > most ? "too long to be read" : "not as long as it is listed", { file: name });
      present.delete(name);
      continue;
    }
    if (lines && !pack.newerManifest) continue;
    const hash = hasher(), parts = [];
    const kept = [SESSION, REPORT, TRANSCRIPT, SURFACE, APPROVED].includes(name) || /^policy(_sha256_[0-9a-f]{64})?\.yaml$/.test(name);
    for await (const chunk of source.chunks(name)) {
      hash.update(chunk);
      if (kept) parts.push(chunk.slice());
      pack.progress((pack.read += chunk.length));
    }
    checkListed(pack, name, hexOf(hash.digest()));
    if (kept) pack.documents.set(name, joined(parts));
  }
  if (pack.newerManifest) return;
  await checkReceipts(pack);
  await checkAttestation(pack);
  await readCheckpoints(pack);
  await readDecisions(pack);
  await checkChain(pack);
  await checkSurface(pack);
  await checkCheckpoints(pack);
  await checkSession(pack);
  await checkReport(pack);
  report.stages.has("validate_file_hashes") || report.stages.set("validate_file_hashes", { status: "ok" });
}

function checkListed(pack, name, found) {
  const { sha256: listed } = pack.manifest.files.find((f) => f.path === name);
  if (found !== listed) pack.report.find("validate_file_hashes", "its bytes are not the listed ones", { file: name, expected: listed, found });
}

/** Reads a file of lines: `each` is told each line's value, its text and its number. Findings about what lines say wait until it is
    known that no line is of a later version. */
async function eachLine(pack, stage, name, each) {
  const { report } = pack, lines = new Lines(pack.source, name, pack.manifest.files.find((f) => f.path === name).bytes + LIMIT.excess);
  const later = [];
  let newer = false, broken = false;
  const where = () => ({ file: name, line: lines.number });
  try {
    for (let raw; (raw = await lines.read()); ) {
      if (lines.number % 1000 === 0) pack.progress(pack.read + lines.bytes);
      try {
        const text = textOf(raw);
        await each(line(text), text, raw, lines.number);
      } catch (error) {
        if (error instanceof Newer) {
          if (!newer) report.tooNew(stage, error, where());
          newer = true;
        } else if (error instanceof Said) later.push([error.message, where()]);
        else if (error instanceof Bad) {
          report.find(stage, error.message, where());
          broken = true;
          break;
        } else throw error;
      }
      if (later.length > LIMIT.findings) break;
    }
  } catch (error) {
    if (!(error instanceof Bad)) throw error;
    report.find(stage, error.message, where());
    broken = true;
  }
  if (!newer) for (const [message, at] of later) report.find(stage, message, at);
  if (!report.stages.has(stage)) report.stages.set(stage, { status: "ok" });
  const hash = await lines.drain();
  pack.read += lines.bytes;
  checkListed(pack, name, hash);
  return { newer, torn: broken, broken: broken || later.length > 0, count: lines.number, hash };
}

/** What a line says that it must not say; it counts only if no line of the file is of a later version. */
class Said extends Bad {}
const says = (holds, message) => { if (!holds) throw new Said(message); };

// ---- Receipts ----

const OWN_TYPES = /^mcp[._]tool_(requested|denied|executed)$/;

function receiptShape(receipt) {
  const { type, schema_version: version } = receipt;
  if (type === "mcp_tool_call") {
    let spec = CALL;
    const surface = Object.hasOwn(receipt, "surface_state"), redacted = Object.hasOwn(receipt, "arguments_redacted");
    const name = `${type} ${version}${surface}${redacted}`;
    says({ "3.0": !surface && !redacted, "3.1": surface && !redacted, "3.2": redacted, "3.3": true }[version], "members that its version does not have, or lacks");
    if (surface) spec += ` ${ASSERTED}`;
    if (redacted) spec += " arguments_redacted:j";
    return (SHAPES[name] ??= shape(spec));
  }
  const redacts = version === "3.4" && /requested$|executed$/.test(type);
  return SHAPES[`${OWN_TYPES.test(type) ? type.replace(/^mcp\./, "mcp_") : type} ${redacts ? "3.0" : version}`];
}

/** What rules may have left of a content: the receipt names them, and it has the placeholder of each. */
function isRedacted(receipt, content) {
  const side = `redacted:${content === "arguments_content" ? "arguments" : "result"}:`;
  const rules = receipt.anomalies.filter((a) => a.startsWith(side)).map((a) => a.slice(side.length)).filter((name) => /^[a-z0-9-]{1,40}$/.test(name));
  const text = canonical(receipt[content]);
  return rules.length > 0 && rules.every((name) => text.includes(`[redacted:${name}]`));
}

async function checkReceipts(pack) {
  const { report, manifest } = pack, ids = new Set();
  if (!pack.has(RECEIPTS)) return report.skip("validate_receipts", "there are none");
  const ours = pack.has(EVENTS), out = { count: 0, first: null, last: null, head: sha256hex("empty"), traces: new Set() };
  let before = null;
  const result = await eachLine(pack, "validate_receipts", RECEIPTS, (receipt, text, raw) => {
    if (ours || Object.hasOwn(receipt, "schema_version")) textVersion(receipt.schema_version, READS.receipt, 2);
    const place = out.count++;
    const bare = Object.fromEntries(Object.entries(receipt).filter(([name]) => !["signatures", "signature", "cose_signature", "receipt_hash", "anchor"].includes(name)));
    out.head = Object.keys(bare).length === Object.keys(receipt).length ? hexOf(sha256(raw)) : sha256hex(canonical(bare));
    const { receipt_id: id, timestamp } = receipt;
    says(typeof id === "string" && id !== "" && typeof receipt.type === "string" && typeof timestamp === "string", "no id, type or timestamp");
    says(!ids.has(id), `the id ${show(id)} was there before`);
    ids.add(id);
    if (ours) {
      const of = receiptShape(receipt);
      says(of, `no receipt of the type ${show(receipt.type)} and schema ${show(receipt.schema_version)}`);
      const fault = wrong(receipt, of);
      says(!fault, fault);
      says(receipt.seq === place, `seq is ${receipt.seq}, not ${place}`);
      says(receipt.session_id === undefined || receipt.session_id === receipt.trace_id || OWN_TYPES.test(receipt.type), "the receipt is of another session");
      says(["assay.mcp_proxy", "assay.integrations.mcp"].includes(receipt.integration_source), "an integration_source that no receipt has");
      const redacts = ["3.3", "3.4"].includes(receipt.schema_version);
      let redacted = 0;
      for (const [content, hash] of [["arguments_content", "arguments_hash"], ["result_content", "result_hash"]]) {
        if (receipt[content] == null || receipt[hash] === `sha256:${sha256hex(canonical(receipt[content]))}`) continue;
        says(redacts && receipt[hash]?.startsWith("sha256:") && isRedacted(receipt, content), `${hash} is not that of ${content}`);
        redacted++;
      }
      says(redacted || !redacts, "no content is redacted, and the schema says that some is");
    }
    const at = Date.parse(timestamp);
    says(!Number.isNaN(at), "timestamp is no time");
    if (out.first === null || at < Date.parse(out.first)) out.first = timestamp;
    if (out.last === null || at > Date.parse(out.last)) out.last = timestamp;
    out.traces.add(receipt.trace_id ?? receipt.run_id);
    before = receipt;
  });
  pack.receipts = { ...out, ...result };
}

async function checkAttestation(pack) {
  const { manifest: m, report, receipts } = pack, a = m.attestation;
  await report.run("validate_attestation", () => {
    must(sha256hex(canonical(a)) === m.attestation_sha256, "attestation_sha256 is not the hash of the attestation");
    for (const name of ["pack_id", "suite_hash", "claim_set_id", "claim_set_hash"]) must(a[name] === m[name], `${name} differs in manifest and attestation`);
    must(sha256hex(a.suite_id) === a.suite_hash, "suite_hash is not the hash of suite_id");
    must((a.claim_set_id === "none") === (a.claim_check === "N/A"), "claim_check is not that of the claim set");
    must(a.n_receipts === m.receipt_count_expected, "n_receipts is not receipt_count_expected");
    must(a.receipt_integrity === "PASS", "the builder itself says that receipts were damaged");
    if (!receipts) throw new Skip("there are no receipts");
    must(a.n_receipts === receipts.count, `there are ${receipts.count} receipts, not ${a.n_receipts}`);
    if (receipts.newer || receipts.broken) return;
    must(a.head_hash === receipts.head, "head_hash is not the hash of the last receipt");
    must(receipts.count === 0 || (a.timestamp_start === receipts.first && a.timestamp_end === receipts.last), "the times are not those of the receipts");
  }, { file: MANIFEST });
}

// ---- The chain of events, and the receipts that it binds ----

const OF_MESSAGES = new Set(["request_received", "request_forwarded", "response_sent", "response_received", "policy_decision", "request_blocked",
  "malformed", "malformed_lines", "notification", "anomaly"]);
/** Words of a receipt that its events do not have. */
const OF_RECEIPTS = new Set(["not_decided", "recovered", "response_not_delivered", "delivery_unknown", "content_in_investigation_log", "surface_stale",
  "cleartext_not_kept", "redaction_not_possible", "task_leg"]);
const other = (direction) => (direction === "client_to_server" ? "server_to_client" : "client_to_server");

function detailShape(kind, exchanges) {
  const spec = SPECS[kind];
  if (!exchanges || !OF_MESSAGES.has(kind)) return SHAPES[kind];
  return (SHAPES[`${kind} over HTTP`] ??= shape(`${spec} exchange:i?`));
}

/** Follows the events of a session, one after the other, and the receipts that they bind. */
class Chain {
  seq = 0;
  calls = new Map();
  counts = { calls: 0, denied: 0, errors: 0, malformed: 0, missed: 0, missed_bytes: 0, policy_denied: 0, requests: 0, timeouts: 0 };
  offsets = { client_to_server: null, server_to_client: null };
  exchanges = new Map();
  /** Those that were refused, or answered with a status that is not one of success. */
  failed = new Set();
  policies = new Set();
  gaps = 0;
  steps = [];
  /** Of each request that was received so much of its id as a number holds. */
  seen = new Set();
  answered = new Set();

  constructor(tree, decisions) {
    Object.assign(this, { tree, decisions });
  }

  /** The form of one event, its place in the chain, and what it says of itself. */
  form(e, text) {
    integerVersion(e.v, READS.event);
    const fault = wrong(e, SHAPES.event);
    says(!fault, fault);
    const place = this.seq++, before = this.last;
    this.last = e.hash;
    this.tree.add(e.hash);
    if (e.event === "malformed_lines") says(e.v === 5 && this.transport === "stdio" && this.v !== 3, "lines of this version are in sessions over stdio");
    else {
      this.v ??= e.v;
      says(e.v === this.v && e.v !== 5, "its version is not that of the events before");
    }
    says(e.event_seq === place, `event_seq is ${e.event_seq}, not ${place}`);
    const bare = text.replace(`"hash":"${e.hash}",`, "");
    says(sha256hex(bare) === e.hash, "hash is not that of the event");
    if (place) {
      says(e.prev_hash === before, "prev_hash is not the hash of the event before");
      says(e.session_id === this.session && e.transport === this.transport, "of another session");
      says(!this.end, "an event behind the end");
      says(e.event !== "chain_start", "a second start");
    } else {
      says(e.event === "chain_start", "the first event is no start");
      says([1, 3].includes(e.v) ? e.transport === "stdio" || e.v === 3 : true, "a version that sessions of this transport do not have");
      Object.assign(this, { session: e.session_id, transport: e.transport, start: e, first: e.hash });
    }
    if (place === 1 && this.v === 4) says(e.event === "surface_decision", "a session of version 4 says first what it is compared with");
    if (this.v !== 4) says(!e.event.startsWith("surface_"), "only sessions of version 4 are compared");
    if (e.event.startsWith("tool_")) says(this.v === 3, "only a server that records itself says this");
    says(SPECS[e.event] && (OF_MESSAGES.has(e.event) || CHAIN_EVENTS.has(e.event)), `no event ${show(e.event)}`);
    const detail = wrong(e.detail, detailShape(e.event, e.v === 2 || (e.v === 4 && e.transport !== "stdio")));
    says(!detail, `detail: ${detail}`);
  }

  /** The id of the request at this place; elements of a batch are numbered. */
  named(e) {
    const over = e.detail.exchange != null ? `x${e.detail.exchange}:` : "";
    const place = `${this.session}:${over}${e.direction}:${e.detail.offset}`;
    if (idOf(place) === e.invocation_id) return true;
    if (!e.detail.anomalies.includes("batch_element")) return false;
    for (let n = 0; n < 100_000; n++) if (idOf(`${place}:${n}`) === e.invocation_id) return true;
    return false;
  }

  /** Messages of a stream come one after the other: none begins before the one before it has ended. */
  room(e) {
    const { offset } = e.detail;
    if (!["request_received", "response_received", "malformed", "malformed_lines", "notification", "anomaly"].includes(e.event) || this.transport !== "stdio") return;
    if (e.direction === null || e.wire_bytes === null || e.wire_sha256 === null || offset === null) return;
    const before = this.offsets[e.direction];
    says(!before || (offset === before.offset && e.wire_sha256 === before.hash && offset + e.wire_bytes === before.end) || offset >= before.end,
      "the message begins before the one before it has ended");
    this.offsets[e.direction] = { offset, end: offset + e.wire_bytes, hash: e.wire_sha256 };
  }

  /** Which exchanges events name: each has an event of its own, and when it has ended no message crosses in it any more. */
  crosses(e, exchange) {
    const said = this.exchanges.get(exchange);
    if (e.event === "http_exchange") {
      const { phase, ended, answered_by: by, response } = e.detail;
      says(said !== "end", "an exchange that ends twice");
      says((ended !== null) === (phase === "end"), "an exchange says how it ended if it is over, and only then");
      says((by !== null) === (response !== null), "an exchange says who answered if it was answered, and only then");
      this.exchanges.set(exchange, phase);
      if (ended === "refused" || (phase === "end" && response && (response.status < 200 || response.status > 299))) this.failed.add(exchange);
      return;
    }
    // A message is read while its exchange goes on. That it was written may be said later.
    says(said !== "end" || e.event === "request_forwarded" || e.event === "response_sent", "a message crossed in an exchange that had ended");
    if (!said) this.exchanges.set(exchange, null);
  }

  /** What an event says beside the others. `bound` gives the receipt that it names. */
  async follow(e, bound) {
    placeOf(e);
    this.room(e);
    says(e.detail.receipt_id === undefined || (e.detail.receipt_id === null) === (e.detail.receipt_sha256 === null), "a receipt without its hash, or a hash without its receipt");
    if (e.event === "request_received") this.seen.add(short(e.invocation_id));
    else says(e.invocation_id === null || e.event.startsWith("tool_") || this.seen.has(short(e.invocation_id)), "of a request that is not in the chain");
    if (e.detail.exchange != null) this.crosses(e, e.detail.exchange);
    const d = e.detail, call = this.calls.get(e.invocation_id);
    const of = (what) => {
      says(call, `${what} of a request that was not received`);
      if (call.carried) return;
      const r = call.request;
      says(e.method === r.method && same(e.rpc_id, r.rpc_id), "method or id are not those of the request");
    };
    const closed = () => this.calls.delete(e.invocation_id);
    switch (e.event) {
      case "chain_start":
        says(e.mono_us === 0, "the clock of the session does not begin with it");
        for (const id of d.carried_in) {
          this.calls.set(id, { carried: true });
          this.seen.add(short(id));
        }
        says((d.carried_in.length === 0) || d.continues !== null, "calls were carried in from no session");
        if (d.policy_hash) this.policies.add(d.policy_hash);
        this.policy = d.policy_hash ?? null;
        break;
      case "request_received":
        says(!call, "the request was there before");
        says(this.named(e), "invocation_id does not follow from the place of the message");
        says((e.method === "tools/call") === (d.arguments_hash !== null) && (e.method === "tools/call") === (d.tool_name !== null), "arguments_hash and tool_name are those of tool calls");
        says(e.method === "tools/call" || (d.meta === null && d.parent_receipt_id === null), "meta and parent_receipt_id are those of tool calls");
        this.counts.requests++;
        this.calls.set(e.invocation_id, { request: e, offered: e.method === "tools/call" ? this.offer?.ofCall(e) : null, stale: this.offer?.parts.get("tools")?.stale });
        break;
      case "policy_decision":
        of("a decision");
        says(!call.decision, "a second decision");
        says(call.carried || (e.direction === call.request.direction && d.offset === call.request.detail.offset), "a decision about another message");
        says(d.enforced === (this.start.detail.profile === "guard"), "a verdict is enforced by a guard, and by nobody else");
        call.decision = e;
        break;
      case "request_forwarded":
        of("a delivery");
        if (!call.carried) says(e.direction === call.request.direction && d.offset === call.request.detail.offset && e.wire_sha256 === call.request.wire_sha256
          && e.wire_bytes === call.request.wire_bytes, "it is another message than was received");
        says(d.receipt_id === null && d.receipt_sha256 === null, "it closes no call");
        says(!call.forwarded, "a second delivery");
        call.forwarded = e;
        break;
      case "response_received":
        of("an answer");
        says(!call.response, "a second answer");
        if (!call.carried) says(e.direction === other(call.request.direction), "an answer in the direction of its request");
        says(d.result_type === null ? d.is_error === true : d.error_code === null && d.is_error !== null, "neither a result nor an error");
        says(call.carried || d.anomalies.includes("response_after_cancel") === !!call.cancelled, "whether it came after a cancellation is not what the chain says");
        says(call.carried || d.exchange === undefined || d.anomalies.includes("answered_on_other_exchange") === (d.exchange !== call.request.detail.exchange),
          "whether it came in another exchange is not what the chain says");
        call.response = e;
        break;
      case "response_sent":
        of("an answer");
        says(call.response, "an answer that was not received");
        says(e.direction === call.response.direction && d.offset === call.response.detail.offset && e.wire_sha256 === call.response.wire_sha256
          && e.wire_bytes === call.response.wire_bytes, "it is another message than was received");
        says((e.method === "tools/call" && e.direction === "server_to_client") === (d.receipt_id !== null), "an answer to a tool call closes it, and no other");
        call.sent = e;
        closed();
        await this.close(e, call, bound);
        break;
      case "request_blocked":
        if (call) {
          of("a refusal");
          const r = call.request;
          says(call.carried || (e.direction === r.direction && d.offset === r.detail.offset && e.wire_sha256 === r.wire_sha256 && e.wire_bytes === r.wire_bytes),
            "it is another message than was received");
          says(call.decision?.detail.verdict === "denied" ? d.reason === call.decision.detail.reason : true, "another reason than that of the decision");
          says((e.method === "tools/call") === (d.receipt_id !== null), "a refusal of a tool call closes it, and no other");
          call.blocked = e;
          closed();
          await this.close(e, call, bound);
        }
        break;
      case "anomaly":
        if (d.kind === "clock_step") this.steps.push(e.at);
        if (["no_response", "not_delivered"].includes(d.kind)) says(call, "the end of a request that was not received");
        if (["no_response", "not_delivered"].includes(d.kind)) {
          closed();
          if (d.kind === "not_delivered") call.undelivered = e;
          else call.silent = e;
          await this.close(e, call, bound);
        }
        break;
      case "notification":
        if (call && e.method === "notifications/cancelled") call.cancelled = true;
        if (e.method === "notifications/tools/list_changed" && this.offer?.parts.has("tools")) this.offer.parts.get("tools").stale = true;
        break;
      case "malformed":
        this.counts.malformed++;
        break;
      case "malformed_lines":
        says(d.lines >= 2 && d.lines <= 1000, `${d.lines} lines, and 2 to 1000 stand in one event`);
        says(e.wire_bytes >= 2 * d.lines - 1, `${d.lines} lines do not fit into ${e.wire_bytes} bytes`);
        says(d.first_us <= e.mono_us, "its first line came after its last");
        this.counts.malformed += d.lines;
        break;
      case "policy_reloaded":
        this.policies.add(d.policy_hash).add(d.previous);
        break;
      case "recorder_gap":
        this.gaps++;
        this.counts.missed += d.messages;
        this.counts.missed_bytes += d.bytes;
        await this.close(e, {}, bound);
        break;
      case "tool_requested": case "tool_denied": case "tool_executed":
        await this.close(e, {}, bound);
        break;
      case "surface_decision":
        this.offer ??= new Offer(this.decisions);
        this.offer.check(e, () => this.offer.decide(d));
        break;
      case "surface_observed":
        says(this.offer, "announced before it is said what is in force");
        this.offer.check(e, () => this.offer.observe(e));
        break;
      case "surface_drift":
        says(this.offer, "drift before it is said what is in force");
        this.offer.check(e, () => this.offer.drift(d));
        break;
      case "chain_end":
        this.end = e;
        says(d.events === this.seq, `${this.seq} events, not ${d.events}`);
        for (const id of d.carried_out) says(this.calls.delete(id), "a call that was not in flight is carried out");
        says(!this.calls.size, "requests that nothing ends");
        says(![...this.exchanges.values()].includes(null), "an exchange without an event of its own");
        break;
      default:
    }
  }

  async close(e, call, bound) {
    const { receipt_id: id } = e.detail;
    if (id !== null) await bound(e, call);
  }
}
/** Which members an event of this kind has. */
function placeOf(e) {
  const message = [e.direction, e.wire_bytes, e.wire_sha256].map((v) => v !== null), named = e.invocation_id !== null;
  const whole = message.every(Boolean), none = !message.some(Boolean), none_of_request = e.method === null && e.rpc_id === null;
  const form = {
    request_received: whole && named && e.method !== null, request_forwarded: whole && named && e.method !== null, response_received: whole && named && e.method !== null,
    response_sent: whole && named && e.method !== null, policy_decision: e.direction !== null && e.wire_bytes === null && e.wire_sha256 === null && e.method !== null,
    request_blocked: whole, malformed: whole && !named && none_of_request, malformed_lines: whole && !named && none_of_request, notification: whole && e.method !== null, anomaly: e.detail.kind === "surface_filtered" ? whole && e.direction === "server_to_client" && e.detail.offset !== null && e.detail.note !== null
      : message[1] === message[2] && (message[0] || !message[1]),
    surface_observed: none && none_of_request, tool_requested: none && named, tool_denied: none && named, tool_executed: none && named,
  };
  says(form[e.event] ?? (none && !named && none_of_request), "it does not have the members of its kind");
}

const short = (id) => parseInt(id.slice(4, 17), 16);
const idOf = (place) => `inv_${sha256hex(place).slice(0, 16)}`;
const CHAIN_EVENTS = new Set(["chain_start", "policy_reloaded", "recorder_gap", "http_exchange", "tool_requested", "tool_denied", "tool_executed",
  "surface_decision", "surface_observed", "surface_drift", "chain_end"]);

/** What a receipt of a call says beside its events. */
function fits(r, call, e, chain) {
  const differs = (name, want) => says(same(r[name], want), `${name} of the receipt is not what the events say`);
  differs("proxy_version", chain.start.detail.recorder_version);
  differs("invocation_id", e.invocation_id);
  differs("receipt_id", `mtc_${e.invocation_id.slice(4)}`);
  differs("server_id", chain.start.detail.server_id);
  differs("server_transport", chain.transport);
  const request = call.request, response = call.response, decision = call.decision;
  if (!request) return;
  const since = (us) => us - request.mono_us;
  differs("tool_name", request.detail.tool_name);
  differs("arguments_hash", request.detail.arguments_hash);
  differs("meta", request.detail.meta);
  differs("parent_receipt_id", request.detail.parent_receipt_id);
  differs("mcp_request_id", request.rpc_id);
  differs("request_observed_at", request.at);
  differs("policy_verdict", decision?.detail.verdict ?? "no_policy");
  differs("policy_hash", decision?.detail.policy_hash ?? null);
  differs("policy_reason", decision?.detail.reason ?? null);
  differs("policy_ref", decision?.detail.rule ?? null);
  differs("policy_decided_at", decision?.at ?? null);
  differs("response_observed_at", response?.at ?? null);
  differs("result_hash", response?.detail.result_hash ?? null);
  differs("result_is_error", response?.detail.is_error ?? null);
  differs("result_type", response?.detail.result_type ?? null);
  differs("phases_us", {
    policy_decided: decision ? since(decision.mono_us) : null,
    request_forwarded: call.forwarded ? since(call.forwarded.mono_us) : null,
    response_first_byte: response ? since(response.detail.first_byte_us) : null,
    response_forwarded: call.sent ? since(call.sent.mono_us) : null,
    response_observed: response ? since(response.mono_us) : null,
  });
  differs("duration_ms", call.blocked ? null : since((response ?? e).mono_us) / 1000);
  const words = new Set([...request.detail.anomalies, ...(response?.detail.anomalies ?? []), ...(decision?.detail.unseen ?? [])]);
  for (const word of words) says(r.anomalies.includes(word), `anomalies lacks ${show(word)}`);
  for (const word of r.anomalies) says(words.has(word) || OF_RECEIPTS.has(word), `no event says ${show(word)}`);
  says(canonical([...new Set(r.anomalies)].sort()) === canonical(r.anomalies), "anomalies are not sorted");
  const outcome = call.blocked ? "denied" : call.silent ? (call.silent.detail.note === "http_error" ? "error" : "timeout") : response?.detail.is_error ? "error" : "forwarded";
  differs("outcome", outcome);
  differs("outcome_reason", !call.silent ? null : call.cancelled ? "cancelled_by_client" : call.silent.detail.note);
  if (r.outcome_reason === "http_error") says(chain.failed.has(request.detail.exchange), "the exchange of the call did not fail");
  if (!call.undelivered) differs("timestamp", e.at);
  says((chain.v === 4) === Object.hasOwn(r, "surface_state"), "whether it says how the definition stood is not what its session does");
  if (call.offered) chain.offer.check(e, () => {
    for (const [name, value] of Object.entries(call.offered)) differs(name, value);
    says(r.anomalies.includes("surface_stale") === !!call.stale, "surface_stale is not what the chain says");
  });
}

async function checkChain(pack) {
  const { report } = pack;
  if (!pack.has(EVENTS)) return;
  const chain = (pack.chain = new Chain((pack.tree = new Stated(pack.sealed)), pack.decided)), receipts = pack.has(RECEIPTS) && !pack.receipts.newer ? new Lines(pack.source, RECEIPTS) : null;
  const matches = receipts && !pack.receipts.broken;
  let taken = 0;
  /** The next receipt, in the order in which events bind them. */
  const next = async () => {
    const raw = await receipts.read();
    if (!raw) return null;
    taken++;
    return { raw, value: line(textOf(raw)) };
  };
  const found = [];
  const bound = async (e, call) => {
    if (!matches) return;
    const one = await next();
    says(one, "it names a receipt that is not there");
    const r = one.value, known = { mcp_tool_call: ["calls"] }[r.type];
    says(r.receipt_id === e.detail.receipt_id && hexOf(sha256(one.raw)) === e.detail.receipt_sha256, "it does not bind the next receipt");
    says(r.trace_id === chain.session, "the receipt is of another session");
    if (r.type === "mcp_tool_call") {
      says(e.event !== "recorder_gap", "a gap binds a call");
      chain.counts.calls++;
      const counted = { denied: "denied", error: "errors", timeout: "timeouts" }[r.outcome];
      if (counted) chain.counts[counted]++;
      if (r.policy_verdict === "denied") chain.counts.policy_denied++;
      fits(r, call, e, chain);
    } else if (r.type === "mcp.recorder_gap") {
      says(e.event === "recorder_gap" && r.reason === e.detail.reason && r.messages === e.detail.messages && r.bytes === e.detail.bytes, "the gap's receipt says something else");
    } else says(OWN_TYPES.test(r.type), "no receipt that an event binds");
  };
  let first = null;
  const result = await eachLine(pack, "verify_chain", EVENTS, async (e, text) => {
    chain.form(e, text);
    try {
      if (chain.seq === 1 && matches) {
        first = (await next())?.value ?? null;
        pack.opening = first;
        startFits(chain, first);
      }
      await chain.follow(e, bound);
    } catch (error) {
      if (error instanceof Said) found.push([error.message, { file: EVENTS, line: chain.seq }]);
      else throw error;
      if (found.length > LIMIT.findings) throw new Said("too many contradictions");
    }
  });
  pack.events = result;
  if (result.newer || !matches) {
    report.skip("match_receipts_to_chain", "one side is of a later version or not sound");
    return;
  }
  await report.run("match_receipts_to_chain", async () => {
    for (const [message, where] of found) report.find("match_receipts_to_chain", message, where);
    if (chain.end) {
      const last = await next();
      says(last?.value.type === "mcp.session_end", "the last receipt does not end the session");
      endFits(chain, last.value);
      pack.last = last.value;
    }
    says(!(await next()), "a receipt that no event binds");
    says(!chain.end || chain.end.detail.receipts === taken - 1 - 0, `${taken - 1} receipts before the end, not ${chain.end?.detail.receipts}`);
    says((await receipts.drain()) === pack.receipts.hash, "the receipts changed while they were read");
  }, { file: EVENTS });
}

const receiptId = (chain, what, seq) => `mtc_${sha256hex(`${chain.session}:${what}:${seq}`).slice(0, 16)}`;

function startFits(chain, r) {
  const d = chain.start.detail;
  says(r?.type === "mcp.session_start", "the first receipt does not start the session");
  const want = { chain_head: chain.first, command_digest: d.command_digest, continues: d.continues, policy_hash: d.policy_hash ?? null, profile: d.profile,
    proxy_version: d.recorder_version, receipt_id: receiptId(chain, "session_start", 0), server_id: d.server_id, server_transport: chain.transport,
    session_id: chain.session, started_at: chain.start.at, trace_id: chain.session };
  for (const [name, value] of Object.entries(want)) says(same(r[name], value), `${name} of the first receipt is not what the chain says`);
}

function endFits(chain, r) {
  const d = chain.end.detail;
  const want = { chain_hash: chain.last, counts: d.counts, end_reason: d.reason, proxy_version: chain.start.detail.recorder_version,
    receipt_id: receiptId(chain, "session_end", r.seq), session_complete: d.complete, session_id: chain.session, trace_id: chain.session,
    timestamp: chain.end.at };
  for (const [name, value] of Object.entries(want)) says(same(r[name], value), `${name} of the last receipt is not what the chain says`);
  says(same(d.counts, chain.counts), "the counts at the end are not those of the events and receipts");
}

// ---- Surface ----

async function checkSurface(pack) {
  const { report, chain } = pack;
  if (!pack.has(EVENTS)) return;
  await report.run("verify_surface", () => {
    for (const [message, line] of chain?.offer?.wrongs ?? []) report.find("verify_surface", message, { file: EVENTS, line });
    if (!pack.has(SURFACE)) {
      if (chain?.offer) return;
      throw new Skip("no surface was recorded");
    }
    const bytes = pack.documents.get(SURFACE);
    if (!bytes) throw new Skip("it could not be read");
    const s = line(textOf(bytes)), v = integerVersion(s.v, READS.surface), fault = wrong(s, SHAPES[v === 1 ? "surface 1" : "surface"]);
    must(!fault, fault);
    pack.surface = s;
    if (v !== 1) surfaceHolds(s);
    if (v !== 1 && chain?.offer && !pack.events.newer && !pack.events.broken) must(s.root === null || chain.offer.root === s.root, "the root is not the one that was announced last");
  }, { file: SURFACE });
  const bytes = pack.documents.get(APPROVED), decided = pack.decided;
  if (bytes) await report.run("verify_surface", () => {
    const a = line(textOf(bytes));
    integerVersion(a.v, READS.approved);
    const fault = wrong(a, SHAPES.approved);
    must(!fault, fault);
    must(decided, "there are no decisions that it could come to");
    if (decided.newer) return;
    const want = new Map();
    for (const { items, decision, approval_id: id } of decided.all) for (const item of items) {
      const state = { approve: "approved", first_use: "first_use", block: "blocked" }[decision], at = canonical([item.facet, item.name, item.hash]);
      want.delete(at);
      if (state) want.set(at, [state, state === "blocked" ? null : id]);
    }
    for (const item of a.items) {
      const at = canonical([item.facet, item.name, item.hash]);
      must(same(want.get(at) ?? null, [item.state, item.approval_id]), "an item is not what the decisions come to");
      want.delete(at);
      must(item.content === null || item.hash === `sha256:${sha256hex(item.content)}` || item.hash === `sha256-raw:${sha256hex(item.content)}`, "the hash of an item is not that of its content");
    }
    must(!want.size, "an item that was decided about is missing");
    must(!chain?.start || (a.server_id === chain.start.detail.server_id && a.endpoint === chain.start.detail.command_digest), "of another server");
  }, { file: APPROVED });
}

/** Reads the decisions about the server's surface, before the events that name them. */
async function readDecisions(pack) {
  if (!pack.has(EVENTS) || !pack.has(DECISIONS)) return;
  const out = (pack.decided = { all: [], hashes: [sha256hex("")] });
  const text = [];
  Object.assign(out, await eachLine(pack, "verify_surface", DECISIONS, async (d, _text, raw) => {
    integerVersion(d.v, READS.approval);
    const fault = wrong(d, SHAPES.decision);
    says(!fault, fault);
    const { hash: own, signature, ...bare } = d, before = out.all.at(-1);
    says(sha256hex(canonical(bare)) === own, "hash is not that of the decision");
    const key = unbase64(d.signer.public_key), signed = unbase64(signature);
    says(key && signed && sha256hex(key) === d.signer.fingerprint, "the signer's key is not the one of its fingerprint");
    says(await signatureHolds(key, signed, bytesOf(`assay/surface-approval/v1\n${own}`)), "the signature of the decision does not hold");
    says(d.previous === (before?.approval_id ?? null), "it does not name the decision before it");
    says(!before || d.seq > before.seq, "seq does not grow");
    says(d.seq || d.prev_hash === "0".repeat(64), "the first decision of all has another before it");
    says(!before || d.seq !== before.seq + 1 || d.prev_hash === before.hash, "prev_hash is not that of the line before");
    says(!before || d.server_id === before.server_id, "about another server");
    out.all.push(d);
    text.push(raw.slice(), Uint8Array.of(10));
    out.hashes.push(hexOf(sha256(...text)));
  }));
}

const SEVERITIES = ["info", "low", "medium", "high", "critical"];
/** How much the changes matter that have one severity always. */
const KINDS = { text_changed: "high", duplicate_name: "critical", added: "high", removed: "low", endpoint_changed: "high", reordered: "info", explicit_default: "info" };

/** What the server announced, and how each item stands with the decisions in force. */
class Offer {
  decided = new Map();
  about = new Set();
  parts = new Map();
  root = null;
  wrongs = [];

  constructor(decisions) {
    this.decisions = decisions;
  }

  check(e, body) {
    try {
      body();
    } catch (error) {
      if (!(error instanceof Bad)) throw error;
      if (this.wrongs.length < LIMIT.findings) this.wrongs.push([error.message, e.event_seq + 1]);
    }
  }

  decide(d) {
    const all = this.decisions?.all ?? [], hashes = this.decisions?.hashes ?? [sha256hex("")];
    this.force = d;
    says(d.approvals <= all.length && hashes[d.approvals] === d.sha256, "the decisions that it says are in force are not those of the pack");
    says(d.last === (all[d.approvals - 1]?.approval_id ?? null), "it does not name the last of them");
    this.decided.clear();
    this.about = new Set();
    for (const one of all.slice(0, d.approvals)) {
      for (const part of PARTS) if (one.facets[part] !== null) this.about.add(part);
      for (const { facet, name, hash } of one.items) {
        this.about.add(facet);
        const at = canonical([facet, name]);
        if (!this.decided.has(at)) this.decided.set(at, new Map());
        this.decided.get(at).set(hash, one);
      }
    }
  }

  stands(facet, { name, hash }) {
    const all = this.decided.get(canonical([facet, name])), one = all?.get(hash), nobody = { state: "new", approval_id: null };
    if (!this.force || this.force.error !== null) return nobody;
    if (one?.decision === "block") return { state: "blocked", approval_id: null };
    if (one?.decision === "approve") return { state: "approved", approval_id: one.approval_id };
    if (one?.decision === "first_use") return { state: "first_use", approval_id: one.approval_id };
    if ([...(all?.values() ?? [])].some((d) => ["approve", "first_use"].includes(d.decision))) return { state: "changed", approval_id: null };
    if (this.about.has(facet) || this.force.first !== "tofu") return nobody;
    const first = this.parts.get(facet)?.first;
    if (!first || first.get(name) === hash) return { state: "first_use", approval_id: null };
    return first.has(name) ? { state: "changed", approval_id: null } : nobody;
  }

  observe(e) {
    const d = e.detail;
    if (!this.parts.has(d.facet)) this.parts.set(d.facet, { items: new Map() });
    const part = this.parts.get(d.facet);
    for (const item of d.items) {
      const known = part.items.get(item.name);
      says(known?.hash !== item.hash || known.ambiguous !== (item.state === "ambiguous"), "an item was announced like this before");
      const stands = item.state === "ambiguous" ? { state: "ambiguous", approval_id: null } : this.stands(d.facet, item);
      says(item.state === stands.state && item.approval_id === stands.approval_id, "an item does not stand with the decisions as the event says");
      part.items.set(item.name, { hash: item.hash, ambiguous: item.state === "ambiguous" });
    }
    for (const name of d.gone) says(part.items.delete(name), "something is gone that was not there");
    if (d.whole) part.first ??= new Map([...part.items].map(([name, { hash }]) => [name, hash]));
    Object.assign(part, { at: e.mono_us, age: d.age_ms, stale: false });
    this.root = d.root;
  }

  drift(d) {
    says(d.count >= d.changes.length && (d.count === d.changes.length || d.changes.length === 1000), "changes are left out");
    for (const { kind, severity } of d.changes) says(!KINDS[kind] || KINDS[kind] === severity, "a change does not matter as changes of its kind do");
    const worst = Math.max(...d.changes.map((c) => SEVERITIES.indexOf(c.severity)));
    says(d.count > d.changes.length || SEVERITIES[worst] === d.severity, "the severity is not that of the worst change");
    says(!d.count || d.changes_hash !== null, "changes without their hash");
    says(d.root === null || d.root === this.root, "the root is not the one that was announced");
  }

  /** How the definition of a tool stands when it is called. */
  ofCall(e) {
    const none = { surface_age_ms: null, surface_approval_id: null, surface_item_hash: null, surface_root: null, surface_state: null };
    if (!this.force?.pinned.includes("tools")) return none;
    const part = this.parts.get("tools");
    if (!part) return { ...none, surface_state: "not_listed_here" };
    const item = part.items.get(e.detail.tool_name), stands = !item ? { state: "unlisted", approval_id: null }
      : item.ambiguous ? { state: "ambiguous", approval_id: null } : this.stands("tools", { name: e.detail.tool_name, hash: item.hash });
    return { surface_age_ms: part.age + Math.max(0, Math.floor((e.mono_us - part.at) / 1000)), surface_approval_id: stands.approval_id,
      surface_item_hash: item?.hash ?? null, surface_root: this.root, surface_state: stands.state };
  }
}

const PARTS = ["capabilities", "instructions", "prompts", "resource_templates", "resources", "tools"];
const hashOf = (value) => `sha256:${sha256hex(canonical(value))}`;

function surfaceHolds(s) {
  const hashes = {};
  for (const part of ["capabilities", "instructions"]) {
    const entry = s[part];
    hashes[part] = entry && entry.ambiguity === null ? entry.hash : null;
    if (entry) entryHolds(entry, part);
  }
  for (const part of PARTS.slice(2)) {
    const { items, state } = s[part];
    for (const item of items) entryHolds(item, part);
    const pairs = items.map((i) => [i.name, i.hash]);
    const sorted = [...pairs].sort((a, b) => order(a[0], b[0]) || order(a[1], b[1]));
    must(canonical(sorted) === canonical(pairs) && new Set(pairs.map(canonical)).size === pairs.length, `${part}: items are not sorted, or one is there twice`);
    hashes[part] = state === "complete" ? hashOf(pairs) : null;
  }
  for (const part of PARTS) must(s.facets[part] === hashes[part] || s.facets[part] === null, `the hash of ${part} is not that of what is there`);
}

const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

function entryHolds(entry, part) {
  if (entry.content === null) return;
  if (entry.hash.startsWith("sha256-raw:")) must(typeof entry.content === "string" && entry.hash === `sha256-raw:${sha256hex(entry.content)}`, `the hash of an item of ${part} is not that of its content`);
  else must(entry.hash === hashOf(entry.content), `the hash of an item of ${part} is not that of its content`);
}

// ---- Checkpoints ----

const ORIGIN = /^assay\/session\/mcp_[0-9a-f]{16}$/;

async function keyLine(text, session) {
  const l = line(text);
  integerVersion(l.v, READS.checkpoint);
  const fault = wrong(l, SHAPES.key);
  says(!fault, fault);
  const signer = await verifierKey(l.signer);
  must(signer.name.startsWith("assay/signer/"), "a certificate by a key that is not one of a signer");
  const lines = (await openNote(l.note, signer)).split("\n");
  must(lines.length === 5 && lines[0] === "assay/session-key/v1" && lines[4] === "" && ["recorder", "recovery"].includes(lines[3]), "a certificate that says something else");
  must(ORIGIN.test(lines[1]) && (!session || lines[1] === `assay/session/${session}`), "a certificate of another session");
  const key = await verifierKey(lines[2]);
  must(key.name === lines[1], "a session key with another name");
  return { origin: lines[1], key, role: lines[3], signer: sha256hex(signer.key), signerKey: signer.key, signerName: signer.name.slice("assay/signer/".length) };
}

async function checkpointText(note, by) {
  const lines = (await openNote(note, by.key)).split("\n");
  must(lines.length === 4 && lines[3] === "" && lines[0] === by.origin, "a checkpoint that says something else");
  must(/^[1-9]\d{0,15}$/.test(lines[1]) && Number.isSafeInteger(Number(lines[1])), "a checkpoint of no size");
  const root = unbase64(lines[2]);
  must(root?.length === 32, "a checkpoint without a root");
  return { size: Number(lines[1]), root };
}

/** Reads what was stated of the session, before its events are read: so no event is kept. */
async function readCheckpoints(pack) {
  const { report } = pack;
  if (!pack.has(EVENTS)) return;
  if (!pack.has(CHECKPOINTS)) return report.skip("verify_checkpoints", "no checkpoints: recorded before there were any, or without a key");
  let by = null, size = 0, keys = 0, recorder = false, recovery = false;
  const out = (pack.sealed = { certifiers: new Map(), stated: [], byRecorder: 0, origin: null });
  const said = (promise) => promise.catch((error) => { throw error instanceof Bad ? new Said(error.message) : error; });
  Object.assign(out, await eachLine(pack, "verify_checkpoints", CHECKPOINTS, async (l, text) => {
    integerVersion(l.v, READS.checkpoint);
    says(["key", "checkpoint"].includes(l.kind), "a line of an unknown kind");
    if (l.kind === "key") {
      by = null;
      const key = await said(keyLine(text, null));
      out.origin ??= key.origin;
      says(key.origin === out.origin, "a certificate of another session");
      says(++keys <= LIMIT.keys, "more than 1 000 keys");
      says(key.role === "recovery" || (!recorder && !recovery), "a second recorder, or one after a recovery");
      if (key.role === "recorder") recorder = true;
      else recovery = true;
      out.certifiers.set(key.signer, key.signerName);
      by = key;
      return;
    }
    const fault = wrong(l, SHAPES.checkpoint);
    says(!fault, fault);
    says(by, "a checkpoint before any key");
    const stated = await said(checkpointText(l.note, by));
    says(stated.size > size, "a size that does not grow");
    size = stated.size;
    if (by.role === "recorder") out.byRecorder = size;
    out.stated.push(stated);
  }));
}

/** Compares the tree of the events with what was stated, as they come. */
class Stated {
  frontier = new Frontier();
  next = 0;

  constructor(sealed) {
    this.stated = sealed && !sealed.newer ? sealed.stated : [];
  }

  add(hash) {
    if (this.next === this.stated.length) return;
    this.frontier.add(leafHash(unhex(hash)));
    const { size, root } = this.stated[this.next];
    if (size !== this.frontier.size) return;
    if (!equal(this.frontier.root(), root)) this.differs ??= size;
    this.next++;
  }
}

async function checkCheckpoints(pack) {
  const { report, chain, sealed } = pack;
  if (!sealed || sealed.newer) return;
  await report.run("verify_checkpoints", () => {
    if (pack.events.newer || pack.events.torn) throw new Skip("the chain cannot be compared");
    const last = sealed.stated.at(-1)?.size ?? 0;
    must(last, "no checkpoint is there");
    must(sealed.origin === `assay/session/${chain.session}`, "the checkpoints of another session");
    must(!pack.tree.differs, `the root of the first ${pack.tree.differs} events is another`);
    must(last <= chain.seq, `${last} events are stated, and there are ${chain.seq}`);
    must(!chain.end || last === chain.seq, "the last checkpoint does not cover the whole session");
    sealed.holds = !report.stages.get("verify_checkpoints")?.status.startsWith("f");
    if (sealed.byRecorder < last) sealed.recovery = [sealed.byRecorder, last - 1];
  }, { file: CHECKPOINTS });
}

// ---- The session as a whole ----

async function checkSession(pack) {
  const { report, chain, receipts } = pack;
  if (!pack.has(EVENTS)) return;
  if (!pack.has(SESSION)) return report.find("session_completeness", "the pack has events and no session.json", { file: SESSION });
  const bytes = pack.documents.get(SESSION);
  if (!bytes) return;
  await report.run("session_completeness", () => {
    const text = textOf(bytes);
    must(text.endsWith("\n"), "no line feed at its end");
    const s = line(text.slice(0, -1)), v = integerVersion(s.v, READS.session);
    const fault = wrong(s, SHAPES.session);
    must(!fault, fault);
    must(Object.hasOwn(s, "http") === (v === 2 || v === 3), "http is there for sessions over HTTP, and for no other");
    must(!s.http || Object.hasOwn(s.http, "key_lasts") === (v === 3), "key_lasts is there in version 3, and in no other");
    must((v === 4) === Object.hasOwn(s, "coverage") && (v === 4) === Object.hasOwn(s, "recorder"), "coverage and recorder are those of version 4");
    pack.session = s;
    if (!chain || pack.events.newer || pack.events.broken || !chain.start) throw new Skip("the chain cannot be compared");
    const d = chain.start.detail, end = chain.end?.detail;
    const want = { chain_first: chain.first, chain_last: chain.last, command: d.command, command_digest: d.command_digest, continues: d.continues,
      event_count: chain.seq, ledger_hash: chain.start.prev_hash, policy_hash: d.policy_hash ?? null, profile: d.profile, server_id: d.server_id,
      session_id: chain.session, started_at: chain.start.at, transport: chain.transport, recorder_version: d.recorder_version };
    if (end) Object.assign(want, { counts: end.counts, end_reason: end.reason, session_complete: end.complete, ended_at: chain.end.at, ended_mono_us: chain.end.mono_us });
    else Object.assign(want, { session_complete: false });
    if (receipts && !receipts.newer) want.receipt_count = receipts.count;
    for (const name of ["client_info", "server_info", "protocol_version"]) {
      must(pack.opening?.[name] == null || s[name] !== null, `${name} is not there, and was when the session began`);
      if (pack.surface && name !== "client_info") want[name] = pack.surface[name];
    }
    must(!s.http || s.http.exchanges === chain.exchanges.size, "http.exchanges is not how many the events name");
    must(!s.http || s.http.endpoint.digest === d.command_digest, "http.endpoint is not that of the chain");
    must(same(s.clock_steps.map((step) => step.at), chain.steps), "clock_steps are not those of the events");
    want.surface_hash = pack.has(SURFACE) ? sha256hex(pack.documents.get(SURFACE)) : null;
    for (const [name, value] of Object.entries(want)) must(same(s[name], value), `${name} is not what the chain says`);
    for (const hash of chain.policies) must([...pack.documents].some(([name, b]) => name.startsWith("policy") && `sha256:${sha256hex(b)}` === hash), `the policy ${hash} is not in the pack`);
  }, { file: SESSION });
}

async function checkReport(pack) {
  const { report, manifest, receipts, session, chain } = pack, bytes = pack.documents.get(REPORT);
  if (!bytes || !pack.has(EVENTS)) return;
  await report.run("validate_file_hashes", () => {
    const text = textOf(bytes), r = parse(text);
    textVersion(r.schema_version, ["assay.verify_report.v0.1"], 2, "assay.verify_report.v");
    const fault = wrong(r, SHAPES.report);
    must(!fault, fault);
    if (report.newer) return;
    const a = manifest.attestation;
    const want = { pack_id: manifest.pack_id, run_id: a.run_id, pack_root_sha256: manifest.pack_root_sha256, verification_inputs_sha256: manifest.pack_root_sha256,
      warnings: session?.recovery_notes ?? r.warnings, integrity_verdict: a.receipt_integrity, passed: true, claim_verdict: "NOT_EVALUATED", replay_verdict: "NOT_RUN", trust_verdict: "NOT_EVALUATED",
      overall_verdict: "PASS", blocking_channel: null, head_hash: a.head_hash, receipt_count: a.n_receipts, errors: [], error_count: 0 };
    if (session) Object.assign(want, { session_complete: session.session_complete, end_reason: session.end_reason });
    for (const [name, value] of Object.entries(want)) must(same(r[name], value), `${name} is not what the pack says`);
    for (const [name, value] of [["policy_sha256", a.policy_hash], ["claim_set_id", a.claim_set_id], ["claim_set_hash", a.claim_set_hash]]) must(r.expectations[name] === value, `expectations.${name} is not what the pack attests`);
    must(!chain?.start || r.verifier.version === chain.start.detail.recorder_version || session?.end_reason === "crashed", "verifier.version is not that of the recorder");
    const refs = [MANIFEST, ...manifest.files.map((f) => f.path).filter((path) => ![REPORT, TRANSCRIPT].includes(path))];
    must(same(r.evidence_refs.map((ref) => ref.path), refs), "evidence_refs are not the files of the pack");
    for (const ref of r.evidence_refs) {
      const listed = manifest.files.find((f) => f.path === ref.path);
      must(ref.path === MANIFEST ? ref.sha256 === null : listed && listed.sha256 === ref.sha256, "evidence_refs has another hash than the manifest");
    }
  }, { file: REPORT });
}

// ---- What it comes to ----

function conclude(pack, signers, strict) {
  const { report, manifest, chain, session } = pack;
  const integrity = report.tampered ? "TAMPERED" : report.newer ? "UNSUPPORTED" : "PASS";
  let completeness = "NOT_EVALUATED";
  const reasons = [];
  if (chain?.start && integrity === "PASS") {
    if (!chain.end) completeness = "UNTERMINATED";
    else {
      if (!session?.session_complete) reasons.push("the session says that something is missing");
      // The recorder itself stated the whole chain: only the pack was missing.
      const late = pack.sealed?.byRecorder === chain.seq && `the chain had ended (${session?.end_reason}); its pack was finished later`;
      reasons.push(...(session?.recovery_notes ?? []).filter((note) => note !== late));
      if (pack.sealed?.recovery) reasons.push(`events ${pack.sealed.recovery.join("…")} were sealed by recovery`);
      completeness = reasons.length ? "INCOMPLETE" : "COMPLETE";
    }
  }
  const fingerprint = pack.fingerprint ?? null, named = signers.map((s) => s.toLowerCase());
  const by = [fingerprint, ...(pack.sealed?.holds ? pack.sealed.certifiers.keys() : [])];
  const signer = !fingerprint || !named.length ? "UNPINNED" : by.every((f) => named.includes(f)) && pack.signed ? "PINNED" : "UNTRUSTED";
  if (!named.length) for (const f of by.slice(1)) if (f !== fingerprint) report.warnings.push(`${f} certified a key of the session, and another key signed the pack`);
  const unmet = [];
  if (integrity === "PASS") {
    if (strict && signer === "UNPINNED") unmet.push("the signer is not pinned");
    if (strict && pack.extra?.length) unmet.push("the pack has files that the manifest does not list");
    if (completeness === "INCOMPLETE" || completeness === "UNTERMINATED") unmet.push(`the session is ${completeness}`);
  }
  const exit = integrity === "TAMPERED" || signer === "UNTRUSTED" ? 2 : integrity === "UNSUPPORTED" ? 3 : unmet.length ? 1 : 0;
  return { schema: "assay.second_verifier.v1", pack_id: manifest?.pack_id ?? null, run_id: manifest?.attestation.run_id ?? null,
    pack_manifest_sha256: pack.manifestSha256 ?? null, integrity_verdict: integrity, completeness_verdict: completeness, completeness_reasons: reasons,
    claim_verdict: "NOT_EVALUATED", signer_verdict: signer, signer: { fingerprint, signer_id: manifest?.signer_id ?? null }, unmet, exit_code: exit,
    stages: STAGES.map((stage) => ({ stage, ...(report.stages.get(stage) ?? { status: stage === "signer_trust" ? "ok" : "skipped" }) })),
    errors: report.findings, errors_omitted: report.omitted, warnings: report.warnings,
    receipt_count: pack.receipts?.count ?? 0, event_count: chain?.seq ?? 0, checkpoint_count: pack.sealed?.stated.length ?? 0, session: session ?? null };
}

// ---- Proofs of single events (C2SP tlog-proof) ----

/** The parts of a tlog-proof. */
function proofParts(text) {
  const split = text.indexOf("\n\n");
  must(split >= 0, "no empty line before the checkpoint");
  const [magic, extra, index, ...path] = text.slice(0, split).split("\n");
  must(magic === "c2sp.org/tlog-proof@v1", "not a proof of version 1");
  must(extra?.startsWith("extra ") && /^index (?:0|[1-9]\d{0,15})$/.test(index ?? ""), "extra data or index are missing");
  must(path.length <= LIMIT.path, "more than 63 hashes");
  const hashes = path.map((hash) => unbase64(hash)), raw = unbase64(extra.slice(6));
  must(hashes.every((hash) => hash?.length === 32), "a hash that is none");
  must(raw, "the extra data is not in base64");
  return { place: Number(index.slice(6)), hashes, raw, note: text.slice(split + 2) };
}

/** The line of the ledger about the end of a session: it has this root and this key, and stands in a tree that the long-term key signed. */
async function inLedger(text, session, by, stated) {
  const { place, hashes, raw, note } = proofParts(text), written = textOf(raw), l = line(written);
  integerVersion(l.v, READS.ledger);
  const fault = wrong(l, SHAPES.ledger_end);
  must(!fault, `the ledger's line: ${fault}`);
  must(raw.length <= LIMIT.ledger && l.v === 4 && l.ledger_seq === place, "the ledger's line is not what its kind or its number says");
  must(sha256hex(written.replace(`"hash":"${l.hash}",`, "")) === l.hash, "the hash of the ledger's line is not its own");
  must(l.session_id === session && l.event_count === stated.size && l.tree_root === hexOf(stated.root) && l.session_key === sha256hex(by.key.key),
    "the ledger's line does not say that the session ended with this root and this key");
  const origin = note.slice(0, note.indexOf("\n"));
  must(/^assay\/ledger\/[0-9a-f]{32}$/.test(origin) || (/^[!-*,-~]{1,200}$/.test(origin) && !/^(?:assay\/|\{|DSSE)/.test(origin)), "the note about the ledger has a name that no log has");
  const log = await checkpointText(note, { origin, key: named(origin, by.signerKey) });
  const root = rootOfProof(place, log.size, leafHash(unhex(l.hash)), hashes);
  must(root && equal(root, log.root), "the ledger's line does not stand in the tree that was signed");
  return { origin, ledger_seq: place, lines: log.size, at: l.at };
}

/** Verifies a `.tlog-proof`. */
export async function verifyProof(bytes, { signers = [] } = {}) {
  const out = { schema: "assay.proof.v1", exit_code: 2, verdict: "REFUSED", reason: null };
  try {
    must(bytes.length <= LIMIT.proof, "longer than 4 MiB");
    const { place, hashes, raw, note } = proofParts(textOf(bytes));
    const x = line(textOf(raw));
    integerVersion(x.v, READS.proof);
    const fault = wrong(x, SHAPES.extra);
    must(!fault, fault);
    must(x.reveal.length === 0, "reveal is not empty");
    must(x.v === (x.ledger === null ? 1 : 2), "the extra data is not what its version has");
    const e = line(x.event);
    integerVersion(e.v, READS.event);
    must(!wrong(e, SHAPES.event), `the event: ${wrong(e, SHAPES.event)}`);
    must(sha256hex(x.event.replace(`"hash":"${e.hash}",`, "")) === e.hash, "the hash of the event is not its own");
    must(e.event_seq === place, "the event is another than the proven one");
    const by = await keyLine(x.key, e.session_id), stated = await checkpointText(note, by);
    const root = rootOfProof(place, stated.size, leafHash(unhex(e.hash)), hashes);
    must(root && equal(root, stated.root), "the path does not lead to the root of the checkpoint");
    if (x.receipt !== null) {
      must(sha256hex(x.receipt) === e.detail.receipt_sha256, "the event does not bind this receipt");
      const r = line(x.receipt);
      must(r.receipt_id === e.detail.receipt_id, "the event does not bind this receipt");
      out.receipt = r;
    } else out.receipt = null;
    const ledger = x.ledger === null ? null : await inLedger(x.ledger, e.session_id, by, stated);
    const signer = !signers.length ? "UNPINNED" : signers.includes(by.signer) ? "PINNED" : "UNTRUSTED";
    Object.assign(out, { verdict: "PROVEN", session_id: e.session_id, event_seq: place, event: e, events: stated.size, stated_by: by.role,
      ledger, receipt_id: e.detail.receipt_id ?? null, signer: by.signer, signer_id: by.signerName, signer_verdict: signer, exit_code: signer === "UNTRUSTED" ? 2 : 0 });
  } catch (error) {
    if (error instanceof Newer) Object.assign(out, { verdict: "UNSUPPORTED", exit_code: 3 });
    else if (!(error instanceof Bad)) throw error;
    out.reason = error.message;
  }
  return out;
}

// ---- node ----

async function directory(path) {
  const fs = await import("node:fs"), { join } = await import("node:path");
  const entries = fs.readdirSync(path, { withFileTypes: true }).map((entry) => {
    const stat = fs.lstatSync(join(path, entry.name));
    return { name: entry.name, file: stat.isFile() && stat.nlink === 1, link: stat.isSymbolicLink(), size: stat.size };
  });
  return {
    entries: () => entries,
    size: (name) => entries.find((e) => e.name === name)?.size ?? null,
    async *chunks(name) {
      const fd = fs.openSync(join(path, name), fs.constants.O_RDONLY | fs.constants.O_NOFOLLOW | fs.constants.O_NONBLOCK);
      try {
        const stat = fs.fstatSync(fd);
        if (!stat.isFile()) throw new Bad("not a plain file");
        for (let buffer = Buffer.alloc(Math.min(MIB, stat.size + 1)); ; ) {
          const read = fs.readSync(fd, buffer);
          if (!read) return;
          yield new Uint8Array(buffer.buffer, buffer.byteOffset, read);
          buffer = Buffer.alloc(buffer.length);
        }
      } finally {
        fs.closeSync(fd);
      }
    },
  };
}

async function verifyPath(path, options) {
  const fs = await import("node:fs");
  if (fs.statSync(path).isDirectory()) return verifyPack(await directory(path), options);
  if (path.endsWith(".tlog-proof")) {
    if (fs.statSync(path).size > LIMIT.proof) throw new NotAPack("longer than 4 MiB");
    return verifyProof(new Uint8Array(fs.readFileSync(path)), options);
  }
  return verifyPack(blobs(await archive(await fs.openAsBlob(path))), options);
}

const USAGE = `usage: node verify.mjs [--signer FINGERPRINT]... [--strict] [--json] PACK...
PACK is the directory of a proof pack, a .zip or .tar of one, or a .tlog-proof.
Exit codes: 0 holds; 1 authentic, but a demand is not met; 2 TAMPERED, UNTRUSTED or refused; 3 UNSUPPORTED or not a pack.`;

async function main(words) {
  const { createHash } = await import("node:crypto");
  hasher = () => createHash("sha256");
  const signers = [], paths = [];
  let strict = false, json = false, batch = false;
  for (let n = 0; n < words.length; n++) {
    if (words[n] === "--signer") signers.push(words[++n] ?? "");
    else if (words[n] === "--strict") strict = true;
    else if (words[n] === "--json") json = true;
    else if (words[n] === "--batch") batch = true;
    else if (words[n].startsWith("-")) paths.length = 0, n = words.length, (batch = null);
    else paths.push(words[n]);
  }
  if (batch) return answer();
  if (batch === null || !paths.length || signers.some((s) => !/^[0-9a-fA-F]{64}$/.test(s))) {
    console.error(USAGE);
    return 3;
  }
  let worst = 0;
  for (const path of paths) {
    const result = await verifyOne(path, { signers, strict });
    console.log(json ? JSON.stringify(result) : said(path, result));
    worst = Math.max(worst, result.exit_code);
  }
  return worst;
}

async function verifyOne(path, options) {
  try {
    return await verifyPath(path, options);
  } catch (error) {
    if (error instanceof NotAPack || error instanceof Bad || typeof error.code === "string") return { exit_code: 3, not_a_pack: error.message };
    throw error;
  }
}

/** Answers one line of JSON, `{"path":…,"signers":[…]}`, with another, until there are no more. */
async function answer() {
  const { createInterface } = await import("node:readline");
  for await (const asked of createInterface({ input: process.stdin })) {
    const { path, ...options } = JSON.parse(asked);
    process.stdout.write(`${JSON.stringify(await verifyOne(path, options))}\n`);
  }
  return 0;
}

/** A result for people, on a terminal. */
function said(path, r) {
  if (r.not_a_pack) return `${show(path)}\n  not a pack: ${show(r.not_a_pack)}`;
  if (r.schema === "assay.proof.v1") return `${show(path)}\n  ${r.verdict}${r.reason ? `: ${show(r.reason)}` : ` event ${r.event_seq} of ${r.events} of ${r.session_id}, ${r.signer_verdict} ${r.signer}`}`;
  const lines = [show(path), `  integrity     ${r.integrity_verdict}`, `  completeness  ${r.completeness_verdict}`,
    `  signer        ${r.signer_verdict} ${r.signer.fingerprint ?? ""} (calls itself ${show(r.signer.signer_id ?? "nothing")})`];
  for (const e of r.errors) lines.push(`  ! ${e.stage}: ${e.file ? `${show(e.file)}${e.line ? `:${e.line}` : ""}: ` : ""}${show(e.message)}`);
  for (const w of [...r.completeness_reasons, ...r.unmet, ...r.warnings]) lines.push(`  - ${show(w)}`);
  return lines.join("\n");
}

if (typeof process === "object" && process.versions?.node) {
  const { pathToFileURL } = await import("node:url");
  if (process.argv[1] && import.meta.url === pathToFileURL((await import("node:fs")).realpathSync(process.argv[1])).href) {
    process.exitCode = await main(process.argv.slice(2)).catch((error) => {
      console.error(error);
      return 3;
    });
  }
}

// ---- The page ----

const PROVES = {
  PASS: "These are the bytes that were signed, and they agree with each other.",
  TAMPERED: "Something was changed, is missing, or contradicts itself. Do not rely on this pack.",
  UNSUPPORTED: "A later version wrote part of this. Nothing is wrong with what could be checked, but that is not a pass: use a later verifier.",
  COMPLETE: "The session was recorded from its start to its end, and every tool call that crossed has a receipt.",
  INCOMPLETE: "The session ended, and the pack itself says that something is missing.",
  UNTERMINATED: "The recording stops without an end.",
  NOT_EVALUATED: "This pack cannot tell, or could not be judged.",
  PINNED: "Signed by a key that you named.",
  UNPINNED: "Signed by the key that is in the pack. Anyone can have made it: compare the fingerprint with one that reached you another way.",
  UNTRUSTED: "Not signed by any of the keys that you named.",
  PROVEN: "This event is in the session at this place, and what it says is what was signed.",
  REFUSED: "This proves nothing.",
};
const GOOD = ["PASS", "COMPLETE", "PINNED", "PROVEN"], BAD = ["TAMPERED", "UNTRUSTED", "REFUSED"];
const CHECKS = {
  validate_schema: "The manifest has the form of its version",
  validate_paths: "It names plain files, each once",
  validate_file_hashes: "Every file has the bytes that are listed",
  validate_receipts: "Every receipt has its form, its number and its hashes",
  validate_attestation: "The attestation says what the receipts say",
  verify_signature: "The signature holds",
  check_d12_invariant: "The root of the pack is its attestation",
  verify_chain: "Each event is bound to the one before it",
  match_receipts_to_chain: "Receipts and events say the same of every call",
  verify_surface: "What the server offered has its hashes",
  verify_checkpoints: "What the recorder stated meanwhile agrees",
  session_completeness: "The description of the session agrees with it",
  signer_trust: "Who signed",
};
const NOT_PROVEN = ["that the machine that recorded was honest: whoever has the key and the machine can record a session that never took place",
  "who holds the key: the name is what the signer calls itself",
  "the time: it is the clock of that machine",
  "what did not cross the recorder, and that there is no other session",
  "that the server did what it answered"];

function element(tag, of = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(of)) node.setAttribute(name, value);
  for (const child of children) if (child !== null) node.append(child);
  return node;
}

const mark = (word) => (GOOD.includes(word) ? "good" : BAD.includes(word) ? "bad" : "open");

function channel(name, word, more, says = PROVES[word] ?? "") {
  return element("section", { class: `channel ${mark(word)}` }, element("h3", {}, name), element("strong", {}, word),
    element("p", {}, says), more ? element("p", { class: "mono" }, more) : null);
}

function facts(rows) {
  const list = element("dl", {});
  for (const [name, value] of rows) if (value !== null && value !== undefined) list.append(element("dt", {}, name), element("dd", {}, show(String(value), 400)));
  return list;
}

function bullets(items) {
  return element("ul", {}, ...items.map((item) => element("li", {}, item)));
}

function packPage(r) {
  const out = [element("div", { class: "channels" }, channel("Integrity", r.integrity_verdict), channel("Completeness", r.completeness_verdict, r.completeness_reasons.map((t) => show(t)).join("; ")),
    channel("Claims", r.claim_verdict, null, "This page evaluates no claim cards; assay verify-pack does."), channel("Signer", r.signer_verdict, r.signer.fingerprint))];
  if (r.errors.length) {
    const items = r.errors.map((e) => `${e.file ? `${show(e.file)}${e.line ? `, line ${e.line}` : ""}: ` : ""}${show(e.message)}`);
    out.push(element("section", {}, element("h2", {}, "What is wrong"), bullets(items), r.errors_omitted ? element("p", {}, `and ${r.errors_omitted} more`) : null));
  }
  if (r.unmet.length + r.warnings.length) out.push(element("section", {}, element("h2", {}, "Worth knowing"), bullets([...r.unmet, ...r.warnings].map((t) => show(t)))));
  const s = r.session;
  out.push(element("section", {}, element("h2", {}, "What it says of the session"), facts([["Session", r.run_id], ["Pack", r.pack_id],
    ["Server", s?.server_id], ["Server's name", s?.server_info?.name], ["Client's name", s?.client_info?.name], ["Began", s?.started_at], ["Ended", s?.ended_at], ["Why it ended", s?.end_reason],
    ["Transport", s?.transport], ["Profile", s?.profile], ["Tool calls", s?.counts.calls], ["of these denied", s?.counts.denied], ["of these errors", s?.counts.errors],
    ["of these without an answer", s?.counts.timeouts], ["Receipts", r.receipt_count], ["Events", r.event_count], ["Checkpoints", r.checkpoint_count],
    ["Signer calls itself", r.signer.signer_id], ["SHA-256 of the manifest", r.pack_manifest_sha256]])));
  const rows = r.stages.map((stage) => element("li", { class: stage.status }, element("span", { class: "status" }, { ok: "holds", fail: "fails", skipped: "skipped", unsupported: "too new" }[stage.status] ?? stage.status),
    element("span", {}, CHECKS[stage.stage], stage.reason ? element("small", {}, ` ${show(stage.reason)}`) : "")));
  out.push(element("section", {}, element("h2", {}, "What was checked"), element("ol", { class: "stages" }, ...rows)));
  out.push(element("section", {}, element("h2", {}, "What no verifier can show"), bullets(NOT_PROVEN)));
  return out;
}

function proofPage(r) {
  const rows = [["Session", r.session_id], ["Event", r.verdict === "PROVEN" ? `${r.event_seq} of ${r.events}` : null], ["What", r.event?.event], ["When", r.event?.at], ["Tool", r.receipt?.tool_name], ["Outcome", r.receipt?.outcome],
    ["Stated by", r.stated_by], ["Receipt", r.receipt_id], ["Signer", r.signer], ["Signer calls itself", r.signer_id]];
  return [element("div", { class: "channels" }, channel("Proof", r.verdict, r.reason && show(r.reason)), ...(r.signer_verdict ? [channel("Signer", r.signer_verdict, r.signer)] : [])),
    element("section", {}, element("h2", {}, "What it shows"), facts(rows), element("p", {}, "It says nothing of other events of that session."),
      r.receipt ? element("details", {}, element("summary", {}, "The receipt"), element("pre", {}, show(JSON.stringify(r.receipt), 100_000))) : null)];
}

/** Files of what was dropped, with their paths. */
async function dropped(items) {
  const out = [], entries = [...items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const walk = async (entry, path) => {
    if (out.length > 4 * LIMIT.files) throw new NotAPack("too many files");
    if (entry.isFile) out.push({ name: path + entry.name, blob: await new Promise((ok, no) => entry.file(ok, no)) });
    else {
      const reader = entry.createReader();
      for (let some; (some = await new Promise((ok, no) => reader.readEntries(ok, no))).length; ) for (const e of some) await walk(e, `${path}${entry.name}/`);
    }
  };
  for (const entry of entries) await walk(entry, "");
  return out;
}

function page() {
  const at = (id) => document.getElementById(id), result = at("result");
  let busy = false;
  const say = (...nodes) => result.replaceChildren(...nodes);
  const verify = async (files) => {
    if (busy || !files.length) return;
    busy = true;
    document.body.dataset.state = "busy";
    try {
      const words = at("signers").value.toLowerCase().split(/[\s,]+/).filter(Boolean);
      if (words.some((w) => !/^[0-9a-f]{64}$/.test(w))) throw new NotAPack("a fingerprint has 64 hexadecimal digits");
      let told = 0;
      const progress = (bytes) => {
        if (performance.now() - told < 200) return;
        told = performance.now();
        at("progress").textContent = `${(bytes / MIB).toFixed(1)} MiB read`;
      };
      say(element("p", { id: "progress" }, "Reading…"));
      const options = { signers: words, progress }, [one] = files;
      const proof = files.length === 1 && one.name.endsWith(".tlog-proof");
      const r = proof ? await verifyProof(new Uint8Array(await one.blob.slice(0, LIMIT.proof + 1).arrayBuffer()), options)
        : await verifyPack(blobs(files.length === 1 ? await archive(one.blob) : files), options);
      const text = JSON.stringify(r, null, 2);
      say(...(proof ? proofPage(r) : packPage(r)), element("details", {}, element("summary", {}, "The same as JSON"), element("pre", { id: "json" }, show(text.replace(/\n/g, "\u0001"), 1e7).replaceAll("\\u{1}", "\n"))));
      document.body.dataset.verdict = r.integrity_verdict ?? r.verdict;
    } catch (error) {
      if (!(error instanceof NotAPack || error instanceof Bad)) console.error(error);
      say(element("div", { class: "channels" }, element("section", { class: "channel bad" }, element("h3", {}, "This could not be read"), element("p", {}, show(String(error.message))))));
      document.body.dataset.verdict = "NOT_A_PACK";
    }
    busy = false;
    document.body.dataset.state = "done";
  };
  for (const id of ["folder", "archive"]) {
    at(id).addEventListener("change", () => {
      verify([...at(id).files].map((blob) => ({ name: blob.webkitRelativePath || blob.name, blob })));
      at(id).value = "";
    });
  }
  const zone = at("drop");
  for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      zone.classList.toggle("over", kind === "dragenter" || kind === "dragover");
    });
  }
  document.addEventListener("drop", (event) => {
    dropped(event.dataTransfer.items).then(verify, (error) => { say(element("p", {}, show(String(error.message)))); });
  });
  document.body.dataset.state = "ready";
}

if (typeof document === "object") page();
