package hostmount_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/hostmount"
	_ "github.com/wisbox/wisbox/internal/properties"
	"github.com/wisbox/wisbox/tool"
)

func TestParseReadsTheWholeGrammar(t *testing.T) {
	type mount = hostmount.Mount
	for spec, want := range map[string]mount{
		"/a":                 {HostPath: "/a", MountPath: "."},
		"a/b:c":              {HostPath: "a/b", MountPath: "c"},
		"/a:":                {HostPath: "/a", MountPath: "."},
		"/a:b:":              {HostPath: "/a:b", MountPath: "."},
		"/a:b:c/d/":          {HostPath: "/a:b", MountPath: "c/d/"},
		"/a b:c,max-bytes=1": {HostPath: "/a b", MountPath: "c", MaxBytes: 1},
		"/a,max-bytes=2MiB,follow-symlinks": {
			HostPath: "/a", MountPath: ".", MaxBytes: 2 << 20, FollowSymlinks: true,
		},
		"/a:p,include=*.{c,h},include=*.go,exclude=x/**": {
			HostPath: "/a", MountPath: "p", Include: []string{"*.{c,h}", "*.go"}, Exclude: []string{"x/**"},
		},
		"/{a,b}:p":                {HostPath: "/{a,b}", MountPath: "p"},
		"/straße:日本/é,exclude=ü*": {HostPath: "/straße", MountPath: "日本/é", Exclude: []string{"ü*"}},
	} {
		got, err := hostmount.Parse(spec)
		require.NoError(t, err, spec)
		assert.Equal(t, want, got, spec)
	}
}

func TestParseRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, spec := range []string{
		"", ":x", ",include=*", "/a:../x", "/a:b/../c", "/a:./b", "/a:caf\xe9", "/caf\xe9", "/a\u202e", "/a:\u200b", "/a\n", "/a\x7f", "/a,", "/a,unknown", "/a,unknown=1",
		"/a,include", "/a,include=", "/a,exclude=", "/a,include=[", "/a,max-bytes", "/a,max-bytes=", "/a,max-bytes=0", "/a,max-bytes=-1",
		"/a,max-bytes=x", "/a,max-bytes=1,max-bytes=2", "/a,follow-symlinks=true",
		"/a:" + strings.Repeat("x", 256), "/a:" + strings.Repeat("x/", 17),
	} {
		_, err := hostmount.Parse(spec)
		assert.Equal(t, tool.Invalid, tool.KindOf(err), "%q", spec)
	}
}

func TestParseUndoesFormatting(t *testing.T) {
	word := rapid.StringMatching(`[a-zA-Z0-9._-]{1,10}`).Filter(func(s string) bool { return s != "." && s != ".." })
	rapid.Check(t, func(t *rapid.T) {
		want := hostmount.Mount{
			HostPath:       "/" + strings.Join(rapid.SliceOfN(word, 1, 4).Draw(t, "host"), rapid.SampledFrom([]string{"/", ":"}).Draw(t, "sep")),
			MountPath:      strings.Join(rapid.SliceOfN(word, 1, 4).Draw(t, "dest"), "/"),
			MaxBytes:       rapid.Int64Range(0, 1<<30).Draw(t, "max"),
			FollowSymlinks: rapid.Bool().Draw(t, "follow"),
		}
		spec := want.HostPath + ":" + want.MountPath
		for range rapid.IntRange(0, 2).Draw(t, "globs") {
			want.Include = append(want.Include, "*."+word.Draw(t, "include"))
			want.Exclude = append(want.Exclude, word.Draw(t, "exclude"))
			spec += ",include=" + want.Include[len(want.Include)-1] + ",exclude=" + want.Exclude[len(want.Exclude)-1]
		}
		if want.MaxBytes > 0 {
			spec += ",max-bytes=" + rapid.SampledFrom([]string{"", "0"}).Draw(t, "zero") + strconv.FormatInt(want.MaxBytes, 10)
		}
		if want.FollowSymlinks {
			spec += ",follow-symlinks"
		}
		got, err := hostmount.Parse(spec)
		require.NoError(t, err, spec)
		require.Equal(t, want, got)
	})
}

func FuzzParseNeverPanicsAndNeverLeavesTheWorkspace(f *testing.F) {
	for _, seed := range []string{"/a:b,include=*.{a,b},max-bytes=1k", "/a:b:", ",", "/a:workspace/workspace/x", "{,}:", "/a: . "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		m, err := hostmount.Parse(spec)
		if err != nil {
			require.Equal(t, tool.Invalid, tool.KindOf(err))
			return
		}
		require.NotEmpty(t, m.HostPath)
		require.NotEmpty(t, m.MountPath)
		require.GreaterOrEqual(t, m.MaxBytes, int64(0))
		for segment := range strings.SplitSeq(m.MountPath, "/") {
			require.NotEqual(t, "..", strings.TrimSpace(segment))
		}
	})
}
