package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/podman"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// seccompProfile writes wisbox's own profile with old replaced.
func seccompProfile(t *testing.T, old, replacement string) string {
	t.Helper()
	own := podman.SeccompProfile()
	path := filepath.Join(t.TempDir(), "profile.json")
	changed := bytes.ReplaceAll(own, []byte(old), []byte(replacement))
	require.NotEqual(t, own, changed)
	require.NoError(t, os.WriteFile(path, changed, 0o600))
	return path
}

// TestNoABIReachesWhatIsForbidden: int 0x80 and x32 call numbers bypass a filter for x86-64, and an int has 32 bits
// even if a filter compares more.
func TestNoABIReachesWhatIsForbidden(t *testing.T) {
	if env.isolation == sandbox.IsolationGVisor {
		return // gVisor's programs use another kernel
	}
	s := open(t, nil)
	f, err := os.Open("testdata/abi.py")
	require.NoError(t, err)
	defer f.Close()
	tried := map[string]int{}
	for line := range strings.SplitSeq(strings.TrimSpace(runWith(t, s, f, "python3", "-")), "\n") {
		words := strings.Fields(line)
		require.Len(t, words, 3, line)
		abi, call, result := words[0], words[1], words[2]
		tried[abi]++
		own := abi == "x86-64" || abi == "aarch64"
		if own && call == "getpid" {
			assert.Equal(t, "ALLOWED", result)
			continue
		}
		assert.Equal(t, "refused", result, line)
	}
	if runtime.GOARCH == "amd64" {
		assert.Len(t, tried, 3)
	}
	for abi, n := range tried {
		assert.Greater(t, n, 100, abi)
	}
}

func TestAGivenSeccompProfileHoldsAndAWeakerOneIsSaidSo(t *testing.T) {
	s := open(t, &wisbox.SessionOptions{Seccomp: seccompProfile(t, `"symlinkat"`, `"getpid"`)})
	assert.Contains(t, script(t, s, "ln -s a b").str("stderr"), "Operation not permitted")
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	assert.NotContains(t, strings.Join(in.Gaps, "\n"), "seccomp")

	weaker := seccompProfile(t, `"syscalls": [`, `"syscalls": [{"names":["userfaultfd"],"action":"SCMP_ACT_ALLOW"},`)
	s = open(t, &wisbox.SessionOptions{Seccomp: weaker, Strict: true})
	_, err = try(t, s, "shell_execute", args{"commands": []string{"true"}})
	require.Equal(t, tool.Unavailable, kind(err))
	assert.ErrorContains(t, err, "forbids: userfaultfd")
}
