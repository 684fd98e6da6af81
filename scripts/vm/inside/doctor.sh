# doctor says nothing that is false: root's machine enforces everything, a user's all but what it shares with this user's other programs.
LIMIT=3600 check 'doctor finds nothing broken, and nothing unenforced' <<'E'
wisbox doctor | tee said || true
cat said
fails grep '^broken' said
case $(id -u) in
0) fails grep -P '^not enforced +(?!devices )\S' said ;; # Debian's crun changes device nodes, and wisbox puts them back
*) fails grep -P '^not enforced +(?!counters )\S' said ;; # the kernel counts some things by user
esac
grep -E '^ok +egress ' said
E
