package mcpserver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTheURIOfAFileNamesItExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.StringMatching(`[ -~]{1,40}`).Filter(func(s string) bool { return s[0] != '/' }).Draw(t, "path")
		session, kind, rest, ok := splitURI(fileURI("01abc", path))
		require.True(t, ok)
		assert.Equal(t, []string{"01abc", "file", path}, []string{session, kind, rest})
	})
}

func FuzzNoURIEndsTheServer(f *testing.F) {
	for _, seed := range []string{"wisbox://a/file/b", "wisbox://a/output/b", "wisbox:a", "wisbox://a", "file:///etc/passwd", "wisbox://%zz/file/a", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		if session, kind, rest, ok := splitURI(uri); ok {
			assert.NotEmpty(t, session)
			assert.NotEmpty(t, rest)
			assert.NotContains(t, kind, "/")
		}
	})
}
