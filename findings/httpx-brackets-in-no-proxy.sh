#!/bin/bash
# python3-httpx 0.28.1-1 of Debian 13 (with httpcore 1.0.7, anyio 4.8, h11 0.14).
#
# What one would guess: an entry of NO_PROXY that a client can't read concerns, at worst, the host that it names. Some
# clients want IPv6 addresses in brackets there, such as urllib, so a NO_PROXY for all of them has ::1 and [::1].
#
# What happens: with [::1] in NO_PROXY every request of httpx fails, here one to 127.0.0.1, although no proxy is set. httpx
# takes the entry for the end of a name, makes the pattern all://*[::1] of it, and rejects that as a URL.
#
# Output seen (NO_PROXY, result of a request to 127.0.0.1):
EXPECTED="\
::1 200
[::1] InvalidURL"
set -euo pipefail
dir=$(mktemp -d)
chmod 755 "$dir"
trap 'rm -rf "$dir"; kill "${server:-}" 2>/dev/null || true' EXIT
cd "$dir"
mkdir -p lists/partial root served
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main" >sources.list
apt=(apt-get -qq -o "Dir::Etc::SourceList=$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$dir/lists" -o APT::Sandbox::User=root)
"${apt[@]}" update
"${apt[@]}" download python3-httpx=0.28.1-1 python3-httpcore=1.0.7-1 python3-anyio=4.8.0-3 python3-h11=0.14.0-1.1 python3-idna python3-sniffio python3-certifi python3-typing-extensions
for deb in *.deb; do dpkg-deb -x "$deb" root; done
echo ok >served/index.html
python3 -u -m http.server --bind 127.0.0.1 --directory served 0 >log 2>&1 &
server=$!
until grep -q ' port ' log; do sleep 0.1; done
port=$(grep -o ' port [0-9]*' log | grep -o '[0-9]*')
seen=$(for entry in '::1' '[::1]'; do
    env -u http_proxy -u https_proxy -u all_proxy -u HTTP_PROXY -u HTTPS_PROXY -u ALL_PROXY -u NO_PROXY no_proxy="$entry" PYTHONPATH="$dir/root/usr/lib/python3/dist-packages" \
        python3 - "$entry" "http://127.0.0.1:$port/" <<'PY'
import sys, httpx
try:
    result = httpx.get(sys.argv[2]).status_code
except Exception as e:
    result = type(e).__name__
print(sys.argv[1], result)
PY
done)
[ "$seen" = "$EXPECTED" ] || { echo "it changed:"; diff <(echo "$EXPECTED") <(echo "$seen"); exit 1; }
echo "$seen"
