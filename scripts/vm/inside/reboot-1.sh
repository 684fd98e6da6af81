# A reboot: reboot-2 finds files, undo, log, and a session that was paused.
check 'sessions before a reboot' <<'E'
wisbox session create kept --auto-snapshot
wisbox exec kept -- sh -c 'echo data >f'
wisbox exec kept -- sh -c 'echo more >f'
wisbox exec -d kept -- sleep 50000
wisbox session create frozen
wisbox exec frozen -- sh -c 'echo ice >f'
wisbox session pause frozen
sync
E
