package overlay

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool/answer"
)

// TestTheLastShownAreKept, up to a number of calls and of bytes.
func TestTheLastShownAreKept(t *testing.T) {
	s := newStore(t)
	d := create(t, s, &CreateOptions{ID: "box", Kept: true})
	none, err := s.ShownCalls("box")
	require.NoError(t, err)
	assert.Empty(t, none)
	for i := range maxShownCalls + 10 {
		require.NoError(t, d.KeepShown(fmt.Sprintf("01%03d", i), i))
	}
	calls, err := s.ShownCalls("box")
	require.NoError(t, err)
	require.Len(t, calls, maxShownCalls)
	assert.Equal(t, "01010", calls[0])
	raw, err := s.Shown("box", "01073")
	require.NoError(t, err)
	assert.Equal(t, "73", string(raw))

	half := strings.Repeat("x", maxShownBytes/2-8)
	for i := range 3 {
		require.NoError(t, d.KeepShown(fmt.Sprintf("02%03d", i), half))
	}
	calls, err = s.ShownCalls("box")
	require.NoError(t, err)
	assert.Equal(t, []string{"02001", "02002"}, calls)
	assert.Equal(t, answer.TooLarge, answer.KindOf(d.KeepShown("03", half+half+half)))

	put(t, d.dir, filepath.Join(shownDir, "04.json.new"), "") // left by a process that was killed
	require.NoError(t, d.KeepShown("05", 1))
	calls, err = s.ShownCalls("box")
	require.NoError(t, err)
	assert.Equal(t, []string{"02001", "02002", "05"}, calls)
	_, err = d.dir.Lstat(filepath.Join(shownDir, "04.json.new"))
	assert.Error(t, err)
}

// TestShownOfOthersIsNotThere under any call ID.
func TestShownOfOthersIsNotThere(t *testing.T) {
	s := newStore(t)
	d := create(t, s, &CreateOptions{ID: "box", Kept: true})
	require.NoError(t, d.KeepShown("01", 1))
	for _, call := range []string{"", ".", "..", "../session", "02", "01/", "a/../01", strings.Repeat("x", 300), "01\x00"} {
		_, err := s.Shown("box", call)
		assert.Equal(t, answer.NotFound, answer.KindOf(err), "%q: %v", call, err)
		if call != "02" {
			assert.Error(t, d.KeepShown(call, 1), call)
		}
	}
	_, err := s.Shown("none", "01")
	assert.Equal(t, answer.NotFound, answer.KindOf(err))
	_, err = s.ShownCalls("../box")
	assert.Error(t, err)
}

func TestShownAtOnce(t *testing.T) {
	s := newStore(t)
	d := create(t, s, &CreateOptions{ID: "box", Kept: true})
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() { assert.NoError(t, d.KeepShown(fmt.Sprintf("01%03d", i), i)) })
		all.Go(func() {
			_, err := s.ShownCalls("box")
			assert.NoError(t, err)
		})
	}
	all.Wait()
	calls, err := s.ShownCalls("box")
	require.NoError(t, err)
	assert.Len(t, calls, maxShownCalls)
}
