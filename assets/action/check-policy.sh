#!/usr/bin/env bash
# The policy is valid: nothing is run with one that is not.
set -euo pipefail

exec assay policy check "$POLICY"
