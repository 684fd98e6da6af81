package images

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/builds"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

func TestATemplateStandsOnAnImageByItsWholeName(t *testing.T) {
	s := newStore()
	const python, mine, others = "docker.io/library/python:3", "localhost/mine:latest", "localhost/wisbox-template:abc"
	for i, name := range []string{Default, python, mine, others} {
		s.images[name] = sandbox.ImageInfo{ID: fmt.Sprint("id", i), Tags: []string{name}, Size: 40}
		s.images[fmt.Sprint("id", i)] = s.images[name]
	}
	recipe := &builds.Recipe{Steps: []builds.Step{{Kind: builds.Run, Args: []string{"id"}}}}
	for ref, want := range map[string]string{"": "id0", "python:3": "id1", "docker.io/library/python:3": "id1", "mine": "id2"} {
		r, err := BuildTemplate(t.Context(), s, &TemplateOptions{ID: "new", Recipe: recipe, Base: ref, Start: "run", Ready: "true", Memory: 7, CPUs: 2, MaxDisk: 9})
		require.NoError(t, err, ref)
		assert.Equal(t, Report{Image: TemplateName("new"), ID: "built", Size: 2, Duration: r.Duration}, r)
		assert.Contains(t, s.context["Containerfile"], "FROM "+want+"\n")
		assert.True(t, s.build.NoNetwork)
		assert.Equal(t, Program{Start: "run", Ready: "true"}, ProgramOf(s.images[TemplateName("new")]))
	}
	for _, ref := range []string{"id1", "id3", others, "wisbox-template:abc", "python:4", "python", "x y", "../x", "sha256:id1"} {
		_, err := BuildTemplate(t.Context(), s, &TemplateOptions{ID: "new", Recipe: recipe, Base: ref})
		assert.Equal(t, tool.NotFound, tool.KindOf(err), "%s: %v", ref, err)
	}
	_, err := BuildTemplate(t.Context(), s, &TemplateOptions{ID: "new", Recipe: recipe, Base: others, Own: true, Network: true})
	require.NoError(t, err)
	assert.False(t, s.build.NoNetwork)
}

func TestAStepThatFailsIsNamed(t *testing.T) {
	recipe := &builds.Recipe{Steps: []builds.Step{{Kind: builds.Env, Args: []string{"A", "b"}}, {Kind: builds.Run, Args: []string{"exit 7"}}}}
	_, stepOf := recipe.Containerfile("id")
	var lines []string
	n := &narrator{recipe: recipe, stepOf: stepOf, tell: func(step int, line string) { lines = append(lines, fmt.Sprint(step, " ", line)) }}
	for _, line := range []string{"STEP 1/9: FROM id", "STEP 6/9: ENV A", "STEP 7/9: RUN x", "a line", "STEP 2/9: USER root", "STEP 99/99: FROM evil", "--> 0123", "COMMIT x"} {
		n.line(line)
	}
	assert.Equal(t, []string{"1 [1/2] ENV A b", "2 [2/2] RUN exit 7", "2 a line"}, lines)
	err := n.failure(errors.New(`Containerfile: building at STEP "RUN x": while running runtime: exit status 7; change that, and build again`))
	failed := (*builds.StepError)(nil)
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, 2, failed.Step)
	assert.Equal(t, "invalid: step 2, RUN exit 7, ended with exit status 7; the log has its output", err.Error())
	assert.NotContains(t, n.failure(errors.New("open /var/lib/containers/storage/overlay/x: broken")).Error(), "/var")
}

func TestImagesOfTemplatesThatAreGoneGo(t *testing.T) {
	image := func(id string, tags ...string) sandbox.ImageInfo {
		return sandbox.ImageInfo{ID: id, Tags: tags, Labels: map[string]string{labelTemplate: TemplateName(id)}}
	}
	foreign := image("foreign", "localhost/mine:1")
	s := &shelf{images: []sandbox.ImageInfo{
		image("gone", TemplateName("gone")), image("kept", TemplateName("kept")), image("nameless"), foreign,
		image("twice", TemplateName("twice"), "localhost/mine:2"), {ID: "other", Tags: []string{"localhost/other:1"}},
	}}
	require.NoError(t, PruneTemplates(t.Context(), s, func(_ sandbox.ImageInfo, name string) bool { return name == TemplateName("kept") }))
	assert.Equal(t, []string{"kept", "foreign", "twice", "other"}, s.ids())
	kind, state := identify(image("kept", TemplateName("kept")))
	assert.Equal(t, []any{KindTemplate, Other}, []any{kind, state})
}
