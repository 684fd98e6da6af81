package images

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

func TestOnlyANameWithItsRegistryIsPulled(t *testing.T) {
	for ref, want := range map[string]string{
		"docker.io/library/node:22":          "docker.io",
		"docker.io/node":                     "docker.io",
		"index.docker.io/library/node":       "docker.io",
		"ghcr.io/owner/name@sha256:" + hex64: "ghcr.io",
		"localhost:5000/mine:1":              "localhost:5000",
		"127.0.0.1:5000/mine":                "127.0.0.1:5000",
		"localhost/mine:1":                   "",
		"node:22":                            "",
		"library/node":                       "",
		"0123456789ab":                       "",
		hex64:                                "",
		Default:                              "",
		Latest:                               "",
		"":                                   "",
		"docker.io/UPPER":                    "",
		"https://docker.io/library/node":     "",
		"docker://docker.io/library/node":    "",
		"oci-archive:/tmp/x.tar":             "",
		"dir:/etc":                           "",
		"containers-storage:docker.io/library/node:22": "",
	} {
		assert.Equal(t, want, Registry(ref), ref)
	}
	assert.Equal(t, "docker.io/library/node:22", Suggest("node:22"))
}

const hex64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestANameToBuildIsCompleted(t *testing.T) {
	for name, want := range map[string]string{
		"mine":             "localhost/mine:latest",
		"mine:2":           "localhost/mine:2",
		"me/mine":          "localhost/me/mine:latest",
		"library/mine":     "localhost/mine:latest",
		"localhost/mine:1": "localhost/mine:1",
		"ghcr.io/me/mine":  "ghcr.io/me/mine:latest",
		"localhost:5000/x": "localhost:5000/x:latest",
	} {
		got, err := FullName(name)
		require.NoError(t, err, name)
		assert.Equal(t, want, got)
	}
	for name, kind := range map[string]tool.Kind{
		"Not OK": tool.Invalid, "mine@sha256:" + hex64: tool.Invalid, "": tool.Invalid,
		"wisbox": tool.Exists, Default: tool.Exists, "localhost/wisbox-base:1": tool.Exists, "wisbox-with:node": tool.Exists, "wisbox-built": tool.Exists,
	} {
		_, err := FullName(name)
		assert.Equal(t, kind, tool.KindOf(err), "%q: %v", name, err)
	}
}

func TestASessionsImageIsFoundHoweverItWasWritten(t *testing.T) {
	mine := sandbox.ImageInfo{ID: "abcdef123456", Tags: []string{"localhost/mine:latest"}}
	node := sandbox.ImageInfo{ID: "123456abcdef", Tags: []string{"docker.io/library/node:22"}}
	for ref, want := range map[string][2]bool{
		"localhost/mine:latest": {true, false}, "localhost/mine": {true, false}, "mine": {true, false}, "abcdef": {true, false},
		"docker.io/library/node:22": {false, true}, "docker.io/node:22": {false, true}, "node:22": {false, true},
		"node": {}, "mine:1": {}, "": {}, "Not OK": {},
	} {
		assert.Equal(t, want, [2]bool{bears(mine, ref), bears(node, ref)}, ref)
	}
}

func TestKindsAreToldApart(t *testing.T) {
	preset := map[string]string{labelInputs: inputs(), labelWith: "node", labelPreset: presetInputs([]string{"node"})}
	built := map[string]string{labelBuilt: "localhost/mine:1"}
	for name, c := range map[string]struct {
		info  sandbox.ImageInfo
		kind  Kind
		state State
	}{
		"default":                        {sandbox.ImageInfo{Tags: []string{Default}, Labels: map[string]string{labelInputs: inputs()}}, KindDefault, Current},
		"default with both names":        {sandbox.ImageInfo{Tags: []string{Default, Latest}, Labels: map[string]string{labelInputs: inputs()}}, KindDefault, Current},
		"preset":                         {sandbox.ImageInfo{Tags: []string{PresetName([]string{"node"})}, Labels: preset}, KindPreset, Current},
		"another version's preset":       {sandbox.ImageInfo{Tags: []string{"localhost/wisbox-with:node-aaaaaaaaaaaa"}, Labels: map[string]string{labelWith: "node", labelPreset: "aaaaaaaaaaaa0"}}, KindPreset, Old},
		"a preset that is no more":       {sandbox.ImageInfo{Tags: []string{"localhost/wisbox-with:rust-aaaaaaaaaaaa"}, Labels: map[string]string{labelWith: "rust", labelPreset: "aaaaaaaaaaaa0"}}, KindPreset, Old},
		"a stranger in its name":         {sandbox.ImageInfo{Tags: []string{"localhost/wisbox-with:node-aaaaaaaaaaaa"}, Labels: preset}, KindOther, Other},
		"built":                          {sandbox.ImageInfo{Tags: []string{"localhost/mine:1"}, Labels: built}, KindBuilt, Other},
		"built on a built one":           {sandbox.ImageInfo{Tags: []string{"localhost/other:1"}, Labels: built}, KindOther, Other},
		"pulled":                         {sandbox.ImageInfo{Tags: []string{"docker.io/library/node:22"}}, KindPulled, Other},
		"pulled, and claims to be built": {sandbox.ImageInfo{Tags: []string{"reg.example/x:1"}, Labels: map[string]string{labelBuilt: "reg.example/x:1"}}, KindPulled, Other},
		"without a name":                 {sandbox.ImageInfo{}, KindOther, Other},
		"without a name, once a copy":    {sandbox.ImageInfo{Labels: built}, KindOther, Other},
	} {
		kind, state := identify(c.info)
		assert.Equal(t, c.kind, kind, name)
		assert.Equal(t, c.state, state, name)
	}
}
