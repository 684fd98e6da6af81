package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/podman"
	"github.com/wisbox/wisbox/tool"
)

// seccompProfile is wisbox's own with something in it replaced.
func seccompProfile(t *testing.T, old, replacement string) string {
	t.Helper()
	own := podman.SeccompProfile()
	path := filepath.Join(t.TempDir(), "profile.json")
	changed := bytes.ReplaceAll(own, []byte(old), []byte(replacement))
	require.NotEqual(t, own, changed)
	require.NoError(t, os.WriteFile(path, changed, 0o600))
	return path
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
