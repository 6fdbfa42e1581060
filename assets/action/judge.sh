#!/usr/bin/env bash
# The policy would not deny a call that went through.
set -euo pipefail

exec assay policy dry-run "$POLICY" --against assay-evidence/proof_pack_*
