#!/bin/bash
# conmon 2.1.6+ds1-1 of Debian 12, which writes the logs of Podman's containers (podman run --log-opt max-size=SIZE).
#
# What one would guess: of the output the newest SIZE bytes are kept, or twice as much in two files that take turns.
#
# What happens: each line takes 45 bytes more, for the time, the stream and a sign, and these count. When the file has
# reached SIZE, it begins again, and what was in it is gone. So of 190,000 bytes in short lines, with a limit of 1,000,000, a
# few percent are left.
#
# Output seen:
EXPECTED="\
bytes that a line of 10 takes: 55
lines of 19000 that are left: fewer than 2000
the last of them: 000019000
files of the log: 1"
set -euo pipefail
dir=$(mktemp -d)
chmod 755 "$dir"
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir -p lists/partial root bundle exits log sockets
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main" >sources.list
apt=(apt-get -qq -o "Dir::Etc::SourceList=$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$dir/lists" -o APT::Sandbox::User=root)
"${apt[@]}" update
"${apt[@]}" download conmon=2.1.6+ds1-1
dpkg-deb -x conmon_*.deb root
# What conmon asks to create a container: a program is enough.
cat >runtime <<'END'
#!/bin/bash
while [ $# -gt 0 ]; do
    [ "$1" = --pid-file ] && pidfile=$2
    shift
done
[ -n "${pidfile:-}" ] || exit 0
seq -f %09g 19000 &
printf %s $! >"$pidfile"
END
chmod +x runtime
root/usr/bin/conmon --api-version 1 --cid numbers --cuuid numbers --name numbers --runtime "$dir/runtime" --bundle "$dir/bundle" --container-pidfile "$dir/pid" \
    --socket-dir-path "$dir/sockets" --exit-dir "$dir/exits" --log-path "k8s-file:$dir/log/of-numbers" --log-size-max 1000000 --sync 2>messages
for _ in {1..600}; do
    [ -e exits/numbers ] && break
    sleep 0.1
done
lines=$(wc -l <log/of-numbers)
left=$([ "$lines" -lt 2000 ] && echo fewer than 2000 || echo "$lines")
seen="\
bytes that a line of 10 takes: $(tail -n 1 log/of-numbers | wc -c)
lines of 19000 that are left: $left
the last of them: $(tail -n 1 log/of-numbers | cut -d ' ' -f 4)
files of the log: $(ls log | wc -l)"
[ "$seen" = "$EXPECTED" ] || { echo "it changed:"; diff <(echo "$EXPECTED") <(echo "$seen"); exit 1; }
echo "$seen"
