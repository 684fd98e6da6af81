package cluster

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
)

// TestAHolderThatIsKilledLosesProgramsAndNoFiles: the next call starts another one.
func TestAHolderThatIsKilledLosesProgramsAndNoFiles(t *testing.T) {
	p := newPod(t)
	s := p.open(p.manager(), wisbox.SessionOptions{Limits: limits})
	said(t, s, "echo kept >file; echo gone >/tmp/file")
	program := runs(t, s)
	p.kill("__hold")
	res, err := program.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, sandbox.StatusSandboxLost, res.Status)
	assert.Equal(t, "kept\ngone", said(t, s, "cat file /tmp/file"), "the container is the same")
	assert.Equal(t, "0", said(t, s, "pgrep -c 'sleep' || true"))
	lostIsReported(t, s)
}

// TestAHolderContainerThatIsKilledIsStartedAgain by the kubelet.
func TestAHolderContainerThatIsKilledIsStartedAgain(t *testing.T) {
	p := newPod(t)
	s := p.open(p.manager(), wisbox.SessionOptions{Limits: limits})
	said(t, s, "echo kept >file")
	program := runs(t, s)
	p.kill("__pod")
	_, err := program.Wait(t.Context())
	require.Error(t, err)
	p.restarted("holder")
	assert.Equal(t, "kept", said(t, s, "cat file"))
	assert.Equal(t, "0", said(t, s, "pgrep -c 'sleep' || true"))
	lostIsReported(t, s)
	require.NoError(t, p.manager().Remove(t.Context(), p.session))
	p.ended()
}

// TestProgramsContainerThatIsKilledIsALostSandbox: its files are the session's, /tmp isn't.
func TestProgramsContainerThatIsKilledIsALostSandbox(t *testing.T) {
	p := newPod(t)
	s := p.open(p.manager(), wisbox.SessionOptions{Limits: limits, Secrets: map[string]wisbox.Secret{"TOKEN": {Value: []byte("a secret value")}}})
	said(t, s, "echo kept >file; echo here >/tmp/file")
	program := runs(t, s)
	p.kill("wisbox-agent serve")
	res, err := program.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, sandbox.StatusSandboxLost, res.Status)
	p.restarted("programs")
	assert.Equal(t, "kept", said(t, s, "cat file"))
	assert.Equal(t, "gone", said(t, s, "cat /tmp/file 2>/dev/null || echo gone"))
	assert.Equal(t, "14", said(t, s, "wc -c </run/secrets/TOKEN"))
}

// runs is a program that doesn't end by itself.
func runs(t *testing.T, s *wisbox.Session) sandbox.Process {
	t.Helper()
	p, err := s.Start(t.Context(), sandbox.Cmd{Argv: []string{"sleep", "600"}})
	require.NoError(t, err)
	return p
}

func lostIsReported(t *testing.T, s *wisbox.Session) {
	t.Helper()
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	assert.Contains(t, strings.Join(in.Gaps, "\n"), "lost")
}
