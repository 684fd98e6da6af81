package podman

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// allowing is a profile of calls without conditions.
func allowing(names ...string) string {
	return `{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["` + strings.Join(append(names, needed...), `","`) + `"],"action":"SCMP_ACT_ALLOW"}]}`
}

// with is a profile with another rule.
func with(profile, rule string) string {
	return strings.Replace(profile, `"syscalls":[`, `"syscalls":[`+rule+`,`, 1)
}

func TestWhatAProfileAllowsBeyondOursIsNamed(t *testing.T) {
	more, err := CompareSeccomp(seccompProfile)
	require.NoError(t, err)
	assert.Empty(t, more, "our own")

	for what, c := range map[string]struct {
		profile string
		want    []string
	}{
		"clone, of which ours allows some flags": {allowing("getpid"), []string{"clone"}},
		"more":                                   {allowing("unshare", "mount"), []string{"clone", "mount", "unshare"}},
		"allowed and denied":                     {with(allowing("unshare"), `{"names":["unshare"],"action":"SCMP_ACT_ERRNO"}`), []string{"clone", "unshare"}},
		"with a capability":                      {with(allowing(), `{"names":["mount"],"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_ADMIN"]}}`), []string{"clone"}},
		"without one":                            {with(allowing(), `{"names":["mount"],"action":"SCMP_ACT_ALLOW","excludes":{"caps":["CAP_SYS_ADMIN"]}}`), []string{"clone", "mount"}},
		"an argument of ours":                    {with(allowing(), `{"names":["socket"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":40,"op":"SCMP_CMP_NE"}]}`), []string{"clone", "socket"}},
	} {
		more, err := CompareSeccomp([]byte(c.profile))
		require.NoError(t, err, what)
		assert.Equal(t, c.want, more, what)
	}
}

func TestABadProfileIsRefusedWithTheReason(t *testing.T) {
	for profile, want := range map[string]string{
		``:                                   "byte 0",
		`{`:                                  "byte 1",
		`{"defaultAction":5}`:                "defaultAction has the wrong type",
		`{"syscalls":[]}`:                    `defaultAction is ""`,
		`{"defaultAction":"SCMP_ACT_ALLOW"}`: "every call that it doesn't name",
		`{"defaultAction":"SCMP_ACT_ERRNO"}`: "without which no program can run",
		strings.Replace(allowing(), "SCMP_ACT_ALLOW", "ALLOW", 1):                     `syscalls[0].action is "ALLOW"`,
		`{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"action":"SCMP_ACT_ALLOW"}]}`: "syscalls[0] has no names",
	} {
		_, err := CompareSeccomp([]byte(profile))
		require.ErrorIs(t, err, sandbox.ErrInvalid, profile)
		assert.ErrorContains(t, err, want)
	}
	_, err := CheckSeccomp(filepath.Join(t.TempDir(), "nosuch"))
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	assert.NotContains(t, err.Error(), "/", "no host path")
	_, err = CheckSeccomp(t.TempDir())
	assert.ErrorContains(t, err, "regular file")
}

func TestAProfileThatIsWeakerIsSaidSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.json")
	require.NoError(t, os.WriteFile(path, []byte(allowing("a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9")), 0o600))
	gap, err := CheckSeccomp(path)
	require.NoError(t, err)
	assert.Contains(t, gap, "a1, a2, a3, a4, a5, a6, a7, a8 and 2 more")
}
