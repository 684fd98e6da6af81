# What every part begins with. Each check is a line: ok, or FAILED with its commands and their output.
export PATH=/opt/wisbox:$PATH:/usr/sbin:/sbin
export IMAGE; IMAGE=$(wisbox version | awk '$1 == "image" { print $2 }')
# How much slower than hardware this machine is.
export WISBOX_SLOW; WISBOX_SLOW=$(cat /opt/wisbox/slow)
mkdir -p ~/bed
cd ~/bed || exit 1
failed=0

# check NAME <<'E' … E: runs lines of bash, of which none may fail.
check() {
    local began=$SECONDS script out rc=0
    script=$(cat)
    out=$(timeout -k 10 "${LIMIT:-900}" bash -O inherit_errexit -xeuo pipefail -c "$(declare -f json cgroup fails podman no_containers); $script" </dev/null 2>&1) || rc=$?
    if [ $rc = 0 ]; then
        printf 'ok      %s (%d s)\n' "$1" $((SECONDS - began))
    else
        printf 'FAILED  %s (%d s)\n' "$1" $((SECONDS - began))
        printf 'exit code %s\n%s\n' "$rc" "$out" | tail -c 6000 | sed 's/^/        /'
        failed=1
    fi
}

# fails COMMAND…: the opposite of its outcome. A plain ! would not end the check.
fails() { if "$@"; then return 1; fi; }

# A user's plain Podman of Debian 12 has another store than wisbox's. Root's of Debian 13 refuses to be told the driver.
podman() { if [ "$(id -u)" = 0 ]; then command podman "$@"; else command podman --storage-driver overlay "$@"; fi; }

# no_containers fails if there is one, or if Podman can't say.
no_containers() {
    local all
    all=$(podman ps -aq)
    [ -z "$all" ]
}

# json EXPRESSION: of the JSON in the standard input, called d.
json() { python3 -c "import json, sys; d = json.load(sys.stdin); print($1)"; }

# cgroup SESSION: the folder of its container's cgroup.
cgroup() {
    local pid
    pid=$(podman inspect -f '{{.State.Pid}}' "$(podman ps -aq -f "label=wisbox.sandbox=$1" | head -n 1)")
    echo "/sys/fs/cgroup$(cut -d: -f3 "/proc/$pid/cgroup" | head -n 1)"
}
