package envd

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/hosttest"
)

// TestThePublishedSDK uses a sandbox with E2B's own SDK. Its control API consists of three answers.
func TestThePublishedSDK(t *testing.T) {
	modules := hosttest.NodePackages(t, "testdata/package.json")
	b := serve(t, wisbox.SessionOptions{})
	control := http.NewServeMux()
	const id = "aaaaaaaaaaaaaaaaaaaa"
	create := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(object{
			"sandboxID": id, "templateID": "base", "clientID": "local", "envdVersion": "0.6.13", "envdAccessToken": token,
			"trafficAccessToken": nil, "domain": nil,
		})
	}
	control.HandleFunc("POST /sandboxes", create)
	control.HandleFunc("POST /v2/sandboxes", create)
	control.HandleFunc("DELETE /sandboxes/"+id, func(w http.ResponseWriter, _ *http.Request) {
		b.end()
		w.WriteHeader(http.StatusNoContent)
	})
	server := httptest.NewServer(control)
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	script, err := filepath.Abs("testdata/sdk.mjs")
	require.NoError(t, err)
	text, err := os.ReadFile(script)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sdk.mjs"), text, 0o600))
	require.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	cmd := exec.CommandContext(ctx, filepath.Join(modules, "node/bin/node"), "--preserve-symlinks", "--preserve-symlinks-main", "sdk.mjs")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "E2B_API_URL=" + server.URL, "E2B_SANDBOX_URL=" + b.url, "E2B_API_KEY=e2b_" + "0123456789abcdef0123456789abcdef01234567"}
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}
