# A user without a login: no runtime directory, no session bus. It works, with fewer limits, and says which.
check 'run, without a login' <<'E'
[ "$(env -u XDG_RUNTIME_DIR -u DBUS_SESSION_BUS_ADDRESS WISBOX_CACHE=$HOME/bed/nobus wisbox run -- echo on)" = on ]
E

check 'doctor, without a login' <<'E'
env -u XDG_RUNTIME_DIR -u DBUS_SESSION_BUS_ADDRESS WISBOX_CACHE=$HOME/bed/nobus wisbox --json doctor >nobus.json || true
cat nobus.json
json '[l for l in d["lines"] if l["status"] == "broken"]' <nobus.json | grep -x '\[\]'
E
