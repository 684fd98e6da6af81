check 'the session is as it was left' <<'E'
wisbox --json ps stay | tee /dev/stderr | json 'd["processes"][0]["state"]' | grep -x running
[ "$(wisbox eval python --session stay --keep y)" = 5 ]
[ "$(pgrep -fc '__hold stay$')" = 1 ]
wisbox log verify stay
wisbox rm stay
no_containers
E
