# Programs end each other, and a time-out ends nothing else; root's containers have an AppArmor profile.
check 'a program ends its child' <<'E'
out=$(wisbox run -- sh -c 'sleep 1000 & kill $!; echo rc $?; wait $!; echo status $?')
[ "$out" = $'rc 0\nstatus 143' ]
E

check 'the label of a program' <<'E'
label=$(wisbox run -- cat /proc/self/attr/current)
case $(id -u) in
0) [[ $label == containers-default-*' (enforce)' ]] ;;
*) [[ $label =~ ^(unconfined|(crun|runc)' (unconfined)')$ ]] ;; # rootless Podman uses no profile
esac
E

check 'no new privileges, a filter, no capability' <<'E'
status=$(wisbox run -- grep -E '^(NoNewPrivs|Seccomp|CapEff|CapBnd):' /proc/self/status | tr -s '\t\n' ' ')
[ "$status" = 'CapEff: 0000000000000000 CapBnd: 0000000000000000 NoNewPrivs: 1 Seccomp: 2 ' ]
E

check 'timeout and subprocess end what they started' <<'E'
wisbox session create sig
rc=0
wisbox exec sig -- timeout 2 sleep 1000 || rc=$?
[ $rc = 124 ]
said=$(wisbox exec sig -- python3 -c '
import subprocess
try: subprocess.run(["sleep", "1000"], timeout=2)
except Exception as e: print(type(e).__name__)')
[ "$said" = TimeoutExpired ]
E

check 'a time-out leaves its neighbours alive' <<'E'
wisbox exec -d sig -- sleep 10000
wisbox eval python --session sig --keep 'y = 5'
boot=$(wisbox exec sig -- stat -c %Y /proc/1)
rc=0
wisbox exec --timeout 3s sig -- sleep 1000 || rc=$?
[ $rc = 124 ]
wisbox --json ps sig | tee /dev/stderr | json 'any(p["state"] == "running" for p in d["processes"])' | grep -x True
[ "$(wisbox eval python --session sig --keep y)" = 5 ]
[ "$(wisbox exec sig -- stat -c %Y /proc/1)" = "$boot" ]
E

check 'kill ends one process' <<'E'
id=$(wisbox exec -d sig -- sleep 20000)
wisbox kill sig "$id"
until wisbox exec sig -- sh -c 'cat /proc/[0-9]*/cmdline | tr "\0" " "' | tee all | grep -v 'sleep 20000'; do sleep 1; done
grep 'sleep 10000' all
E

check 'inspect says what is enforced, and forbids no signal' <<'E'
wisbox --json session inspect sig >said
cat said
json '[l["name"] for l in d["limits"] if not l["enforced"]]' <said | tee open
[ "$(id -u)" != 0 ] || grep -x '\[\]' open
json 'd["sandbox"].get("gaps", [])' <said >gaps
fails grep -iE 'signal|apparmor' gaps
E

check 'nothing is left' <<'E'
wisbox rm sig
[ "$(wisbox --json ls | json 'len(d["sessions"])')" = 0 ]
no_containers
E

check 'the kernel forbade no signal' <<'E'
sudo journalctl -b -k --no-pager -o cat >kernel.log
fails grep 'apparmor="DENIED".*operation="signal"' kernel.log
E
