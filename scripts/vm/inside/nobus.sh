# A user without a login: no runtime directory, no session bus. It works, with fewer limits, and says which.
export WISBOX_CACHE=$HOME/bed/nobus
unset XDG_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS
check 'run, without a login' <<'E'
[ "$(wisbox run -- echo on)" = on ]
E

check 'inspect claims what the kernel enforces, and nothing else' <<'E'
wisbox session create alone --memory 256m --cpus 0.5 --pids 64
wisbox exec alone -- true
group=$(cgroup alone)
cat "/proc/$(podman inspect -f '{{.State.Pid}}' "$(podman ps -q)")/cgroup"
most() { local at=$group; while [ "$at" != /sys/fs/cgroup ]; do ! grep -qvx max "$at/$1" 2>/dev/null || { cat "$at/$1"; return; }; at=${at%/*}; done; echo none; }
wisbox --json session inspect alone | json '{l["name"]: l["enforced"] for l in d["sandbox"]["limits"]}' | tee said
grep "'memory': $([ "$(most memory.max)" = $((256 << 20)) ] && echo True || echo False)" said
grep "'cpus': $([ "$(most cpu.max)" = '50000 100000' ] && echo True || echo False)" said
grep "'pids': $([ "$(most pids.max)" = 64 ] && echo True || echo False)" said
wisbox rm alone
E

LIMIT=3600 check 'doctor, without a login' <<'E'
wisbox --json doctor >nobus.json || true
cat nobus.json
json '[l for l in d["lines"] if l["status"] == "broken"]' <nobus.json | grep -x '\[\]'
E
