package wisbox_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
	"github.com/wisbox/wisbox/tool"
)

// beside is a backend whose sandboxes claim to have companions.
type beside struct {
	sandbox.Backend

	mu      sync.Mutex
	started []string
}

func (b *beside) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	sb, err := b.Backend.Create(ctx, spec)
	return besideSandbox{sb, b}, err
}

type besideSandbox struct {
	sandbox.Sandbox
	*beside
}

// Unwrap is for [sandbox.As].
func (s besideSandbox) Unwrap() sandbox.Sandbox { return s.Sandbox }

func (s besideSandbox) Accompany(_ context.Context, all []sandbox.Companion) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range all {
		s.started = append(s.started, c.Name+" "+c.Image)
	}
	return nil
}

func (s besideSandbox) Companions(context.Context) ([]sandbox.CompanionState, error) {
	return []sandbox.CompanionState{{Name: "db", Image: "localhost/db", State: "running"}}, nil
}

func (s besideSandbox) CompanionOutput(_ context.Context, name string, lines int, stdout, _ io.Writer) error {
	_, err := io.WriteString(stdout, name+" has the secret s3cret-of-8-bytes\n")
	return err
}

var aService = []sandbox.Companion{{Name: "db", Image: "localhost/db"}}

// TestServicesStartWithTheFirstProgram, once, and keep the holder alive, because their data would
// be lost with it.
func TestServicesStartWithTheFirstProgram(t *testing.T) {
	b := &beside{Backend: sandboxtest.NewHost()}
	s, m, ended := heldBy(t, 10*time.Millisecond, wisbox.SessionOptions{Services: aService}, wisbox.Options{Backend: b})
	err := s.ServiceOutput(t.Context(), "db", nil)
	require.Equal(t, tool.NotFound, tool.KindOf(err))
	require.ErrorContains(t, err, "first program")
	for range 2 {
		_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"db localhost/db"}, b.started)
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "running", in.Services[0].State)
	require.ErrorContains(t, s.ServiceOutput(t.Context(), "web", nil), `process or service "web" not found`)
	require.Equal(t, tool.Unsupported, tool.KindOf(s.ServiceOutput(t.Context(), "db", &wisbox.OutputOptions{Follow: true})))
	require.NoError(t, s.Close(t.Context()))
	select {
	case err := <-ended:
		t.Fatal("the holder left its services: ", err)
	case <-time.After(300 * time.Millisecond):
	}
	require.NoError(t, m.Remove(t.Context(), "box"))
	assert.NoError(t, <-ended)
}

// TestTheOutputOfAServiceHasNoSecret of the session's.
func TestTheOutputOfAServiceHasNoSecret(t *testing.T) {
	m, _ := manager(t, wisbox.Options{Backend: &beside{Backend: sandboxtest.NewHost()}})
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Services: aService, Secrets: map[string]wisbox.Secret{"KEY": {Value: []byte("s3cret-of-8-bytes")}}})
	require.NoError(t, err)
	defer s.Close(t.Context())
	_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, s.ServiceOutput(t.Context(), "db", &wisbox.OutputOptions{Stdout: &out}))
	assert.Equal(t, "db has the secret "+strings.Repeat("*", len("s3cret-of-8-bytes"))+"\n", out.String())
}

// TestServicesNeedABackendThatHasThem: nothing runs without one.
func TestServicesNeedABackendThatHasThem(t *testing.T) {
	m, _ := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Services: aService})
	require.NoError(t, err)
	defer s.Close(t.Context())
	_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	require.Equal(t, tool.Unsupported, tool.KindOf(err), "%v", err)
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "none yet", in.Services[0].State)
}
