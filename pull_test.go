package wisbox_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
	"github.com/wisbox/wisbox/tool"
)

// registry is a backend that can pull.
type registry struct {
	*sandboxtest.Host
	fails  error // of the store
	denies error // of the registry

	mu     sync.Mutex
	has    map[string]bool
	pulled []string
}

func (b *registry) ImageInfo(_ context.Context, ref string) (sandbox.ImageInfo, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails != nil {
		return sandbox.ImageInfo{}, b.fails
	}
	if !b.has[ref] {
		return sandbox.ImageInfo{}, sandbox.ErrNotFound
	}
	return sandbox.ImageInfo{ID: "abc"}, nil
}

func (b *registry) PullImage(_ context.Context, ref string, opts *sandbox.PullOptions) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pulled = append(b.pulled, ref)
	opts.Progress("Copying blob abc")
	if b.denies != nil {
		return b.denies
	}
	b.has[ref] = true
	return nil
}

const remote = "reg.example/node:22"

func newRegistry(has ...string) *registry {
	b := &registry{Host: sandboxtest.NewHost(), has: map[string]bool{}}
	for _, name := range has {
		b.has[name] = true
	}
	return b
}

func TestAnImageIsPulledWhenAsked(t *testing.T) {
	for name, c := range map[string]struct {
		opts   wisbox.SessionOptions
		has    []string
		pulled []string
	}{
		"missing, by default":       {wisbox.SessionOptions{Image: remote}, nil, []string{remote}},
		"missing":                   {wisbox.SessionOptions{Image: remote, Pull: wisbox.PullMissing}, nil, []string{remote}},
		"there":                     {wisbox.SessionOptions{Image: remote}, []string{remote}, nil},
		"there, always":             {wisbox.SessionOptions{Image: remote, Pull: wisbox.PullAlways}, []string{remote}, []string{remote}},
		"never":                     {wisbox.SessionOptions{Image: remote, Pull: wisbox.PullNever}, nil, nil},
		"wisbox's own":              {wisbox.SessionOptions{}, nil, nil},
		"wisbox's own, missing":     {wisbox.SessionOptions{Pull: wisbox.PullMissing}, nil, nil},
		"below localhost":           {wisbox.SessionOptions{Image: "localhost/mine:1", Pull: wisbox.PullMissing}, nil, nil},
		"without a registry":        {wisbox.SessionOptions{Image: "node:22"}, nil, nil},
		"another version's default": {wisbox.SessionOptions{Image: "localhost/wisbox:0123456789ab"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRegistry(c.has...)
			var told []wisbox.PullProgress
			c.opts.OnPull = func(p wisbox.PullProgress) { told = append(told, p) }
			m, _ := manager(t, wisbox.Options{Backend: b})
			s, err := m.Open(t.Context(), &c.opts)
			require.NoError(t, err)
			defer s.Close(t.Context())
			assert.Equal(t, c.pulled, b.pulled)
			if c.pulled != nil {
				assert.Equal(t, []wisbox.PullProgress{{Image: remote}, {Image: remote, Step: "Copying blob abc"}, {Image: remote, Done: true}}, told)
			} else {
				assert.Empty(t, told)
			}
		})
	}
}

func TestAPullThatMakesNoSenseIsRefused(t *testing.T) {
	for _, opts := range []wisbox.SessionOptions{
		{Pull: wisbox.PullAlways}, {Image: "localhost/mine", Pull: wisbox.PullAlways}, {Image: "node:22", Pull: wisbox.PullAlways}, {Image: remote, Pull: "sometimes"},
	} {
		err := opts.Check()
		assert.Equal(t, tool.Invalid, tool.KindOf(err), "%v", opts)
		assert.Equal(t, "pull", tool.AsError(err).Field)
	}
}

func TestAPullThatFailsLeavesNoSession(t *testing.T) {
	b := newRegistry()
	b.denies = fmt.Errorf("%w: the registry wants a login", sandbox.ErrUnavailable)
	m, _ := manager(t, wisbox.Options{Backend: b})
	var done bool
	_, err := m.Open(t.Context(), &wisbox.SessionOptions{Image: remote, Name: "box", Kept: true, OnPull: func(p wisbox.PullProgress) { done = p.Done }})
	assert.EqualError(t, err, "unavailable: the registry wants a login")
	assert.True(t, done, "a line on a terminal has to go")
	all, err := m.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, all)
}

// TestASessionsFilesNeedNoPodman: without Podman, only the first program fails.
func TestASessionsFilesNeedNoPodman(t *testing.T) {
	b := newRegistry()
	b.fails = fmt.Errorf("%w: no podman", sandbox.ErrUnavailable)
	m, _ := manager(t, wisbox.Options{Backend: b})
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Image: remote})
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))
	_, err = m.Open(t.Context(), &wisbox.SessionOptions{Image: remote, Pull: wisbox.PullMissing})
	assert.EqualError(t, err, "unavailable: no podman", "it was asked for")
}

func TestABackendThatPullsNothingSaysSo(t *testing.T) {
	m, _ := manager(t, wisbox.Options{Backend: sandboxtest.NewHost()})
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Image: remote})
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))
	_, err = m.Open(t.Context(), &wisbox.SessionOptions{Image: remote, Pull: wisbox.PullAlways})
	assert.Equal(t, tool.Unsupported, tool.KindOf(err))
}

func TestSessionsOpenedAtOncePullOnce(t *testing.T) {
	b := newRegistry()
	m, _ := manager(t, wisbox.Options{Backend: b})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			s, err := m.Open(t.Context(), &wisbox.SessionOptions{Image: remote})
			if assert.NoError(t, err) {
				assert.NoError(t, s.Close(t.Context()))
			}
		})
	}
	group.Wait()
	assert.Equal(t, []string{remote}, b.pulled)
}

// TestAnArchiveMakesNobodyPull, since a stranger may have named its image.
func TestAnArchiveMakesNobodyPull(t *testing.T) {
	b := newRegistry(remote)
	m, _ := manager(t, wisbox.Options{Backend: b})
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Image: remote})
	require.NoError(t, err)
	defer s.Close(t.Context())
	var archive bytes.Buffer
	_, err = s.Save(t.Context(), &archive)
	require.NoError(t, err)
	b.has = map[string]bool{}
	loaded, err := m.Load(t.Context(), &archive, nil)
	require.NoError(t, err)
	defer loaded.Close(t.Context())
	assert.Empty(t, b.pulled)
}

// TestAnImageThatALoadNamesIsPulled: that is its caller's, and not the archive's.
func TestAnImageThatALoadNamesIsPulled(t *testing.T) {
	b := newRegistry()
	m, _ := manager(t, wisbox.Options{Backend: b})
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	defer s.Close(t.Context())
	var archive bytes.Buffer
	_, err = s.Save(t.Context(), &archive)
	require.NoError(t, err)
	content := archive.Bytes()
	loaded, err := m.Load(t.Context(), bytes.NewReader(content), &wisbox.LoadOptions{Settings: &wisbox.SessionOptions{Image: remote}})
	require.NoError(t, err)
	defer loaded.Close(t.Context())
	assert.Equal(t, []string{remote}, b.pulled)
	b.has, b.denies = map[string]bool{}, fmt.Errorf("%w: denied", sandbox.ErrUnavailable)
	_, err = m.Load(t.Context(), bytes.NewReader(content), &wisbox.LoadOptions{Settings: &wisbox.SessionOptions{Image: remote}})
	require.EqualError(t, err, "unavailable: denied")
}
