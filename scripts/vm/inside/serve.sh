# The server for E2B's SDKs, with containers that are ready: create, exec, pause, resume, end.
check 'the server comes up' <<'E'
wisbox serve key create --name bed$RANDOM >key
nohup wisbox serve --listen 127.0.0.1:3000 --ready 1 >serve.log 2>&1 &
echo $! >serve.pid
for _ in $(seq 300); do ! curl -s -o /dev/null http://127.0.0.1:3000/health || exit 0; kill -0 "$(cat serve.pid)"; sleep 1; done
cat serve.log
exit 1
E

check 'create and exec' <<'E'
for _ in $(seq 600); do [ -z "$(podman ps -q)" ] || break; sleep 1; done # one is ready
api() { curl -sS -m 600 -w ' %{http_code}' -H "X-API-Key: $(cat key)" -H 'content-type: application/json' "${@:2}" "http://127.0.0.1:3000$1"; }
api /sandboxes -d '{"templateID": "base", "timeout": 3000}' | tee made | grep ' 201$'
sed 's/ 201$//' made | json 'd["sandboxID"]' >sandbox
sed 's/ 201$//' made | json 'd["envdAccessToken"]' >token
cat >rpc.py <<'P'
import json, struct, sys, urllib.request
sandbox, command = sys.argv[1:]
body = json.dumps({"process": {"cmd": "/bin/bash", "args": ["-l", "-c", command]}}).encode()
request = urllib.request.Request("http://127.0.0.1:3000/process.Process/Start", b"\0" + struct.pack(">I", len(body)) + body, {
    "content-type": "application/connect+json", "connect-protocol-version": "1", "Host": f"49983-{sandbox}.localhost:3000", "authorization": "Basic dXNlcjo=", "x-access-token": open("token").read().strip()})
print(urllib.request.urlopen(request, timeout=600).read())
P
python3 rpc.py "$(cat sandbox)" 'exit 42' | tee /dev/stderr | grep '"exitCode": *42'
E

check 'pause, resume, end' <<'E'
api() { curl -sS -m 600 -w ' %{http_code}' -H "X-API-Key: $(cat key)" -H 'content-type: application/json' "${@:2}" "http://127.0.0.1:3000$1"; }
id=$(cat sandbox)
api "/sandboxes/$id/pause" -X POST | grep ' 204$'
api "/sandboxes/$id/connect" -d '{"timeout": 3000}' | grep ' 20[01]$'
python3 rpc.py "$id" 'exit 43' | grep '"exitCode": *43'
api "/sandboxes/$id" -X DELETE | grep ' 204$'
E

check 'it stops, and leaves nothing' <<'E'
kill "$(cat serve.pid)"
while kill -0 "$(cat serve.pid)" 2>/dev/null; do sleep 1; done
wisbox prune
[ "$(wisbox --json ls | json 'len(d["sessions"])')" = 0 ]
no_containers
E
