#!/bin/bash
# Two jobs of a pipeline, on two machines: the first one works in a session and saves
# it, the second one goes on with it. Here each machine is a cache directory of its own.
# Usage: examples/handover.sh [WISBOX]
set -euo pipefail
wisbox=$(realpath "${1:-bin/wisbox}")
project=$(realpath "$(dirname "$0")/project")
scratch=$(mktemp -d)
archive=$scratch/work.wisbox
first() { WISBOX_CACHE=$scratch/first "$wisbox" "$@"; }
second() { WISBOX_CACHE=$scratch/second "$wisbox" "$@"; }
clean() {
    first session rm build >/dev/null 2>&1 || true
    second session rm test >/dev/null 2>&1 || true
    rm -rf "$scratch"
}
trap clean EXIT

echo "== job 1: prepare a workspace, keep its state, save it"
first session create build --mount "$project:project" --env STAGE=ci
first exec --workdir project build -- sh -c 'echo "built in $STAGE" >artifact.txt'
state=$(first snapshot create build "after the build" --json | sed 's/.*"snapshot_id":"\([^"]*\)".*/\1/')
first exec build -- rm project/artifact.txt # what came later is in the archive too
first session save build "$archive"
first session rm build

echo "== job 2: go on with it"
second session load --with-settings "$archive" test # our own archive: its variables too
second snapshot restore test "$state"
said=$(second exec --workdir project test -- sh -c 'echo "$STAGE: $(cat artifact.txt)"')
echo "$said"
[ "$said" = "ci: built in ci" ]
second session rm test
