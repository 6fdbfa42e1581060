"""What assay-ai itself does with packs.

usage: assay_ai.py verify PACK...    verifies each with assay-ai's library; exit 1 if it refuses one
       assay_ai.py build DIR         builds a signed pack of two model calls and an MCP tool call in DIR
"""

import json
import sys
import tempfile
from pathlib import Path

from assay.keystore import AssayKeyStore
from assay.proof_pack import ProofPack, verify_proof_pack


def verify(packs):
    refused = False
    with tempfile.TemporaryDirectory() as keys:  # a verifier that has never seen the signer
        for pack in map(Path, packs):
            manifest = json.loads((pack / "pack_manifest.json").read_text())
            result = verify_proof_pack(manifest, pack, AssayKeyStore(Path(keys)))
            if not result.passed:
                refused = True
                print(pack, json.dumps(result.to_dict(), indent=1))
    return int(refused)


def build(target):
    at = "2026-03-15T11:30:00+00:00"
    common = {"schema_version": "3.0", "timestamp": at}
    entries = [
        {
            "type": "model_call", "receipt_id": f"mcr_{number:016x}", "seq": number, "provider": "openai",
            "model_id": "gpt-é", "input_tokens": 10 + number, "output_tokens": 5, "total_tokens": 15 + number,
            "latency_ms": 12.5, "finish_reason": "stop", "input_hash": "ab" * 32, "output_hash": "cd" * 32, **common,
        }
        for number in range(2)
    ]  # fmt: skip
    entries.append(
        {
            "type": "mcp_tool_call", "receipt_id": "mtc_" + "0" * 16, "seq": 2, "invocation_id": "inv_" + "0" * 16,
            "session_id": "mcp_x", "server_id": "s", "tool_name": "echo", "arguments_hash": "sha256:" + "ef" * 32,
            "result_hash": "sha256:" + "01" * 32, "outcome": "forwarded", "policy_verdict": "no_policy", **common,
        }
    )  # fmt: skip
    pack = ProofPack("trace_interop", entries, mode="shadow")
    pack.build(Path(target) / "pack", AssayKeyStore(Path(target) / "keys"))
    return verify([Path(target) / "pack"])


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    sys.exit(verify(rest) if command == "verify" else build(*rest))
