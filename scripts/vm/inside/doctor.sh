# doctor says nothing that is false: root's machine enforces everything, a user's all but the disk.
LIMIT=3600 check 'doctor finds nothing broken, and nothing unenforced' <<'E'
wisbox doctor | tee said || true
cat said
fails grep '^broken' said
case $(id -u) in
0) fails grep 'not enforced' said ;;
*) fails grep -E 'not enforced +(memory|cpus|pids|tmp|nofile|sockets|network|rights|signals|seccomp|root|ownership|pause|egress)' said ;;
esac
E
