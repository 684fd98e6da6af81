# A unit of the system, which has no login, and logins of root: one session, one holder, wherever one asks from.
check 'a unit makes a session, a login uses it' <<'E'
printf '#!/bin/bash\nset -euo pipefail\nexport PATH=%s WISBOX_SLOW=%s\nwisbox session create unit\nwisbox exec -d unit -- sleep 40000\nwisbox eval python --session unit --keep "y = 5"\n' "$PATH" "$WISBOX_SLOW" >unit.sh
chmod +x unit.sh
systemd-run --wait --pipe --unit=bed --setenv=HOME=/root --property=KillMode=process ~/bed/unit.sh
[ "$(wisbox --json ps unit | json 'd["processes"][0]["state"]')" = running ]
[ "$(wisbox eval python --session unit --keep y)" = 5 ]
[ "$(pgrep -fc '__hold unit$')" = 1 ]
E
