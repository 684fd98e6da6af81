package far_test

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/tool"
)

// TestAListHasRoomForSoMuch, and a directory that has more is an error, whatever its names are of.
func TestAListHasRoomForSoMuch(t *testing.T) {
	files := fstest.MapFS{"empty": {Mode: fs.ModeDir}, "f": {}}
	for i := range 2500 {
		files[fmt.Sprintf("long/%04d", i)] = &fstest.MapFile{}
	}
	for i := range 30 {
		files[fmt.Sprintf("odd/%s%d", strings.Repeat("\x01", 200), i)] = &fstest.MapFile{}
	}
	list := func(path string, room int) ([]far.File, error) {
		return far.Look{Do: "list", Path: path, Room: room}.Answer(files, nil)
	}
	for _, room := range []int{0, 1 << 20} {
		all, err := list("long", room)
		require.NoError(t, err)
		assert.Len(t, all, 2500)
		assert.True(t, slices.IsSortedFunc(all, func(a, b far.File) int { return strings.Compare(a.Called, b.Called) }))
		all, err = list("empty", room)
		require.NoError(t, err)
		assert.Empty(t, all)
		_, err = list("f", room)
		require.Error(t, err)
		_, err = list("nosuch", room)
		assert.Equal(t, tool.NotFound, tool.KindOf(err))
	}
	for path, room := range map[string]int{"long": 200_000, "odd": 20_000} {
		all, err := list(path, room)
		assert.Equal(t, tool.TooLarge, tool.KindOf(err), path)
		assert.ErrorContains(t, err, "wisbox exec SESSION -- ls")
		assert.Empty(t, all)
	}
}
