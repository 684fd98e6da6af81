#!/bin/bash
# The tests of a change that nobody has looked at yet, as a pull request from outside:
# its code runs in a session without network and without the job's secrets, and only its
# report comes back. As any user; the exit code is the tests'.
# Usage: examples/ci/untrusted.sh FOLDER REPORTS CMD [ARG…]
set -euo pipefail
folder=$(realpath "$1") reports=$2
shift 2
wisbox=${WISBOX:-wisbox}
box=pr-$$
clean() { "$wisbox" rm "$box" >/dev/null 2>&1 || true; }
trap clean EXIT

"$wisbox" session create "$box" --mount "$folder:." --cpus 2 --memory 2g --pids 512 --ttl 2h
code=0
"$wisbox" exec --timeout 30m "$box" -- "$@" || code=$?

# What comes back is the change's own words: keep it as a file, and show it nowhere as HTML.
mkdir -p "$reports"
"$wisbox" cp "$box:reports" "$reports" || echo "no reports/ folder came out of it" >&2
"$wisbox" log "$box" >"$reports/calls.txt"
exit "$code"
