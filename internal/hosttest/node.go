package hosttest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"
)

// NodePackages installs the packages of a package.json into the user's cache, once, and
// gives their directory, node_modules. One of them is node. Where npm or its registry is
// out of reach the test skips, or fails with WISBOX_REQUIRE_NPM.
func NodePackages(t testing.TB, manifest string) string {
	t.Helper()
	text, err := os.ReadFile(manifest)
	require.NoError(t, err)
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	sum := sha256.Sum256(text)
	dir := filepath.Join(cache, "wisbox-test", "npm-"+hex.EncodeToString(sum[:6]))
	if out, err := installNode(t, dir, text); err != nil {
		if os.Getenv("WISBOX_REQUIRE_NPM") != "" {
			t.Fatalf("the packages are required (WISBOX_REQUIRE_NPM): %v\n%s", err, out)
		}
		t.Skipf("the packages can't be installed: %v\n%s", err, out)
	}
	return filepath.Join(dir, "node_modules")
}

func installNode(t testing.TB, dir string, manifest []byte) ([]byte, error) {
	require.NoError(t, os.MkdirAll(dir, 0o700))
	lock := flock.New(dir + ".lock")
	require.NoError(t, lock.Lock())
	defer lock.Close()
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err == nil {
		return nil, nil
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "package.json"), manifest, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return out, err
	}
	if out, err := exec.CommandContext(ctx, filepath.Join(dir, "node_modules/node/bin/node"), "--version").CombinedOutput(); err != nil {
		return out, err
	}
	return nil, os.WriteFile(done, nil, 0o600)
}
