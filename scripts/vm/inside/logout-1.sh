# A kept session over a log-out: this login leaves it, logout-2 finds it.
check 'a session that stays' <<'E'
wisbox session create stay
wisbox exec -d stay -- sh -c 'while :; do echo x >>beat; sleep 1; done'
wisbox eval python --session stay --keep 'y = 5'
until wisbox exec stay -- test -s beat; do sleep 0.5; done
E
