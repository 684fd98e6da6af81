# Exit codes, clients that go away, pauses, a killed holder, clones.
check 'exit codes' <<'E'
wisbox session create v
code() { local rc=0; "$@" >/dev/null 2>&1 || rc=$?; echo $rc; }
[ "$(code wisbox exec v -- sh -c 'exit 7')" = 7 ]
[ "$(code wisbox exec v -- sh -c 'kill -TERM $$')" = 143 ]
[ "$(code wisbox exec v -- no-such-program)" = 127 ]
[ "$(code wisbox exec --timeout 3s v -- sleep 1000)" = 124 ]
E

check 'a client that is interrupted takes its program with it' <<'E'
rc=0
timeout -s INT 15 wisbox exec v -- sleep 31000 || rc=$?
[ $rc != 0 ]
until ! wisbox exec v -- sh -c 'cat /proc/[0-9]*/cmdline | tr "\0" " "' | grep 'sleep 3100[0]'; do sleep 1; done
E

check 'a pause stops everything, and everything goes on' <<'E'
wisbox eval python --session v --keep 'y = 5'
wisbox exec -d v -- sh -c 'while :; do echo x >>beat; sleep 0.2; done'
until wisbox exec v -- test -s beat; do sleep 0.5; done
wisbox session pause v
grep -x 1 "$(cgroup v)/cgroup.freeze" || grep -x 'frozen 1' "$(cgroup v)/cgroup.events"
count() { wisbox call v read_file '{"file_path": "beat", "limit": 2000}' | wc -c; }
a=$(count)
sleep 3
[ "$(count)" = "$a" ]
rc=0
wisbox exec v -- true 2>said || rc=$?
[ $rc != 0 ]
grep -i paused said
wisbox session resume v
before=$(wisbox exec v -- sh -c 'wc -l <beat')
until [ "$(wisbox exec v -- sh -c 'wc -l <beat')" -gt "$before" ]; do sleep 0.5; done
[ "$(wisbox eval python --session v --keep y)" = 5 ]
E

check 'a killed holder loses its interpreters, and says so, but no process' <<'E'
wisbox session resume v || true # if the check before failed
kill -9 $(pgrep -f '__hold v$')
wisbox --json ps v | json 'd["processes"][0]["state"]' | grep -x running
before=$(wisbox exec v -- sh -c 'wc -l <beat')
until [ "$(wisbox exec v -- sh -c 'wc -l <beat')" -gt "$before" ]; do sleep 0.5; done
wisbox eval python --session v --keep y >said 2>&1 || true
grep -i lost said
E

check 'a container that somebody killed comes back with its files' <<'E'
podman kill "$(podman ps -q -f label=wisbox.sandbox=v)"
wisbox exec v -- test -s beat || wisbox exec v -- test -s beat # the first one may learn of the loss
E

check 'a clone has the files, and is another session' <<'E'
wisbox session clone v twin
wisbox exec twin -- sh -c 'test -s beat && rm beat'
wisbox exec v -- test -s beat
E

check 'nothing is left' <<'E'
wisbox rm v twin
no_containers
E
