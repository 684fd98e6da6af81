# A unit of the system with User=: no runtime directory, no session bus.
export WISBOX_CACHE; WISBOX_CACHE=$(mktemp -d ~/bed/nologin.XXXX)
check 'Podman, which had a login before, does not start without one; the remedy is a login' <<'E'
[ ! -e /run/user/1000 ]
fails wisbox run -- true 2>said
cat said
grep 'warning: no limit of memory, cpu, pids .* session bus' said
grep enable-linger said
wisbox --json doctor >said.json || true
cat said.json
json '[l["fix"] for l in d["lines"] if l["name"] == "podman"]' <said.json | grep enable-linger
E

# As of a user who never had a login: Podman's database, but not the images, remembers that.
forget() { rm -rf ~/.local/share/containers/storage/{libpod,db.sql*}; }
forget
check 'a user who never had a login: run works, and warns' <<'E'
[ "$(wisbox run -- echo on 2>said)" = on ] || { cat said; exit 1; }
grep 'warning: no limit of memory, cpu, pids .* session bus' said
E

check 'inspect claims what the kernel enforces, and nothing else' <<'E'
wisbox session create alone --memory 256m --cpus 0.5 --pids 64
wisbox exec alone -- true
group=$(cgroup alone)
most() { local at=$group; while [ "$at" != /sys/fs/cgroup ]; do ! grep -qvx max "$at/$1" 2>/dev/null || { cat "$at/$1"; return; }; at=${at%/*}; done; echo none; }
wisbox --json session inspect alone | json '{l["name"]: l["enforced"] for l in d["sandbox"]["limits"]}' | tee said
grep "'memory': $([ "$(most memory.max)" = $((256 << 20)) ] && echo True || echo False)" said
grep "'cpus': $([ "$(most cpu.max)" = '50000 100000' ] && echo True || echo False)" said
grep "'pids': $([ "$(most pids.max)" = 64 ] && echo True || echo False)" said
wisbox rm alone
E

LIMIT=3600 check 'doctor names what lacks, and a login as the remedy' <<'E'
wisbox --json doctor >said.json || true
cat said.json
json '[l for l in d["lines"] if l["status"] == "broken"]' <said.json | grep -x '\[\]'
for name in cgroup memory cpus pids; do
    json "[l['fix'] for l in d['lines'] if l['name'] == '$name']" <said.json | grep enable-linger
done
E
forget
