package hosttest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

// NodePackages installs the packages of a package.json into the user's cache, once, and returns
// their directory, node_modules. Node itself is one of them. If npm or its registry can't be
// reached, the test skips, or fails with WISBOX_REQUIRE_NPM.
func NodePackages(t testing.TB, manifest string) string {
	t.Helper()
	modules, err := InstallNode(t.Context(), manifest)
	if err != nil {
		if os.Getenv("WISBOX_REQUIRE_NPM") != "" {
			t.Fatalf("the packages are required (WISBOX_REQUIRE_NPM): %v", err)
		}
		t.Skipf("the packages can't be installed: %v", err)
	}
	return modules
}

// InstallNode is like NodePackages outside of tests.
func InstallNode(ctx context.Context, manifest string) (modules string, err error) {
	text, err := os.ReadFile(manifest)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	dir := filepath.Join(cache, "wisbox-test", "npm-"+hex.EncodeToString(sum[:6]))
	modules = filepath.Join(dir, "node_modules")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	lock := flock.New(dir + ".lock")
	if err := lock.Lock(); err != nil {
		return "", err
	}
	defer lock.Close()
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err == nil {
		return modules, nil
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), text, 0o600); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	if out, err := exec.CommandContext(ctx, filepath.Join(modules, "node/bin/node"), "--version").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return modules, os.WriteFile(done, nil, 0o600)
}
