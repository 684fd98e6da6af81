#!/bin/sh
# Installs missing packages on Debian: what wisbox runs with (Podman with a runtime,
# what rootless containers and the image's base need), with the word "tests" also
# what the tests need, and others that are named as package:command. Says nothing
# and touches nothing if all are installed. Go itself is not installed.
set -eu

# package:command, or package:/file where the package brings no command of its own.
needed="
podman:podman runc:runc crun:crun uidmap:newuidmap slirp4netns:slirp4netns
fuse-overlayfs:fuse-overlayfs netavark:/usr/lib/podman/netavark mmdebstrap:mmdebstrap
e2fsprogs:mkfs.ext4 git:git make:make ca-certificates:/etc/ssl/certs/ca-certificates.crt"
tests="
sbcl:sbcl gcc:gcc libc6-dev:/usr/include/stdlib.h busybox-static:/bin/busybox
openssh-client:ssh openssh-server:/usr/sbin/sshd"
for word in "$@"; do
    [ "$word" = tests ] && word=$tests
    needed="$needed $word"
done
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

is_there() {
    case $1 in
    /*) [ -e "$1" ] ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

missing=
for entry in $needed; do
    is_there "${entry#*:}" || missing="$missing ${entry%%:*}"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "setup: no apt-get here; install by hand what is missing:$missing" >&2
    exit 0
fi
as_root=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 || { echo "setup: run as root: apt-get install$missing" >&2; exit 1; }
    as_root=sudo
    [ -t 0 ] || as_root="sudo -n"
fi

apt() {
    # shellcheck disable=SC2086 # no word is one word less
    $as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a apt-get -q \
        -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 "$@" </dev/null
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "setup: installing$missing"
# A source that has nothing to do with us may be broken: the install decides.
apt update >"$log" 2>&1 || true
# shellcheck disable=SC2086 # a list of names
if ! apt install -y --no-install-recommends $missing >>"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "setup: apt-get could not install$missing" >&2
    exit 1
fi
