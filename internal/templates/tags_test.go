package templates_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/templates"
	"github.com/wisbox/wisbox/tool"
)

func TestATagStandsForOneTemplateOfItsOwnerAndName(t *testing.T) {
	b := newBench(t)
	id := b.write("f", "x")
	const chosen = "abcdefghijklmnopqrst"
	first := b.create(templates.Template{ID: chosen, Name: "app", Owner: "a", Built: true, ImageDisk: 1 << 40, Tags: []string{"default", "v1"}}, id)
	assert.Equal(t, chosen, first.ID)
	assert.Greater(t, first.Disk, int64(1<<40))
	others := b.create(templates.Template{Name: "app", Owner: "b", Built: true, Tags: []string{"default", "v1"}}, id)
	second := b.create(templates.Template{Name: "app", Owner: "a", Built: true, Tags: []string{"default"}}, id)
	found := func(ref, owner string) string {
		found, err := b.templates.Find(ref, owner)
		if tool.KindOf(err) == tool.NotFound {
			return ""
		}
		require.NoError(t, err)
		return found.ID
	}
	assert.Equal(t, second.ID, found("app", "a"))
	assert.Equal(t, first.ID, found("app:v1", "a"))
	assert.Equal(t, others.ID, found("app", "b"), "another owner's keep theirs")
	assert.Equal(t, others.ID, found("app:v1", "b"))
	assert.Empty(t, found("app:v2", "a"))

	got, err := b.templates.Tag(t.Context(), second.ID, []string{"v1", "v2"})
	require.NoError(t, err)
	assert.Equal(t, []string{"default", "v1", "v2"}, got.Tags)
	assert.Equal(t, second.ID, found("app:v1", "a"))
	got, err = b.templates.Untag(t.Context(), second.ID, []string{"default", "v1", "never"})
	require.NoError(t, err)
	assert.Equal(t, []string{"v2"}, got.Tags)
	assert.Empty(t, found("app", "a"))
	assert.Equal(t, chosen, found(chosen, "a"), "without a tag it is there by its ID")
	_, err = b.templates.Tag(t.Context(), "zzzzzzzzzzzzzzzzzzzz", []string{"v1"})
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
	for _, tag := range []string{"", "a b", "-x", "a/b", "a:b"} {
		assert.Error(t, templates.CheckTag(tag))
	}
	assert.NoError(t, templates.CheckTag("v1.0_x-y"))
}
