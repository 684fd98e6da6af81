//go:build integration

package podman

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/podman/podmantest"
	"github.com/wisbox/wisbox/sandbox"
)

// said runs a shell script in the sandbox and returns its stdout and stderr.
func said(t *testing.T, s *Sandbox, script string) string {
	t.Helper()
	var out bytes.Buffer
	_, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", script}, Stdout: &out, Stderr: &out})
	require.NoError(t, err)
	return out.String()
}

// TestSecretsComeToAnyImage: they need none of its programs.
func TestSecretsComeToAnyImage(t *testing.T) {
	h := newHost(t, nil)
	for name, image := range map[string]string{"ours": testImage(), "alpine-like": h.image(podmantest.AlpineLike(t))} {
		t.Run(name, func(t *testing.T) {
			spec := h.spec("secrets-" + name)
			spec.Image = image
			s := h.create(spec)
			values := map[string][]byte{"A": []byte("first\x00value"), "B": bytes.Repeat([]byte("b"), 64<<10), "--C": []byte("dashes\n\n"), "empty": {}}
			require.NoError(t, s.KeepSecrets(t.Context(), values))
			require.ElementsMatch(t, []string{"--C", "A", "B", "empty"}, strings.Fields(said(t, s, "ls -A /run/secrets")))
			require.Equal(t, "440 0 1000\n", said(t, s, "stat -c '%a %u %g' /run/secrets/A"))
			require.Equal(t, string(values["A"])+string(values["--C"]), said(t, s, "cat /run/secrets/A /run/secrets/--C"))
			require.Contains(t, said(t, s, "rm -f /run/secrets/A; : >/run/secrets/x"), "ermission denied")
			require.NoError(t, s.KeepSecrets(t.Context(), map[string][]byte{"A": []byte("second value"), "B": []byte("too")}))
			require.Equal(t, "second valuetoo", said(t, s, "cat /run/secrets/A /run/secrets/B"))
		})
	}
}

// TestSecretsStayWhenTheContainerIsStartedAgain, although its tmpfs is empty then.
func TestSecretsStayWhenTheContainerIsStartedAgain(t *testing.T) {
	h := newHost(t, nil)
	s := h.create(h.spec("again"))
	require.NoError(t, s.KeepSecrets(t.Context(), map[string][]byte{"A": []byte("value")}))
	require.NoError(t, s.restart(t.Context()))
	require.Equal(t, "value", said(t, s, "cat /run/secrets/A"))
}

// TestSecretsThatFindNoRoomAreRefused, and the earlier ones stay.
func TestSecretsThatFindNoRoomAreRefused(t *testing.T) {
	h := newHost(t, nil)
	s := h.create(h.spec("room"))
	require.NoError(t, s.KeepSecrets(t.Context(), map[string][]byte{"A": []byte("first value")}))
	err := s.KeepSecrets(t.Context(), map[string][]byte{"A": bytes.Repeat([]byte("x"), 2<<20)})
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.NotContains(t, err.Error(), "xxx")
	require.Equal(t, "first value", said(t, s, "cat /run/secrets/A"))
}
