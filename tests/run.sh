#!/usr/bin/env bash
# Runs every test of the project: the crate's own, then those with real MCP servers and clients (`interop`).
#
# usage: tests/run.sh [--install-only]
#
# The servers, the SDKs and assay-ai go into target/interop, once; later runs find them there. Needed on the machine:
# cargo, git, python3 (3.10 or later) with venv, node (20 or later) with npm. The conformance suite needs a later node (22),
# which is installed for it on x86-64; elsewhere yours must be that late.
set -euo pipefail
cd "$(dirname "$0")/.."

here=tests/interop
there=target/interop
mcp_sdist=mcp-2.3.0

fail() {
    printf 'tests/run.sh: %s\n' "$*" >&2
    exit 1
}

# Installs Debian packages, if this is such a machine and we may; otherwise says what is missing.
system_packages() {
    local as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo -n)
    command -v apt-get >/dev/null || fail "please install: $*"
    "${as_root[@]}" apt-get update -qq && "${as_root[@]}" apt-get install -qq -y "$@" >/dev/null || fail "please install: $*"
}

needs() {
    command -v git >/dev/null || system_packages git
    command -v python3 >/dev/null || system_packages python3
    python3 -c 'import venv, ensurepip' 2>/dev/null || system_packages python3-venv
    command -v node >/dev/null || system_packages nodejs
    command -v npm >/dev/null || system_packages npm
    command -v ssh-agent >/dev/null || system_packages openssh-client
    # Crash tests inject faults with it where it is there; they do without where it is not.
    command -v strace >/dev/null || (system_packages strace) || true
}

# The installation is complete when its mark holds the digest of everything that decides what is in it.
digest() {
    cat tests/run.sh "$here/requirements.txt" "$here/constraints.txt" "$here/package.json" "$here/clients.json" | git hash-object --stdin
}

install() {
    rm -rf "$there"
    mkdir -p "$there"
    python3 -m venv "$there/venv"
    local pip=("$there/venv/bin/python" -m pip --quiet --disable-pip-version-check)
    "${pip[@]}" install -r "$here/requirements.txt" -c "$here/constraints.txt"
    # The SDK's own tests and examples are only in its source distribution.
    "${pip[@]}" download --no-deps --no-binary :all: --dest "$there" mcp=="${mcp_sdist#mcp-}"
    tar -xzf "$there/$mcp_sdist.tar.gz" -C "$there"
    mv "$there/$mcp_sdist" "$there/mcp-sdist"
    # The stories' servers import `stories`, in processes whose environment the SDK has filtered.
    "$there/venv/bin/python" - "$PWD/$there/mcp-sdist/examples" <<'PYTHON'
import pathlib, sys, sysconfig
pathlib.Path(sysconfig.get_path("purelib"), "stories.pth").write_text(sys.argv[1] + "\n")
PYTHON
    cp "$here/package.json" "$there/"
    npm install --prefix "$there" --silent --no-audit --no-fund --no-package-lock --ignore-scripts
    # Earlier versions of one server, for what an upgrade changes.
    old_server 2025.11.25
    old_server 2026.6.16
    old_server 2026.8.18
    # Their binaries are in packages of their own, so no script of theirs is needed.
    mkdir "$there/clients"
    cp "$here/clients.json" "$there/clients/package.json"
    npm install --prefix "$there/clients" --silent --no-audit --no-fund --no-package-lock --ignore-scripts
    digest >"$there/complete"
}

# old_server VERSION: mcp-server-git of that version in a place of its own, with the SDK that it was made for.
old_server() {
    python3 -m venv "$there/old/$1"
    "$there/old/$1/bin/python" -m pip --quiet --disable-pip-version-check install "mcp-server-git==$1" 'mcp<2'
}

needs
installing=
if [ "$(cat "$there/complete" 2>/dev/null)" != "$(digest)" ]; then
    printf 'tests/run.sh: installing into %s\n' "$there" >&2
    install &
    installing=$!
fi
installed() { [ -z "$installing" ] || wait "$installing"; }
if [ "${1-}" = --install-only ]; then
    installed
    exit
fi

features=assay/interop
if [ -d "${ASSAY_VECTORS:-../shared/vectors}" ] || [ -n "${CI-}" ]; then
    features+=,assay/vectors
else
    printf 'tests/run.sh: without the contract vectors of assay: name their folder in ASSAY_VECTORS\n' >&2
fi
command -v "${ASSAY_GO:-go}" >/dev/null ||
    printf 'tests/run.sh: without Go: how it reads URLs is not compared (install it, or name it in ASSAY_GO)\n' >&2
# Another build, of everything below: for whoever changes how JSON is read or written.
[ "${ASSAY_JSON-}" != all ] || cargo test -p assay-receipted --features arbitrary_precision,preserve_order
# What the tests verify, the second verifier verifies too, and both must agree.
export ASSAY_SECOND=1
# All packages at once, so that nothing is built twice; the interop tests start programs of the others.
tests=(--workspace --no-fail-fast --features "$features")
cargo test "${tests[@]}" --no-run
installed
cargo test "${tests[@]}"
