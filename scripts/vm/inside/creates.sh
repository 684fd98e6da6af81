# Containers that eight processes of one user create at the same time, 50 each: none fails.
check 'eight processes create 50 containers each' <<'E'
cd /opt/wisbox
WISBOX_BIN=/opt/wisbox/wisbox ./integration.test -test.v -test.timeout 3h -test.run 'TestHundredsOfContainersOfEightProcesses$'
E
