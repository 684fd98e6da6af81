#!/bin/bash
# What podman5.sh runs inside the other release's root: everything as root, then
# again as the user wisbox.
set -euo pipefail
export WISBOX_REQUIRE_PODMAN=1 WISBOX_TEST_ARCHIVE=/opt/wisbox/image.tar WISBOX_TEST_IMAGE=$IMAGE
export PATH=/opt/wisbox:$PATH XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-/run/root} WISBOX_CACHE=${WISBOX_CACHE:-/var/tmp/root-cache}
mkdir -p -m 700 "$XDG_RUNTIME_DIR"
cd "$HOME"

say() { printf 'podman5: %s: %s\n' "$(id -un)" "$*"; }
say "$(podman --version 2>/dev/null)"

podman.test -test.run '^TestPodmanPassesTheSuite$' -test.timeout 15m
say "the suite passes"

# An answer that isn't the one expected ends the script.
is() { [ "$1" = "$2" ] || { say "got '$1', not '$2'"; exit 1; }; }
is "$(wisbox run -- sh -c 'echo $((6 * 7)); id -u')" $'42\n1000'
wisbox create box >/dev/null
is "$(wisbox exec box -- sh -c 'echo kept > f; cat f')" kept
wisbox call box edit_file '{"file_path":"f","old_string":"kept","new_string":"edited"}' >/dev/null
is "$(wisbox exec box -- cat f)" edited
is "$(wisbox eval python --session box '6 * 7' | tail -n 1)" 42
code=0
wisbox exec --timeout 1s box -- sleep 60 || code=$?
is "$code" 124
wisbox inspect box
wisbox rm box
wisbox prune
is "$(podman ps -aq 2>/dev/null)" ""
say "the commands work, and no container is left"

if [ "$(id -u)" -eq 0 ]; then
    mkdir -m 700 /run/wisbox-user
    chown wisbox: /run/wisbox-user
    exec setpriv --reuid wisbox --regid wisbox --init-groups env HOME=/home/wisbox USER=wisbox \
        XDG_RUNTIME_DIR=/run/wisbox-user WISBOX_CACHE=/home/wisbox/cache bash "$0"
fi
