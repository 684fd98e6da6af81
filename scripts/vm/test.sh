#!/bin/bash
# Asserts wisbox's promises on a real Debian in qemu, as root and as a user with a
# login of systemd's:
#
#     scripts/vm/test.sh SUITE [root|user [PART…]]
#
# Each check is a line; .cache/vm/SUITE/log-WHO-PART.txt has them too. A part is a
# file of inside/, or two (logout, unit, reboot); each is a login of its own.
#
# WISBOX_VM_ON=1 leaves the machine on for the next run, which then uses it as it is.
# WISBOX_VM_CREATES is how many containers each of eight processes creates, usually 50.
# WISBOX_VM_CHECKS is a pattern of checks of the backend's suite, usually all.
set -euo pipefail
cd "$(dirname "$0")/../.."
suite=$1
logins=${2:-root user}
chosen=("${@:3}")
vm=scripts/vm/vm.sh
place=${WISBOX_VM:-$PWD/.cache/vm}/$suite
usual=(signals doctor demo limits life net serve logout creates suite)

# What the guest gets at /opt/wisbox.
pack() {
    local extra=$place/extra tags
    tags=$(go env GOFLAGS | tr ' ' '\n' | sed -n 's/^-tags=//p')
    rm -rf "$extra"
    mkdir -p "$extra/examples"
    cp bin/wisbox "$extra/"
    cp -r examples/project "$extra/examples/"
    go build -ldflags=-s -o "$extra/demo" ./examples/demo
    go test -c -vet=off -ldflags='-s -w' -o "$extra/integration.test" ./integration
    go test -c -vet=off -ldflags='-s -w' -tags="$tags,integration" -o "$extra/podman.test" ./podman
    # How much slower an emulated machine is, generously.
    if [ "$("$vm" "$suite" accel)" = kvm ]; then echo 1; else echo "${WISBOX_SLOW:-20}"; fi >"$extra/slow"
    chmod -R a+rX "$extra"
}

# part WHO NAME [SHELL]: SHELL is a command line of root's.
part() {
    local who=$1 name=$2 log=$place/log-$1-$2.txt as=("$1" 'bash -s')
    [ $# -lt 3 ] || as=(root "$3")
    echo "--- $suite, $who: $name"
    { printf 'export CREATES=%q CHECKS=%q\n' "${WISBOX_VM_CREATES:-50}" "${WISBOX_VM_CHECKS:-}"; cat scripts/vm/inside/lib.sh "scripts/vm/inside/$name.sh"; echo 'exit $failed'; } |
        "$vm" "$suite" in "${as[@]}" 2>&1 | tee "$log" || failed+=("$who: $name")
}

# Some parts have two halves, with something of the machine's between them.
whole() {
    local who=$1 name=$2
    case $name in
    logout)
        part "$who" logout-1
        part "$who" logout-2
        ;;
    unit)
        part "$who" unit-1
        "$vm" "$suite" in user 'for _ in $(seq 300); do [ -d /run/user/0 ] || break; sleep 1; done' # the last login of root has ended
        part "$who" unit-2
        ;;
    nologin)
        "$vm" "$suite" in root 'for _ in $(seq 300); do [ -d /run/user/1000 ] || break; sleep 1; done'
        part "$who" nologin 'systemd-run --quiet --wait --pipe --property=User=user bash -s'
        ;;
    reboot)
        part "$who" reboot-1
        "$vm" "$suite" reboot
        part "$who" reboot-2
        ;;
    *) part "$who" "$name" ;;
    esac
}

if ! "$vm" "$suite" alive; then
    scripts/vm/disk.sh "$suite"
    pack
    "$vm" "$suite" up "$place/extra"
fi
[ -n "${WISBOX_VM_ON:-}" ] || trap '"$vm" "$suite" down' EXIT
failed=()
[ ${#chosen[@]} -gt 0 ] || rm -f "$place"/log-*.txt
for login in $logins; do
    parts=("${chosen[@]}")
    if [ ${#parts[@]} = 0 ]; then
        if [ "$login" = root ]; then parts=("${usual[@]}" unit reboot); else parts=("${usual[@]}" nobus nologin reboot); fi
    fi
    for name in "${parts[@]}"; do whole "$login" "$name"; done
done
[ ${#failed[@]} -gt 0 ] || { echo "vm: everything holds on $suite"; exit 0; }
echo "vm: FAILED on $suite:"
printf '  %s\n' "${failed[@]}"
grep -H '^FAILED' "$place"/log-*.txt | sed "s#$place/log-#  #" || true
exit 1
