#!/bin/bash
# Runs the suite that every backend passes, and a few commands, on the Podman of
# another Debian release: rootful, then as a user without rights.
#
#     scripts/podman5.sh [SUITE]        default trixie: Podman 5.4; forky: 5.8
#
# The release's root is made once, below $WISBOX_PODMAN_ROOTS. Everything runs in
# mount and process namespaces of its own, entered by pivot_root: under chroot, an
# exec would land on the real root. Nothing of this machine's mounts, Podman or
# store is touched, and what was started ends with the namespace.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${1:-trixie}
place=${WISBOX_PODMAN_ROOTS:-/var/tmp/wisbox-podman}/$suite
root=$place/root
tags=$(go env GOFLAGS | tr ' ' '\n' | sed -n 's/^-tags=//p'),integration

[ "$(id -u)" -eq 0 ] || { echo "podman5: namespaces and another root need root" >&2; exit 1; }
mkdir -p -m 700 "$place"
exec 9>"$place/lock"
flock 9

if [ ! -e "$place/made" ]; then
    echo "podman5: making a root of $suite"
    rm -rf --one-file-system "$root"
    # A mirror that is a snapshot has an expired list of testing; signatures count all the same.
    mmdebstrap --quiet --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' \
        --include=podman,runc,crun,uidmap,netavark,fuse-overlayfs,e2fsprogs,ca-certificates,procps \
        "$suite" "$root" http://deb.debian.org/debian
    useradd --root "$root" --create-home --shell /bin/bash wisbox
    printf 'wisbox:400000:65536\n' | tee "$root/etc/subuid" >"$root/etc/subgid"
    touch "$place/made"
fi

echo "podman5: building"
mkdir -p "$root/opt/wisbox"
go test -c -tags "$tags" -o "$root/opt/wisbox/podman.test" ./podman
go build -o "$root/opt/wisbox/wisbox" ./cmd/wisbox
image=$("$root/opt/wisbox/wisbox" version | awk '$1 == "image" { print $2 }')
podman save -q -o "$root/opt/wisbox/image.tar.new" "$image"
mv "$root/opt/wisbox/image.tar.new" "$root/opt/wisbox/image.tar"
cp scripts/podman5-inside.sh "$root/opt/wisbox/inside.sh"
chmod -R a+rX "$root/opt/wisbox"
chmod 711 "$place" # the user without rights must reach its root

exec unshare --mount --pid --fork --kill-child --propagation private \
    bash -euo pipefail -c '
    root=$1 image=$2
    mount --bind "$root" "$root"
    cd "$root"
    mount -t proc proc proc
    mount --rbind /sys sys
    mount --rbind /dev dev
    mount -t tmpfs -o mode=755 tmpfs run
    mount -t tmpfs -o mode=1777 tmpfs tmp
    mkdir -p .old
    pivot_root . .old
    cd /
    umount -l /.old
    exec /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/root IMAGE="$image" \
        bash /opt/wisbox/inside.sh
' podman5 "$root" "$image"
