#!/bin/sh
# Makes a load to run tests beside: two busy processors and a disk that is written to and synced, for SECONDS (default
# 600, at most 7200). It ends by itself, or with its process.
#
#   scripts/load.sh 900 & make test
set -eu
seconds=${1:-600}
[ "$seconds" -le 7200 ] 2>/dev/null || { echo "usage: load.sh SECONDS, at most 7200" >&2; exit 2; }
file=$(mktemp "${TMPDIR:-/var/tmp}/wisbox-load-XXXXXX")
trap 'kill $(jobs -p) 2>/dev/null; rm -f "$file"' EXIT
trap 'exit 143' INT TERM HUP
for _ in 1 2; do
    timeout "$seconds" sh -c 'while :; do :; done' &
done
timeout "$seconds" sh -c 'while :; do dd if=/dev/zero of="$0" bs=1M count=64 conv=fsync 2>/dev/null; done' "$file" &
wait
