package pods

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// TestAnyImageInAPod tests an image of busybox alone, with its own user, entry point and PATH, and an empty
// image.
func TestAnyImageInAPod(t *testing.T) {
	n := newNamespace(t)
	small := n.image("small", "FROM scratch\nCOPY busybox /bin/busybox\nCOPY busybox /bin/sh\nCOPY busybox /usr/local/bin/wisbox\nENV PATH=/bin COLOR=blue\nUSER 33\nENTRYPOINT [\"/bin/nosuch\"]\n")
	assert.Equal(t, "1000 blue /home\n", n.ok("run", "--image", small, "--", "sh", "-c", "busybox id -u | busybox tr '\\n' ' '; echo $COLOR /home"))
	n.ok("session", "create", "box", "--image", small)
	assert.Equal(t, "one\n", n.ok("exec", "box", "--", "sh", "-c", "echo one >a; busybox cat /workspace/a"))
	assert.Equal(t, "one\n", n.ok("cp", "box:/a", "-"))
	assert.Contains(t, n.ok("session", "inspect", "box"), "the image has no bash, python3")
	_, stderr, code := n.run("call", "box", "evaluate_python", `{"code":"1+1"}`)
	assert.NotZero(t, code)
	assert.Contains(t, stderr, "python3")
	n.ok("rm", "box")

	empty := n.image("empty", "FROM scratch\nCOPY busybox /echo\nCOPY busybox /usr/local/bin/wisbox/directory\n")
	assert.Equal(t, "of it\n", n.ok("run", "--image", empty, "--", "/echo", "of it"))
	_, stderr, code = n.run("run", "--image", empty, "--", "sh", "-c", "true")
	assert.Equal(t, 127, code, stderr)
}

// TestVolumesOfAnImageAreReported checks an image whose VOLUMEs are directories of the node: programs can
// write there.
func TestVolumesOfAnImageAreReported(t *testing.T) {
	n := newNamespace(t)
	ref := n.image("volumes", "FROM scratch\nCOPY busybox /bin/sh\nCOPY --chown=1000:1000 busybox /data/of-the-image\nCOPY --chown=1000:1000 busybox /workspace/x\nVOLUME [\"/data\", \"/with space\", \"/workspace\", \"/tmp\", \"/workspace/sub\"]\n")
	n.ok("session", "create", "box", "--image", ref)
	assert.Equal(t, "written\n", n.ok("exec", "box", "--", "sh", "-c", "echo written >/data/f; busybox cat /data/f"))
	const says = "disk isn't enforced in /data, /with space, /workspace/sub: "
	assert.Contains(t, n.ok("session", "inspect", "box"), "note: "+says)
	n.ok("session", "create", "strict", "--image", ref, "--strict")
	_, stderr, code := n.run("exec", "strict", "--", "sh", "-c", "true")
	assert.NotZero(t, code)
	assert.Contains(t, stderr, says)
	n.ok("rm", "box", "strict")
}

// TestPythonInWebAssembly checks that the default image has it, and that context_op uses it by default.
func TestPythonInWebAssembly(t *testing.T) {
	n := newNamespace(t)
	n.ok("session", "create", "box")
	assert.Contains(t, n.ok("call", "box", "evaluate_python", `{"code":"import sys\n6*7, sys.platform","sandbox":"wasm"}`), `(42, 'wasi')`)
	n.ok("call", "box", "context_load", `{"name":"t","text":"words of a text"}`)
	assert.Contains(t, n.ok("call", "box", "context_op", `{"op":"eval","args":{"code":"result = str(len(t))","inputs":["t"]}}`), "15")
}

// image builds an image, wraps it for Pods, and loads it into the nodes.
func (n *namespace) image(name, containerfile string) string {
	n.t.Helper()
	dir, ref := n.t.TempDir(), "localhost/"+n.name+"-"+name+":1"
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		hosttest.Lacks(n.t, "the Debian package busybox-static is missing; see: make setup")
	}
	require.NoError(n.t, os.WriteFile(filepath.Join(dir, "busybox"), program, 0o755)) //nolint:gosec // a program
	require.NoError(n.t, os.WriteFile(filepath.Join(dir, "Containerfile"), []byte(containerfile), 0o600))
	n.here("podman", "build", "-q", "-t", ref, dir)
	n.t.Cleanup(func() { n.here("podman", "rmi", ref) })
	wrapped := strings.Fields(n.here(hosttest.Binary(n.t), "image", "wrap", ref))[0]
	n.t.Cleanup(func() { n.here("podman", "rmi", wrapped) })
	assert.Equal(n.t, "localhost/wisbox-pod-"+n.name+"-"+name+":1", wrapped)
	n.here("podman", "save", "-q", "-o", filepath.Join(dir, "image.tar"), wrapped)
	require.NoError(n.t, hosttest.LoadImage(filepath.Join(dir, "image.tar")))
	return wrapped
}

// here runs a program on this machine.
func (n *namespace) here(argv ...string) string {
	n.t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec // of these tests
	cmd.Env = append(os.Environ(), "WISBOX_CACHE="+filepath.Join(n.dir, "here"))
	out, err := cmd.Output()
	require.NoError(n.t, err, "%v", argv)
	return string(out)
}
