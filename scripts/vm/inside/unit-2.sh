# Between unit-1 and this, the last login of root ended and began again.
check 'the next login finds the same holder' <<'E'
[ "$(wisbox --json ps unit | json 'd["processes"][0]["state"]')" = running ]
[ "$(wisbox eval python --session unit --keep y)" = 5 ]
[ "$(pgrep -fc '__hold unit$')" = 1 ]
E

check 'so does one without a runtime directory' <<'E'
[ "$(env -u XDG_RUNTIME_DIR -u DBUS_SESSION_BUS_ADDRESS wisbox eval python --session unit --keep y)" = 5 ]
[ "$(pgrep -fc '__hold unit$')" = 1 ]
LIMIT=200 env -u XDG_RUNTIME_DIR wisbox rm unit
fails pgrep -f '__hold unit$'
no_containers
E
