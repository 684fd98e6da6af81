package podman

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

func TestWithoutRunscTheErrorSaysWhatToInstall(t *testing.T) {
	podman := filepath.Join(t.TempDir(), "podman")
	require.NoError(t, os.WriteFile(podman, []byte("#!/bin/sh\nexit 1\n"), 0o755))
	b, err := New(t.Context(), &Options{Podman: podman, Runsc: "no-such-runsc", RuntimeDir: t.TempDir()})
	require.NoError(t, err)
	_, err = b.Create(t.Context(), sandbox.Spec{ID: "a", Image: "i", Workspace: t.TempDir(), Isolation: sandbox.IsolationGVisor})
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.ErrorContains(t, err, "gvisor.dev/docs/user_guide/install")
	require.ErrorContains(t, err, "WISBOX_RUNSC")
}

func TestAServiceWithAnotherRuntimeMakesNoWeakerSandbox(t *testing.T) {
	b, _ := newFake(t)
	spec := fakeSpec(t)
	spec.Isolation = sandbox.IsolationGVisor
	_, err := b.Create(t.Context(), spec)
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.ErrorContains(t, err, "its runtime is not gVisor's runsc")
}

func TestAnUnknownIsolationIsInvalid(t *testing.T) {
	b, err := New(t.Context(), nil)
	require.NoError(t, err)
	_, err = b.Create(t.Context(), sandbox.Spec{ID: "a", Image: "i", Workspace: t.TempDir(), Isolation: "vm"})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
}

// gVisor would leave it out without a word.
func TestASeccompProfileForGVisorIsInvalid(t *testing.T) {
	b, err := New(t.Context(), nil)
	require.NoError(t, err)
	spec := sandbox.Spec{ID: "a", Image: "i", Workspace: t.TempDir(), Isolation: sandbox.IsolationGVisor, Seccomp: "/profile.json"}
	_, err = b.Create(t.Context(), spec)
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	require.ErrorContains(t, err, "loads no profile")
}

// TestGVisorsLimitsAreReadOnTheHost: what gVisor shows inside is its own.
func TestGVisorsLimitsAreReadOnTheHost(t *testing.T) {
	for name, c := range map[string]struct {
		files   map[string]string
		version int
		want    map[string]string
	}{
		"version 1": {map[string]string{
			"proc/7/cgroup": "8:pids:/p/x\n4:memory:/p/x\n1:cpu,cpuacct:/p/x\n0::/\n",
			"sys/fs/cgroup/memory/p/x/memory.limit_in_bytes": "1024\n",
			"sys/fs/cgroup/pids/p/x/pids.max":                "64\n",
			"sys/fs/cgroup/cpu/p/x/cpu.cfs_quota_us":         "50000\n",
			"sys/fs/cgroup/cpu/p/x/cpu.cfs_period_us":        "100000\n",
		}, 1, map[string]string{"memory": "1024", "pids": "64", "cpu": "50000", "cpu_period": "100000"}},
		"version 2": {map[string]string{
			"proc/7/cgroup":                "0::/p/x\n",
			"sys/fs/cgroup/p/x/memory.max": "1024\n",
			"sys/fs/cgroup/p/x/pids.max":   "max\n",
			"sys/fs/cgroup/p/x/cpu.max":    "50000 100000\n",
		}, 2, map[string]string{"memory": "1024", "pids": "max", "cpu": "50000 100000"}},
		"no group at all": {nil, 2, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, version := hostLimits(fakeHost(t, c.files), 7)
			require.Equal(t, c.want, got)
			require.Equal(t, c.version, version)
		})
	}
}

// fakeHost is a root directory with these files.
func fakeHost(t *testing.T, files map[string]string) string {
	root := t.TempDir()
	for file, text := range files {
		path := filepath.Join(root, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return root
}
