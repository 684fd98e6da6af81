#!/bin/bash
# Makes the fixture of a version's state root, which later versions must open:
#
#     make.sh BINARY VERSION     writes VERSION.tar.gz beside this script
#
# Needs root, for the image that a session's disk is, and Podman. The secret's file
# lies elsewhere on each machine: what opens the fixture puts its own path there.
set -euo pipefail
cd "$(dirname "$0")"
wisbox=$(realpath "$1") version=$2
scratch=$(mktemp -d)
export WISBOX_CACHE=$scratch/state
finish() {
    for held in "$scratch"/state/sessions/*/held; do
        [ ! -s "$held" ] || kill -KILL "$(cat "$held")" 2>/dev/null || true
        while [ -s "$held" ] && kill -0 "$(cat "$held")" 2>/dev/null; do sleep 0.05; done
    done
    podman ps -aq --filter "label=wisbox.root=$(grep -o '"id":"[^"]*"' "$scratch/state/root.json" | cut -d'"' -f4)" |
        xargs -r podman rm --force --time 0 >/dev/null
    for disk in "$scratch"/state/sessions/*/disk; do
        ! mountpoint -q "$disk" || umount "$disk"
        while losetup -j "$disk.img" | grep -q .; do sleep 0.05; done
    done
}
trap 'finish; rm -rf "$scratch"' EXIT
echo "a secret of the fixture" >"$scratch/secret"

"$wisbox" session create kept --auto-snapshot --disk 4m --secret "TOKEN=$scratch/secret"
call() { "$wisbox" call kept "$@" >/dev/null; }
call write_file '{"file_path":"notes.txt","content":"first\n"}'
"$wisbox" exec kept -- sh -c 'mkdir src; echo "print(1)" >src/main.py; chmod 755 src/main.py; ln -s src/main.py link; printf "na\351me" >"$(printf "by\351te")"'
call evaluate-lisp '{"code":"(defun twice (x) (* 2 x))"}'
call snapshot_create '{"label":"before"}'
call edit_file '{"file_path":"notes.txt","old_string":"first","new_string":"second"}'
"$wisbox" session create files --disk 4m
"$wisbox" call files write_file '{"file_path":"a/b.txt","content":"b\n"}' >/dev/null
finish
sed -i "s#$scratch/secret#@SECRET@#" "$scratch/state/sessions/kept/session.json"
tar --create --sparse --numeric-owner --directory "$scratch" state | gzip -9n >"$version.tar.gz"
ls -l "$version.tar.gz"
