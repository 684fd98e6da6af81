#!/bin/bash
# Runs what disk.sh made, in qemu: with KVM where it works, else emulated, which is 10
# to 50 times slower.
#
#     scripts/vm/vm.sh SUITE up [FOLDER]      a fresh one; FOLDER is its /opt/wisbox
#     scripts/vm/vm.sh SUITE in root|user 'COMMAND LINE'
#     scripts/vm/vm.sh SUITE reboot
#     scripts/vm/vm.sh SUITE down | alive
#     scripts/vm/vm.sh SUITE accel            prints kvm or tcg (emulation)
#
# `in` is a login of systemd's, by ssh. VM_MEMORY is in MiB.
set -euo pipefail
suite=$1 verb=$2
[ "$verb" != up ] || [ $# -lt 3 ] || set -- "$1" "$2" "$(realpath "$3")"
cd "${WISBOX_VM:-$(dirname "$0")/../../.cache/vm}/$suite"
patience=${VM_PATIENCE:-1800} # seconds for a boot

inside() {
    ssh -i key -p "$(cat port)" -o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no -o IdentitiesOnly=yes \
        -o LogLevel=ERROR -o ConnectTimeout=60 -o ServerAliveInterval=60 -o ServerAliveCountMax=20 "$1@127.0.0.1" "${@:2}"
}

# A device isn't enough: qemu may fail with it, or the guest get nowhere, as on a host that
# has only PVM. So Debian's kernel must get as far as its missing disk, once for each boot
# of the host.
accel() {
    local said= known host
    host=$(cat /proc/sys/kernel/random/boot_id)
    known=$(sed -n "s/^$host //p" accel 2>/dev/null) || true
    [ -z "$known" ] || { echo "$known"; return; }
    [ ! -w /dev/kvm ] || said=$(timeout -k 5 60 qemu-system-x86_64 -M q35 -cpu max -m 512 -accel kvm -kernel vmlinuz \
        -append 'console=ttyS0 panic=-1' -no-reboot -display none -monitor none -serial stdio -nic none 2>&1 </dev/null) || true
    case $said in
    *'Unable to mount root fs'*) known=kvm ;;
    *) known=tcg ;;
    esac
    echo "$host $known" >accel
    echo "$known"
}

alive() { [ -e pid ] && [ "$(readlink "/proc/$(cat pid)/cwd")" = "$PWD" ]; }

# A boot has an identity of its own, so that a reboot isn't over before it began.
wait_for_boot() {
    local before=$1 began=$SECONDS now
    until now=$(inside root cat /proc/sys/kernel/random/boot_id 2>/dev/null) && [ "$now" != "$before" ]; do
        if ! alive || [ $((SECONDS - began)) -gt "$patience" ]; then
            cat qemu.log
            tail -n 30 console.log
            echo "vm: $suite doesn't boot" >&2
            exit 1
        fi
        sleep 2
    done
    inside root 'systemctl is-system-running --wait' || true
    ! inside root 'test -e /dev/disk/by-label/wisbox' || inside root 'mkdir -p /opt/wisbox && mount -o ro LABEL=wisbox /opt/wisbox'
    echo "vm: $suite is up after $((SECONDS - began)) s"
}

up() {
    ! alive || { echo "vm: $suite runs already" >&2; exit 1; }
    local accel drives=(-drive file=run.qcow2,format=qcow2,if=virtio,cache=unsafe,discard=unmap)
    accel=$(accel)
    [ "$accel" = kvm ] || accel=tcg,thread=multi
    qemu-img create -q -f qcow2 -F raw -b disk.img run.qcow2
    if [ $# -gt 0 ]; then
        rm -f extra.img
        truncate -s $(($(du -sm "$1" | cut -f1) * 5 / 4 + 64))M extra.img
        mke2fs -q -t ext4 -O ^has_journal -E root_owner=0:0 -L wisbox -d "$1" extra.img
        drives+=(-drive file=extra.img,format=raw,if=virtio,readonly=on)
    fi
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])' >port
    nohup nice qemu-system-x86_64 -M q35 -cpu max -smp 2 -m "${VM_MEMORY:-3584}" -accel "$accel" \
        -kernel vmlinuz -initrd initrd.img -append "root=/dev/vda rw console=ttyS0 quiet $(cat append)" \
        -display none -monitor none -serial file:console.log -device virtio-rng-pci "${drives[@]}" \
        -nic user,model=virtio-net-pci,hostfwd=tcp:127.0.0.1:"$(cat port)"-:22 >qemu.log 2>&1 </dev/null &
    echo $! >pid
    wait_for_boot none
}

down() {
    ! alive || kill "$(cat pid)"
    rm -f pid run.qcow2 extra.img
}

reboot() {
    local before
    before=$(inside root cat /proc/sys/kernel/random/boot_id)
    inside root 'systemctl reboot' || true
    wait_for_boot "$before"
}

case $verb in
up) up "${@:3}" ;;
in) inside "${@:3}" ;;
reboot | down | alive | accel) "$verb" ;;
*) echo "vm: no such command: $verb" >&2; exit 2 ;;
esac
