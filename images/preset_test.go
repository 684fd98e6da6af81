package images

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// stocked returns a store that has the default image.
func stocked() *store {
	s := newStore()
	s.images[Default] = sandbox.ImageInfo{ID: "default", Labels: map[string]string{labelInputs: inputs(), labelBase: "debian"}}
	return s
}

func TestPresetsAreNamedOnceAndInOrder(t *testing.T) {
	with, err := ParseWith("node, build,node")
	require.NoError(t, err)
	assert.Equal(t, []string{"build", "node"}, with)
	for _, list := range []string{"", "nodejs", "node,,build", "node;build"} {
		_, err := ParseWith(list)
		assert.Equal(t, tool.Invalid, tool.KindOf(err), list)
		assert.ErrorContains(t, err, "the presets are build, data, node")
	}
}

func TestAPresetIsBuiltOnce(t *testing.T) {
	s := stocked()
	for _, cached := range []bool{false, true} {
		report, err := BuildPreset(t.Context(), s, &PresetOptions{With: []string{"node", "build"}})
		require.NoError(t, err)
		assert.Equal(t, PresetName([]string{"build", "node"}), report.Image)
		assert.Equal(t, cached, report.Cached)
		assert.Equal(t, BaseDebian, report.Base)
	}
	assert.Equal(t, []string{Default}, s.builtOn)
	assert.Equal(t, "build-essential\ncmake\npkg-config\nnodejs\nnpm\n", s.context["packages.txt"])
	assert.Empty(t, s.context["python.txt"])
	_, err := BuildPreset(t.Context(), s, &PresetOptions{With: []string{"node", "build"}, Rebuild: true})
	require.NoError(t, err)
	assert.Len(t, s.builtOn, 2)
}

// TestDebiansPythonHasDebiansPackages, and pip installs none.
func TestDebiansPythonHasDebiansPackages(t *testing.T) {
	with, err := ParseWith("data," + DebianPython)
	require.NoError(t, err)
	s := stocked()
	report, err := BuildPreset(t.Context(), s, &PresetOptions{With: with})
	require.NoError(t, err)
	assert.Contains(t, report.Image, "localhost/wisbox-with:data-debian-python-")
	assert.Contains(t, s.context["packages.txt"], "python3\n")
	assert.Contains(t, s.context["packages.txt"], "python3-pandas\n")
	assert.Empty(t, s.context["python.txt"])
	_, err = BuildPreset(t.Context(), stocked(), &PresetOptions{With: with, Index: "https://pypi.example"})
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
	kind, state := identify(s.images[report.Image])
	assert.Equal(t, KindPreset, kind)
	assert.Equal(t, Current, state)
}

func TestPresetsOfOtherNamesAreOtherImages(t *testing.T) {
	seen := map[string]bool{}
	for _, with := range [][]string{{"build"}, {"node"}, {"data"}, {"build", "node"}, {"build", "data", "node"}} {
		assert.Regexp(t, "^localhost/wisbox-with:"+strings.Join(with, "-")+"-[0-9a-f]{12}$", PresetName(with))
		seen[PresetName(with)] = true
	}
	assert.Len(t, seen, 5)
}

func TestAPresetOfANamePickedByAPersonIsTheirs(t *testing.T) {
	s := stocked()
	report, err := BuildPreset(t.Context(), s, &PresetOptions{With: []string{"node"}, Tag: "mine"})
	require.NoError(t, err)
	assert.Equal(t, "localhost/mine:latest", report.Image)
	kind, state := identify(s.images["localhost/mine:latest"])
	assert.Equal(t, KindBuilt, kind)
	assert.Equal(t, Other, state)
	_, err = BuildPreset(t.Context(), s, &PresetOptions{With: []string{"node"}, Tag: "wisbox"})
	assert.Equal(t, tool.Exists, tool.KindOf(err))
}

func TestWhatAPresetLacksIsSaid(t *testing.T) {
	for status, says := range map[string]string{"71": "Debian mirror", "72": "--wheels", "1": "exit status 1"} {
		s := stocked()
		s.buildErr = errors.New("while running runtime: exit status " + status)
		_, err := BuildPreset(t.Context(), s, &PresetOptions{With: []string{"data"}})
		assert.ErrorContains(t, err, says)
	}
}

func TestWheelsAndIndexesReachPipAndStayOutOfTheImage(t *testing.T) {
	dir := tree(t, map[string]string{"numpy-1-py3-none-any.whl": "zip", "README": "no"})
	s := stocked()
	_, err := BuildPreset(t.Context(), s, &PresetOptions{With: []string{"data"}, Wheels: dir})
	require.NoError(t, err)
	assert.Equal(t, "zip", s.context["wheels/numpy-1-py3-none-any.whl"])
	assert.NotContains(t, s.context, "wheels/README")
	assert.Equal(t, "[global]\nno-index = true\nfind-links = /context/wheels\n", s.context["pip.conf"])
	assert.NotContains(t, s.context["Containerfile"], "COPY", "copied files stay in the image, with the index's password")

	s = stocked()
	_, err = BuildPreset(t.Context(), s, &PresetOptions{With: []string{"data"}, Wheels: dir, Index: "https://me:a%20b@pypi.example/simple"})
	require.NoError(t, err)
	assert.Equal(t, "[global]\nindex-url = https://me:a%%20b@pypi.example/simple\nfind-links = /context/wheels\n", s.context["pip.conf"])
	for key, value := range s.build.Args {
		assert.NotContains(t, value, "pypi.example", key)
	}

	for name, opts := range map[string]PresetOptions{
		"no wheels":           {With: []string{"data"}, Wheels: tree(t, map[string]string{"a": "1"})},
		"not a folder":        {With: []string{"data"}, Wheels: dir + "/none"},
		"nothing of Python":   {With: []string{"node"}, Wheels: dir},
		"an index for Debian": {With: []string{"node"}, Index: "https://pypi.example"},
		"two lines":           {With: []string{"data"}, Index: "x\nextra = y"},
		"unknown":             {With: []string{"rust"}},
		"none":                {},
	} {
		_, err := BuildPreset(t.Context(), stocked(), &opts)
		assert.Contains(t, []tool.Kind{tool.Invalid, tool.NotFound}, tool.KindOf(err), "%s: %v", name, err)
	}
}
