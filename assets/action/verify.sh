#!/usr/bin/env bash
# Each pack is signed by a key that was named, and has nothing that its manifest does not list.
set -euo pipefail

signers=()
for signer in ${SIGNER//,/ }; do
    signers+=(--signer "$signer")
done
exec assay verify-pack --strict "${signers[@]}" --junit assay-evidence/signer.xml --sarif assay-evidence/signer.sarif \
    assay-evidence/proof_pack_*
