# Containers that eight processes of one user create at the same time, 50 each: none fails, and all take no longer than one after another.
LIMIT=12000 check "eight processes create $CREATES containers each" <<'E'
cd /opt/wisbox
WISBOX_BIN=/opt/wisbox/wisbox WISBOX_TEST_CREATES=$CREATES ./integration.test -test.v -test.timeout 3h -test.run 'TestHundredsOfContainersOfEightProcesses$' 2>&1 | tee ~/bed/creates.txt
E
grep ' together, ' ~/bed/creates.txt
