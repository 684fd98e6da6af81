# A cron job of a user who has a login elsewhere: no variable of it, but its directory and its bus. Limits hold, and a session is the login's.
check 'a login that another process has gives limits' <<'E'
wisbox session create alone --memory 256m --cpus 0.5 --pids 64
export LOGIN=$XDG_RUNTIME_DIR
services=$(ls -d "$LOGIN"/wisbox/podman-*)
unset XDG_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS
[ "$(wisbox run -- echo on 2>said)" = on ]
fails grep warning said
wisbox exec alone -- true
group=$(cgroup alone)
most() { local at=$group; while [ "$at" != /sys/fs/cgroup ]; do ! grep -qvx max "$at/$1" 2>/dev/null || { cat "$at/$1"; return; }; at=${at%/*}; done; echo none; }
[ "$(most memory.max)" = $((256 << 20)) ]
[ "$(most cpu.max)" = '50000 100000' ]
[ "$(most pids.max)" = 64 ]
[ "$(ls -d "$LOGIN"/wisbox/podman-*)" = "$services" ] # the same Podman service
wisbox rm alone
E
