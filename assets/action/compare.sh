#!/usr/bin/env bash
# The pack is no worse than the baseline, and keeps to the gates.
set -euo pipefail

packs=(assay-evidence/proof_pack_*)
if [ "${#packs[@]}" -ne 1 ]; then
    echo "::error::one pack is compared with the baseline, and the run recorded ${#packs[@]}"
    exit 3
fi
options=()
[ -z "$GATES" ] || options+=(--gates "$GATES")
for signer in ${SIGNER//,/ }; do
    options+=(--signer "$signer")
done
exec assay diff "${options[@]}" --report assay-evidence/gate_report.html --junit assay-evidence/diff.xml \
    --sarif assay-evidence/diff.sarif "$BASELINE" "${packs[0]}"
