# The main job: all its steps, each asserted by the demo itself.
check 'the demo' <<'E'
cd /opt/wisbox
demo /opt/wisbox/wisbox | tee /dev/stderr | grep -x "all $(demo -steps) steps hold (.*)"
E
