# A program reaches what a rule allows, and nothing else; services.
mkdir -p www && echo hello >www/index.html
python3 -m http.server 18080 --bind 0.0.0.0 -d www >/dev/null 2>&1 &
server=$!
python3 -m http.server 18081 --bind 0.0.0.0 -d www >/dev/null 2>&1 &
other=$!
trap 'kill $server $other' EXIT

check 'by rule' <<'E'
until curl -s -o /dev/null http://127.0.0.1:18080/ && curl -s -o /dev/null http://127.0.0.1:18081/; do sleep 1; done
wisbox session create net --allow host:18080
get() { wisbox exec net -- python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=100).read().decode().strip())' "$1"; }
[ "$(get http://host.wisbox:18080/)" = hello ]
fails get http://host.wisbox:18081/
fails get http://example.org/
fails get http://10.0.2.2:18080/
wisbox session egress net | tee /dev/stderr | grep example.org
E

check 'a rule that is taken back' <<'E'
wisbox session deny net host.wisbox
fails wisbox exec net -- python3 -c 'import urllib.request as u; u.urlopen("http://host.wisbox:18080/", timeout=100)'
wisbox rm net
E

check 'no network without a rule' <<'E'
[ "$(wisbox run -- python3 -c 'import socket; print([n for _, n in socket.if_nameindex()])')" = "['lo']" ]
E

check 'a service' <<'E'
wisbox session create svc --service web=localhost/bed-service:latest
[ "$(wisbox exec svc -- python3 -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:9000/", timeout=100).status)')" = 200 ]
wisbox session inspect svc
wisbox rm svc
E
