#!/bin/bash
# Makes a disk of Debian with systemd, Debian's own kernel, Podman, a user without
# rights, and wisbox's image in the stores of both:
#
#     scripts/vm/disk.sh SUITE
#
# SUITE is bookworm or trixie, or with -selinux after it, one with SELinux in place of
# AppArmor, in permissive mode until somebody says `setenforce 1` inside.
# .cache/vm/SUITE gets disk.img, vmlinuz, initrd.img and a key for ssh. The packages
# are installed once, into root.tar; another image of wisbox costs a minute.
set -euo pipefail
cd "$(dirname "$0")/../.."
suite=$1
debian=${suite%-selinux}
here=$PWD/scripts/vm
place=${WISBOX_VM:-$PWD/.cache/vm}/$suite
root=$place/root
[ "$(id -u)" -eq 0 ] || { echo "vm: making a disk needs root" >&2; exit 1; }
mkdir -p "$place"

# Where this machine's apt finds Debian, and its security updates if it has them.
sources() {
    local lists archive security
    lists=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 'Origin: Debian' | sort -u)
    archive=$(awk '$2 !~ /-/ { print $1; exit }' <<<"$lists")
    security=$(awk '$2 ~ /-security$/ { print $1; exit }' <<<"$lists")
    echo "deb ${archive:-http://deb.debian.org/debian} $debian main"
    [ -z "$security" ] || echo "deb $security $debian-security main"
}

packages() {
    local names="linux-image-cloud-amd64 initramfs-tools systemd-sysv udev dbus dbus-user-session libpam-systemd libnss-systemd
        apparmor openssh-server sudo iproute2 procps ca-certificates curl git make python3 e2fsprogs busybox-static
        podman crun runc uidmap slirp4netns fuse-overlayfs netavark"
    [ "$debian" = bookworm ] || names+=" passt"
    [ "$debian" = "$suite" ] || names+=" selinux-basics selinux-policy-default auditd"
    # shellcheck disable=SC2086 # names are words
    printf '%s,' $names | sed 's/,$//'
}

install_packages() {
    local wanted
    wanted=$(packages)
    [ "$(cat "$place/packages" 2>/dev/null)" != "$wanted" ] || return 0
    echo "vm: installing $suite, some minutes"
    # A mirror that is a snapshot has an expired list; signatures count all the same.
    sources | mmdebstrap --quiet --variant=minbase --dpkgopt=force-unsafe-io --aptopt='Acquire::Check-Valid-Until "false"' \
        --aptopt='Acquire::Retries "3"' --include="$wanted" "$debian" "$place/root.new.tar" -
    mv "$place/root.new.tar" "$place/root.tar"
    echo "$wanted" >"$place/packages"
}

# What an installer would ask for: names, the network, two logins by key.
configure() {
    echo "$suite" >"$root/etc/hostname"
    printf '127.0.0.1 localhost %s\n::1 localhost\n' "$suite" >"$root/etc/hosts"
    echo '/dev/vda / ext4 defaults 0 1' >"$root/etc/fstab"
    rm -f "$root/etc/resolv.conf"
    echo 'nameserver 10.0.2.3' >"$root/etc/resolv.conf" # qemu's own network
    printf '[Match]\nName=en* eth*\n[Network]\nDHCP=ipv4\nIPv6AcceptRA=no\n' >"$root/etc/systemd/network/net.network"
    chroot "$root" systemctl enable -q systemd-networkd ssh
    chroot "$root" systemctl mask -q systemd-networkd-wait-online apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer serial-getty@ttyS0.service \
        e2scrub_all.timer e2scrub_reap.service man-db.timer
    # systemd and sshd have limits of their own, which emulation is too slow for.
    install -D /dev/stdin "$root/etc/systemd/system.conf.d/slow.conf" <<<$'[Manager]\nDefaultTimeoutStartSec=900\nDefaultTimeoutStopSec=120'
    install -D -m 644 /dev/stdin "$root/etc/ssh/sshd_config.d/slow.conf" <<<$'LoginGraceTime 0\nUseDNS no'
    chroot "$root" useradd -m -s /bin/bash -G sudo user
    echo 'user ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/user"
    [ -e "$place/key" ] || ssh-keygen -q -t ed25519 -N '' -f "$place/key"
    install -D -m 600 "$place/key.pub" "$root/root/.ssh/authorized_keys"
    install -d -o 1000 -g 1000 -m 700 "$root/home/user/.ssh"
    install -o 1000 -g 1000 -m 600 "$place/key.pub" "$root/home/user/.ssh/authorized_keys"
}

# Loading an image takes a quarter of an hour under emulation, and seconds from outside.
fill_stores() {
    local store=$root/var/lib/containers/storage users=$root/home/user/.local/share/containers/storage run
    run=$(mktemp -d)
    mkdir -p "$store" "${users%/*}"
    printf 'FROM %s\nEXPOSE 9000\nCMD ["python3", "-m", "http.server", "9000"]\n' "$image" | podman build -q -t localhost/bed-service - # for a service
    podman save -q -m "$image" localhost/wisbox:latest localhost/bed-service:latest | podman --root "$store" --runroot "$run" --storage-driver overlay load -q
    podman rmi -f localhost/bed-service:latest
    rm -rf "$run" "$store"/{libpod,tmp,mounts,defaultNetworkBackend,db.sql} "$store/overlay/.has-mount-program"
    cp -a "$store" "$users"
    python3 "$here/owners.py" "$root/home/user/.local"
}

# A disk without labels would spend its first boot on them.
label() {
    echo 'security=selinux selinux=1' >"$place/append"
    chroot "$root" setfiles -F /etc/selinux/default/contexts/files/file_contexts /
}

make_disk() {
    echo "vm: making the disk of $suite"
    rm -rf --one-file-system "$root" "$place/disk.img" "$place/image"
    mkdir "$root"
    tar -C "$root" -xf "$place/root.tar" --numeric-owner --xattrs --xattrs-include='*'
    configure
    fill_stores
    : >"$place/append"
    [ "$debian" = "$suite" ] || label
    cp "$root"/boot/vmlinuz-* "$place/vmlinuz"
    cp "$root"/boot/initrd.img-* "$place/initrd.img"
    truncate -s 16G "$place/disk.img"
    mke2fs -q -t ext4 -d "$root" "$place/disk.img"
    rm -rf --one-file-system "$root"
    echo "$image" >"$place/image"
}

install_packages
image=localhost/wisbox:$(bin/wisbox version | awk '$1 == "image" { sub(".*:", "", $2); print $2 }')
[ "$(cat "$place/image" 2>/dev/null)" = "$image" ] || make_disk
