# The suite that every backend passes.
LIMIT=12000 check "the backend's suite" <<'E'
cd /opt/wisbox
WISBOX_TEST_IMAGE=$IMAGE ./podman.test -test.v -test.timeout 3h -test.run "^TestPodmanPassesTheSuite\$${CHECKS:+/$CHECKS}"
E
