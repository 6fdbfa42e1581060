#!/usr/bin/env bash
# Runs the command, and verifies each pack that is new.
set -euo pipefail

command -v assay >/dev/null || {
    echo '::error::assay is not on the PATH: in a checkout of its repository, cargo install --locked --path .'
    exit 3
}
cards=()
for card in ${CARDS//,/ }; do
    cards+=(--card "$card")
done
mkdir assay-evidence
exec assay run "${cards[@]}" --out assay-evidence --junit assay-evidence/run.xml --sarif assay-evidence/run.sarif -- bash -c "$RUN"
