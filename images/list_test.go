package images

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// shelf is a Store in memory.
type shelf struct {
	images []sandbox.ImageInfo
	inUse  string
}

func (s *shelf) Images(context.Context) ([]sandbox.ImageInfo, error) {
	return slices.Clone(s.images), nil
}

func (s *shelf) RemoveImage(_ context.Context, id string) error {
	if id == s.inUse {
		return sandbox.ErrExists
	}
	s.images = slices.DeleteFunc(s.images, func(i sandbox.ImageInfo) bool { return i.ID == id })
	return nil
}

func (s *shelf) ids() (ids []string) {
	for _, i := range s.images {
		ids = append(ids, i.ID)
	}
	return ids
}

func newShelf() *shelf {
	long := func(begin string) string { return begin + strings.Repeat("0", 52) }
	image := func(id, label, value string, tags ...string) sandbox.ImageInfo {
		return sandbox.ImageInfo{ID: id, Tags: tags, Labels: map[string]string{label: value}, Size: 10, Created: time.Unix(int64(len(id)), 0)}
	}
	const a, b, c, base = "aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc", "dddddddddddd"
	return &shelf{images: []sandbox.ImageInfo{
		image("base-old", labelRecipe, long(base), "localhost/wisbox-base:"+base),
		image("current", labelInputs, inputs(), Default),
		image("base-current", labelRecipe, "x", debianRef()), // its label doesn't match its name: not ours
		image("old", labelInputs, long(a), "localhost/wisbox:"+a),
		image("session's", labelInputs, long(b), "localhost/wisbox:"+b),
		image("container's", labelInputs, long(c), "localhost/wisbox:"+c),
		image("derived", labelInputs, long(a), "localhost/mine:1"),
		image("derived with our name", labelInputs, long(a), "localhost/wisbox:"+b),
		image("two names", labelInputs, long(a), "localhost/wisbox:"+a, "localhost/mine:2"),
		image("no name", labelInputs, long(a)),
		image("own tag", labelInputs, inputs(), "localhost/wisbox:mine"),
	}, inUse: "container's"}
}

var sessions = map[string]string{"box": "localhost/wisbox:bbbbbbbbbbbb"}

func TestPruneTakesOnlyWhatIsOursAndNobodyUses(t *testing.T) {
	s := newShelf()
	before := s.ids()
	told, err := Prune(t.Context(), s, sessions, &PruneOptions{DryRun: true})
	require.NoError(t, err)
	assert.Equal(t, before, s.ids(), "a dry run removes nothing")
	assert.Equal(t, []string{"container's", "old"}, names(told.Removed), "it ignores containers")

	done, err := Prune(t.Context(), s, sessions, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"old"}, names(done.Removed))
	assert.Equal(t, []string{"container's", "session's", "base-old"}, names(done.Kept))
	assert.Equal(t, []string{"box"}, done.Kept[1].UsedBy)
	assert.ElementsMatch(t, append(s.ids(), "old"), before)

	s.inUse = ""
	done, err = Prune(t.Context(), s, nil, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"container's", "session's", "base-old"}, names(done.Removed), "the base goes last")
	assert.Empty(t, done.Kept)
	done, err = Prune(t.Context(), s, nil, nil)
	require.NoError(t, err)
	assert.Empty(t, done.Removed)
}

func TestListSaysWhatEachImageIs(t *testing.T) {
	found, err := List(t.Context(), newShelf(), sessions)
	require.NoError(t, err)
	state := map[string]State{}
	for _, i := range found {
		state[i.ID] = i.State
	}
	assert.Equal(t, map[string]State{
		"current": Current, "base-current": Other, "old": Old, "session's": Old, "container's": Old, "base-old": Old,
		"derived": Other, "derived with our name": Other, "two names": Other, "no name": Other, "own tag": Other,
	}, state)
}

func names(images []Image) (ids []string) {
	for _, i := range images {
		ids = append(ids, i.ID)
	}
	return ids
}

// shelves is a store that also removes images.
type shelves struct {
	*store
	removed []string
}

func (s *shelves) Images(context.Context) ([]sandbox.ImageInfo, error) { return nil, nil }

func (s *shelves) RemoveImage(_ context.Context, id string) error {
	s.removed = append(s.removed, id)
	return nil
}

func TestARebuiltImageTakesTheOldOneWithIt(t *testing.T) {
	for name, c := range map[string]struct {
		before  sandbox.ImageInfo
		removed []string
	}{
		"ours":      {sandbox.ImageInfo{ID: "before", Tags: []string{Default}, Labels: map[string]string{labelInputs: inputs()}}, []string{"before"}},
		"two names": {sandbox.ImageInfo{ID: "before", Tags: []string{Default, "localhost/mine:1"}, Labels: map[string]string{labelInputs: inputs()}}, nil},
		"no label":  {sandbox.ImageInfo{ID: "before", Tags: []string{Default}}, nil},
		"the same":  {sandbox.ImageInfo{ID: "built", Tags: []string{Default}, Labels: map[string]string{labelInputs: inputs()}}, nil},
		"none":      {},
	} {
		t.Run(name, func(t *testing.T) {
			s := &shelves{store: newStore()}
			if c.before.ID != "" {
				s.images[Default] = c.before
			}
			b := newBuild(s, &Options{Base: BaseRegistry, Rebuild: true})
			b.probe = func(context.Context) error { return nil }
			_, err := b.run(t.Context())
			require.NoError(t, err)
			assert.Equal(t, c.removed, s.removed)
		})
	}
}

func TestPruneAllTakesWhatWisboxMadeAndNobodyUses(t *testing.T) {
	with := []string{"node"}
	image := func(id string, labels map[string]string, tags ...string) sandbox.ImageInfo {
		return sandbox.ImageInfo{ID: id, Tags: tags, Labels: labels}
	}
	built := func(name string) map[string]string { return map[string]string{labelBuilt: name} }
	s := &shelf{images: []sandbox.ImageInfo{
		image("current", map[string]string{labelInputs: inputs()}, Default, Latest),
		image("preset", map[string]string{labelWith: "node", labelPreset: presetInputs(with)}, PresetName(with)),
		image("old preset", map[string]string{labelWith: "node", labelPreset: "aaaaaaaaaaaa0"}, "localhost/wisbox-with:node-aaaaaaaaaaaa"),
		image("built", built("localhost/mine:1"), "localhost/mine:1"),
		image("used", built("localhost/used:latest"), "localhost/used:latest"),
		image("two names", built("localhost/two:1"), "localhost/two:1", "localhost/other:1"),
		image("derived", built("localhost/mine:1"), "localhost/derived:1"),
		image("pulled", nil, "docker.io/library/node:22"),
		image("somebody's", nil, "localhost/else:1"),
		image("no name", built("localhost/mine:1")),
		image("no name, nor ours", nil),
	}}
	sessions := map[string]string{"box": "used"}
	told, err := Prune(t.Context(), s, sessions, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"old preset"}, names(told.Removed))
	done, err := Prune(t.Context(), s, sessions, &PruneOptions{All: true})
	require.NoError(t, err)
	assert.Equal(t, []string{"built", "preset"}, names(done.Removed))
	assert.Equal(t, []string{"used"}, names(done.Kept))
	assert.Equal(t, []string{"current", "used", "two names", "derived", "pulled", "somebody's", "no name", "no name, nor ours"}, s.ids())
}

func TestAnOldImageWithTheStableNameStays(t *testing.T) {
	const a = "aaaaaaaaaaaa"
	s := &shelf{images: []sandbox.ImageInfo{{ID: "old", Tags: []string{"localhost/wisbox:" + a, Latest}, Labels: map[string]string{labelInputs: a}}}}
	done, err := Prune(t.Context(), s, nil, nil)
	require.NoError(t, err)
	assert.Empty(t, done.Removed)
	require.Len(t, done.Kept, 1)
	assert.Contains(t, done.Kept[0].Kept, "wisbox image build")
}

func TestListLeavesOutWhatNobodyCanName(t *testing.T) {
	found, err := List(t.Context(), &shelf{images: []sandbox.ImageInfo{{ID: "nameless"}, {ID: "ours", Labels: map[string]string{labelInputs: "x"}}}}, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"ours"}, names(found))
}
