//go:build integration

package podman

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// TestARuntimeLeavesNoDeviceNodeChanged: a runtime in whose place a script changes a node of the test before it calls the real one, or fails.
func TestARuntimeLeavesNoDeviceNodeChanged(t *testing.T) {
	d, log := standInDevices(t)
	service, err := newHost(t, nil).Service(t.Context())
	require.NoError(t, err)
	name, _, _ := strings.Cut(service.Runtime, " ")
	script, fail := filepath.Join(t.TempDir(), "runtime"), filepath.Join(t.TempDir(), "fail")
	require.NoError(t, os.WriteFile(script, fmt.Appendf(nil, `#!/bin/sh
case " $* " in *" start "*|*" create "*)
	chown 100999:5 %[1]s/null; chmod 600 %[1]s/zero
	[ ! -e %[2]s ] || { echo "it does not start" >&2; exit 1; };;
esac
exec %[3]s "$@"
`, d.dirs[0], fail, runtimePath(name)), 0o755))
	h := newHost(t, &Options{Runtime: script})
	h.devices = d
	null, zero := d.node("null"), d.node("zero")
	s := h.create(h.spec("devices"))
	out, _ := sh(t, s, "echo works")
	assert.Equal(t, "works\n", out)
	assert.Equal(t, 2, strings.Count(log.String(), "it was put back"), log.String())
	assert.Equal(t, []deviceNode{null, zero}, []deviceNode{d.node("null"), d.node("zero")})
	require.NoError(t, s.Close(t.Context()))

	log.Reset()
	require.NoError(t, os.WriteFile(fail, nil, 0o600))
	_, err = h.Create(t.Context(), h.spec("fails"))
	require.Error(t, err)
	assert.Contains(t, log.String(), "it was put back")
	assert.Equal(t, []deviceNode{null, zero}, []deviceNode{d.node("null"), d.node("zero")})
}

// TestAStepCantLiftTheLimitsOfItsBuild: it is root, and its own cgroup may be writable.
func TestAStepCantLiftTheLimitsOfItsBuild(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a rootless step has no cgroup of its own to write to")
	}
	h := newHost(t, nil)
	var said strings.Builder
	lift := `for f in memory.memsw.limit_in_bytes memory.limit_in_bytes; do echo -1 > /sys/fs/cgroup/memory/$f && echo lifted $f; done
echo max > /sys/fs/cgroup/memory.max && echo lifted memory.max
python3 -c 'x = bytearray(400 << 20); print(len(x), "bytes")' || echo ended by $?
`
	err := h.BuildImage(t.Context(), tarOf(t, map[string]string{
		"lift.sh": lift, "Containerfile": "FROM " + testImage() + "\nUSER root\nCOPY lift.sh /\nRUN sh /lift.sh\n",
	}), sandbox.ImageBuild{Tag: "localhost/wisbox-test-lift:1", Memory: 128 << 20, CPUs: 0.5, NoNetwork: true, Progress: func(s string) { said.WriteString(s + "\n") }})
	require.NoError(t, err, said.String())
	t.Cleanup(func() {
		_ = h.do(context.Background(), request{method: "DELETE", path: imagePath("localhost/wisbox-test-lift:1", ""), query: url.Values{"force": {"true"}}})
	})
	assert.Contains(t, said.String(), "ended by 137", said.String())
	assert.NotContains(t, said.String(), "419430400")
}
