package hosttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// KubeconfigOf writes a kubeconfig with the context "prod" for an API server at url, and returns its path.
func KubeconfigOf(t testing.TB, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"contexts":[{"name":"prod","context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":"` + url + `"}}]}`
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Kubeconfig returns the path of the kubeconfig in $WISBOX_TEST_KUBECONFIG, of a Kubernetes that
// tests may change at will. Its current context must be an administrator's. Without one the test
// skips, or fails with $WISBOX_REQUIRE_CLUSTER.
func Kubeconfig(t testing.TB) string {
	t.Helper()
	path := os.Getenv("WISBOX_TEST_KUBECONFIG")
	switch {
	case path != "":
	case os.Getenv("WISBOX_REQUIRE_CLUSTER") != "":
		t.Fatal("a Kubernetes is required (WISBOX_REQUIRE_CLUSTER), and WISBOX_TEST_KUBECONFIG names none")
	default:
		t.Skip("WISBOX_TEST_KUBECONFIG names no Kubernetes for tests")
	}
	return path
}

// LoadImage loads an image's archive into that Kubernetes, with the command in $WISBOX_TEST_LOAD,
// such as "kind load image-archive".
func LoadImage(archive string) error {
	words := strings.Fields(os.Getenv("WISBOX_TEST_LOAD"))
	if len(words) == 0 {
		return fmt.Errorf("WISBOX_TEST_LOAD names no command that loads an image")
	}
	cmd := exec.Command(words[0], append(words[1:], archive)...) //nolint:gosec // the tester's own
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", words, err, out)
	}
	return nil
}
