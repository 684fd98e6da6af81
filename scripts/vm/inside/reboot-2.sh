check 'files are there, and a call works' <<'E'
[ "$(wisbox exec kept -- cat f)" = more ]
wisbox log verify kept
E

check 'undo goes back over the reboot' <<'E'
wisbox undo kept || wisbox undo kept
for _ in 1 2 3; do [ "$(wisbox exec kept -- cat f)" != data ] || exit 0; wisbox undo kept; done
exit 1
E

check 'a paused session resumes' <<'E'
wisbox session resume frozen
[ "$(wisbox exec frozen -- cat f)" = ice ]
E

check 'nothing is left' <<'E'
wisbox rm kept frozen
wisbox prune
no_containers
mount >mounts
fails grep wisbox/sessions mounts
[ -z "$(losetup -a)" ]
E
