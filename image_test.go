package wisbox_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
)

// storing is a backend that has some images.
type storing struct {
	*sandboxtest.Host
	has  []string
	made []string // the images of the created sandboxes
}

func (b *storing) ImageInfo(_ context.Context, ref string) (sandbox.ImageInfo, error) {
	if slices.Contains(b.has, ref) {
		return sandbox.ImageInfo{}, nil
	}
	return sandbox.ImageInfo{}, sandbox.ErrNotFound
}

func (b *storing) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	b.made = append(b.made, spec.Image)
	return b.Host.Create(ctx, spec)
}

// TestASessionOfAnotherVersionRunsInTodaysImage if its own is gone; an image that a person named is
// never exchanged.
func TestASessionOfAnotherVersionRunsInTodaysImage(t *testing.T) {
	const older = "localhost/wisbox:0123456789ab"
	for name, c := range map[string]struct {
		asked string
		has   []string
		runs  string
	}{
		"gone":             {older, nil, images.Default},
		"still there":      {older, []string{older}, older},
		"named by a human": {"localhost/mine:1", nil, "localhost/mine:1"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &storing{Host: sandboxtest.NewHost(), has: c.has}
			m, _ := manager(t, wisbox.Options{Backend: b})
			s, err := m.Open(t.Context(), &wisbox.SessionOptions{Image: c.asked})
			require.NoError(t, err)
			defer s.Close(t.Context())
			text(t, s, "shell_execute", `{"commands":["true"]}`)
			assert.Equal(t, []string{c.runs}, b.made)
			in, err := s.Inspect(t.Context())
			require.NoError(t, err)
			assert.Equal(t, c.runs != c.asked, strings.Contains(strings.Join(in.Gaps, "\n"), "is gone"))
		})
	}
}
