# Each limit as the kernel knows it, and what happens beyond it, with swap in the machine.
check 'swap in the machine' <<'E'
[ -n "$(swapon --show --noheadings)" ] || {
    sudo fallocate -l 768M /swapfile
    sudo chmod 600 /swapfile
    sudo mkswap -q /swapfile
    sudo swapon /swapfile
}
free -m | awk '$1 == "Swap:" { exit $2 < 700 }'
E

check 'the cgroup has the limits' <<'E'
wisbox session create lim --memory 256m --cpus 0.5 --pids 64 --disk 64m --tmp 16m
wisbox exec lim -- true
group=$(cgroup lim)
# Podman's or the runtime's own cgroup of the container; either bounds it.
most() { local at=$group; while [ "$at" != /sys/fs/cgroup ]; do ! grep -qvx max "$at/$1" 2>/dev/null || { cat "$at/$1"; return; }; at=${at%/*}; done; echo none; }
[ "$(most memory.max)" = $((256 << 20)) ]
[ "$(most memory.swap.max)" = 0 ]
[ "$(most cpu.max)" = '50000 100000' ]
[ "$(most pids.max)" = 64 ]
E

check 'inspect agrees' <<'E'
wisbox --json session inspect lim | json '{l["name"]: (l["asked"], l["enforced"]) for l in d["sandbox"]["limits"]}' | tee said
grep "'memory': ('256MiB', True)" said
grep "'cpus': ('0.5', True)" said
grep "'pids': ('64', True)" said
grep "'tmp': ('16MiB', True)" said
E

check 'memory beyond the limit: a verdict, and nothing is swapped' <<'E'
before=$(awk '$1 == "SwapFree:" { print $2 }' /proc/meminfo)
wisbox call lim shell_execute '{"commands": ["python3", "-c", "print(len(b\"x\" * (384 << 20)))"], "timeout": 120}' | tee /dev/stderr | json 'd["status"], d["exit_code"]' | grep -x 'oom_killed 137'
[ "$(cat "$(cgroup lim)/memory.swap.current")" = 0 ]
[ $((before - $(awk '$1 == "SwapFree:" { print $2 }' /proc/meminfo))) -lt 51200 ]
[ "$(wisbox exec lim -- echo on)" = on ]
E

check 'memory of a child beyond the limit: its parent goes on' <<'E'
wisbox call lim shell_execute '{"script": "python3 -c \"print(len(b\\\"x\\\" * (384 << 20)))\"; echo child $?", "timeout": 120}' | tee out
json 'd["status"]' <out | grep -x exited
json 'd["stdout"]' <out | grep -x 'child 137'
E

check 'a fork storm' <<'E'
wisbox call lim shell_execute '{"commands": ["python3", "-c", "import os, sys, time\nn = 0\ntry:\n  while True:\n    if os.fork() == 0: time.sleep(1000); os._exit(0)\n    n += 1\nexcept OSError:\n  print(n); sys.exit(3)"], "timeout": 120}' | tee out
json 'd["status"]' <out | grep -x pids_limit
[ "$(json 'int(d["stdout"])' <out)" -le 64 ]
[ "$(wisbox exec lim -- echo on)" = on ]
E

check 'half a processor' <<'E'
share=$(wisbox exec lim -- python3 -c '
import os, time
began, kids = time.monotonic(), []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        while time.monotonic() < began + 8: pass
        os._exit(0)
    kids.append(pid)
for pid in kids: os.waitpid(pid, 0)
t = os.times()
print(round(100 * (t.children_user + t.children_system) / (time.monotonic() - began)))')
[ "$share" -lt 65 ]
E

check '/tmp is full' <<'E'
said=$(wisbox exec lim -- sh -c 'dd if=/dev/zero of=/tmp/a bs=1M count=100 2>&1; stat -c %s /tmp/a; rm /tmp/a')
grep 'No space left' <<<"$said"
[ "$(tail -n 1 <<<"$said")" -le $((16 << 20)) ]
E

check 'the disk is full' <<'E'
wisbox call lim shell_execute '{"script": "dd if=/dev/zero of=/workspace/a bs=1M count=100 2>&1; stat -c %s /workspace/a", "timeout": 120}' | tee out || true
case $(id -u) in
0) json 'd["stdout"]' <out | grep 'No space left' ;;
*) json 'd["status"]' <out | grep -x disk_limit ;; # a watcher ends it
esac
wisbox call lim rm '{"path": "a"}'
E

check 'nothing is left' <<'E'
wisbox rm lim
no_containers
E
