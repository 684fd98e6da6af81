#!/bin/bash
# Prepares `make demo`: installs missing packages, builds bin/wisbox, and makes the base of its image, side by side.
# Each line says what works and since when; a part that is quick says nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p .cache
say() { printf '[%3d s] %s\n' "$SECONDS" "$*"; }

packages() {
    say "packages: checking"
    scripts/setup.sh 2>&1 | while IFS= read -r line; do say "packages: ${line#setup: }"; done
}

# The Go command names each package that it compiles.
compiler() {
    local all n=0 said=$SECONDS
    say "compiler: finding the packages, downloading modules that are missing"
    all=$(go list -deps ./cmd/wisbox 2>.cache/compiler.log | wc -l) || { cat .cache/compiler.log; return 1; }
    make --no-print-directory build VERBOSE=1 2>&1 | while IFS= read -r line; do
        case $line in
        *[\ :]*) say "compiler: $line" ;; # no name of a package
        *) n=$((n + 1)); [ $((SECONDS - said)) -lt 10 ] || { said=$SECONDS; say "compiler: $n of at most $all packages"; } ;;
        esac
    done
    say "compiler: bin/wisbox is built"
}

# Only a first build needs it: later ones, and those whose base is in the store, are quick without.
base() {
    rm -f .cache/base.tar
    [ -z "$(podman images -q localhost/wisbox-base 2>/dev/null)" ] || return 0
    go run ./images/mkbase .cache/base.tar 2>&1 | while IFS= read -r line; do say "image, ${line#image: }"; done
}

first=
[ -x bin/wisbox ] || first=yes
compiler & compiler=$!
packages
[ -z "$first" ] || base || say "image, base: it is made later, as this failed"
wait "$compiler"
[ ! -s .cache/base.tar ] || archive="--base-archive .cache/base.tar"
# shellcheck disable=SC2086 # no word is one word less
bin/wisbox image build ${archive:-} | while IFS= read -r line; do say "image: $line"; done
rm -f .cache/base.tar
