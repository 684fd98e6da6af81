#!/bin/bash
# Runs the tests of project quotas on a kernel that has them, wherever this is:
# User Mode Linux, an ordinary process. It sees this machine's files read-only and
# writes into an image of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
linux=${LINUX:-linux.uml}
modules=${MODULES:-/usr/lib/uml/modules}
work=$(mktemp -d /var/tmp/wisbox-quota-XXXXXX)
trap 'rm -rf "$work"' EXIT

go test -c -o "$work/quota.test" ./internal/quota
go test -c -o "$work/overlay.test" ./overlay
truncate -s 256M "$work/disk.img"
mkfs.ext4 -q -F -O quota,project -E quotatype=prjquota "$work/disk.img"
cat >"$work/init" <<END
#!/bin/bash
export PATH=$PATH:/usr/sbin:/sbin TMPDIR=/mnt WISBOX_PROJECT_QUOTA=1
trap 'cd / && umount -n /mnt; echo o >/proc/sysrq-trigger; sleep 60' EXIT
set -e
mount -n -t proc proc /proc
mount -n -t sysfs sysfs /sys
insmod "$(find "$modules" -name quota_tree.ko)"
insmod "$(find "$modules" -name quota_v2.ko)"
mount -n -t ext4 -o prjquota /dev/ubda /mnt
cd /mnt
"$work/quota.test" -test.v -test.run Project
"$work/overlay.test" -test.v -test.run Project
echo all is well
END
chmod 755 "$work" "$work/init"
timeout 300 "$linux" mem=512M rootfstype=hostfs rootflags=/ ro quiet init="$work/init" \
    ubd0="$work/disk.img" con=null con0=null,fd:1 </dev/null 2>&1 | tr -d '\r' | tee "$work/log"
grep -q '^all is well' "$work/log"
