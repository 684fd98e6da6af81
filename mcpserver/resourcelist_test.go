package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/tool"
)

// tree is a session with files whose only tool is ls.
type tree []string

func (tree) ID() string                  { return "t" }
func (tree) Close(context.Context) error { return nil }

func (t tree) Call(_ context.Context, name string, raw json.RawMessage) (*tool.Result, error) {
	var p struct{ Path string }
	if err := json.Unmarshal(raw, &p); name != "ls" || err != nil {
		return nil, tool.Errorf(tool.NotFound, "unknown tool %q", name)
	}
	dir, kinds := strings.TrimPrefix(p.Path, "/"), map[string]string{}
	for _, path := range t {
		if rest, below := strings.CutPrefix(path, dir); below {
			first, _, deeper := strings.Cut(rest, "/")
			kinds[first] = map[bool]string{true: "directory", false: "file"}[deeper]
		}
	}
	list := []entry{}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		list = append(list, entry{Name: name, Kind: kinds[name]})
	}
	return &tool.Result{Value: map[string]any{"entries": list}}, nil
}

// listAll follows the cursors from page to page.
func (t tree) listAll(tb rapid.TB, pages *int) (paths []string) {
	for after := ""; ; *pages++ { // pages after the first
		w := &walk{session: t, last: after}
		require.NoError(tb, w.dir(context.Background(), "", strings.Split(after, "/")))
		for _, one := range w.found {
			paths = append(paths, one.Name)
		}
		if !w.full {
			return paths
		}
		next, ours := readCursor(writeCursor(w.last))
		require.True(tb, ours)
		require.NotEqual(tb, after, next, "each page goes on")
		after = next
	}
}

func TestPagesHaveEachFileOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		paths := rapid.SliceOfNDistinct(rapid.StringMatching(`([a-c]{1,2}/){0,3}[a-c!.-]{1,5}\.f`), 0, 40, rapid.ID).Draw(t, "paths")
		pages := 0
		assert.ElementsMatch(t, paths, tree(paths).listAll(t, &pages))
	})
}

func TestAPageIsBoundedInFilesAndDirectories(t *testing.T) {
	for name, template := range map[string]string{"files": "a/%", "directories": "%/a"} {
		var paths tree
		for i := range 1200 {
			paths = append(paths, strings.ReplaceAll(template, "%", string([]byte{byte('a' + i/100), byte('a' + i/10%10), byte('a' + i%10)})))
		}
		pages := 0
		assert.Len(t, paths.listAll(t, &pages), 1200, name)
		assert.Equal(t, 2, pages, name)
	}
}

// counted is a session that counts its calls.
type counted struct {
	tree
	calls []string
}

func (e *counted) Call(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error) {
	e.calls = append(e.calls, name)
	return e.tree.Call(ctx, name, raw)
}

func TestAListMakesNoDigest(t *testing.T) {
	digest := tool.New(tool.Spec{Name: digestTool}, func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil })
	s := &counted{}
	for _, c := range []struct {
		served  *tool.Set
		session Session
		listed  int
	}{
		{tool.NewSet(digest), s, 1},
		{tool.NewSet(), s, 0},
		{tool.NewSet(), wrapped{ownSession{s}}, 1},
	} {
		r := &resources{server: New(c.served, nil)}
		assert.Len(t, r.views(t.Context(), c.session), c.listed)
	}
	assert.Equal(t, []string{"snapshot_list", "snapshot_list", "own snapshot_list"}, s.calls)
}

// ownSession has its own method for wisbox's own names.
type ownSession struct{ *counted }

func (s ownSession) CallOwn(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error) {
	return s.Call(ctx, "own "+name, raw)
}

// linked is a directory whose entries are not files.
type linked int

func (linked) ID() string                  { return "l" }
func (linked) Close(context.Context) error { return nil }

func (n linked) Call(_ context.Context, _ string, raw json.RawMessage) (*tool.Result, error) {
	var p struct{ Path string }
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, err
	}
	kind, width := "symlink", 10_000 // of one answer of ls
	if p.Path == "/" {
		kind, width = "directory", int(n)
	}
	list := make([]entry, 0, width)
	for i := range width {
		list = append(list, entry{Name: fmt.Sprintf("%06d", i), Kind: kind})
	}
	return &tool.Result{Value: map[string]any{"entries": list}}, nil
}

func TestAPageIsBoundedInEntriesThatAreNoFiles(t *testing.T) {
	w := &walk{session: linked(20)}
	require.NoError(t, w.dir(t.Context(), "", []string{""}))
	assert.True(t, w.full)
	assert.Equal(t, pageSeen, w.seen)
	assert.NotEmpty(t, w.last, "the next page goes on")
}
