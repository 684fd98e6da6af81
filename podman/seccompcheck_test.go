package podman

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// allowing returns a profile that allows calls without conditions.
func allowing(names ...string) string {
	return `{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["` + strings.Join(append(names, needed...), `","`) + `"],"action":"SCMP_ACT_ALLOW"}]}`
}

// with returns the profile with another rule.
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
		"clone, of which ours allows some flags": {allowing("getpid"), []string{"clone", "mmap", "socketpair"}},
		"more":                                   {allowing("unshare", "mount"), []string{"clone", "mmap", "mount", "socketpair", "unshare"}},
		"allowed and denied":                     {with(allowing("unshare"), `{"names":["unshare"],"action":"SCMP_ACT_ERRNO"}`), []string{"clone", "mmap", "socketpair", "unshare"}},
		"with a capability":                      {with(allowing(), `{"names":["mount"],"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_ADMIN"]}}`), []string{"clone", "mmap", "socketpair"}},
		"without one":                            {with(allowing(), `{"names":["mount"],"action":"SCMP_ACT_ALLOW","excludes":{"caps":["CAP_SYS_ADMIN"]}}`), []string{"clone", "mmap", "mount", "socketpair"}},
		"an argument of ours":                    {with(allowing(), `{"names":["socket"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":40,"op":"SCMP_CMP_NE"}]}`), []string{"clone", "mmap", "socket", "socketpair"}},
	} {
		more, err := CompareSeccomp([]byte(c.profile))
		require.NoError(t, err, what)
		assert.Equal(t, c.want, more, what)
	}
}

// TestAnotherABIOfAProfileIsNamed: a program reaches a forbidden call under its number in another ABI.
func TestAnotherABIOfAProfileIsNamed(t *testing.T) {
	native := nativeArch[runtime.GOARCH]
	require.NotEmpty(t, native, "a processor that wisbox doesn't know")
	for what, c := range map[string]struct {
		arches string
		want   []string
	}{
		"its own":       {`"architectures":["` + native + `"]`, nil},
		"another":       {`"architectures":["` + native + `","SCMP_ARCH_X86"]`, []string{"SCMP_ARCH_X86"}},
		"mapped":        {`"archMap":[{"architecture":"` + native + `","subArchitectures":["SCMP_ARCH_X86","SCMP_ARCH_X32"]}]`, []string{"SCMP_ARCH_X32", "SCMP_ARCH_X86"}},
		"of no concern": {`"archMap":[{"architecture":"SCMP_ARCH_S390X","subArchitectures":["SCMP_ARCH_S390"]}]`, nil},
	} {
		more, err := CompareSeccomp(bytes.Replace(seccompProfile, []byte(`"archMap": [`), []byte(c.arches+`,"x": [`), 1))
		require.NoError(t, err, what)
		assert.ElementsMatch(t, c.want, more, what)
	}
}

func TestAStricterConditionIsNoneThatIsWeaker(t *testing.T) {
	for what, c := range map[string]struct {
		name, args string
		weaker     bool
	}{
		"64 bits of what are 32 in ours":   {"personality", `{"index":0,"value":4294967295,"op":"SCMP_CMP_EQ"}`, false},
		"more conditions":                  {"socket", `{"index":0,"value":2,"op":"SCMP_CMP_EQ"},{"index":1,"value":1,"op":"SCMP_CMP_EQ"},{"index":2,"value":6,"op":"SCMP_CMP_EQ"}`, false},
		"fewer":                            {"socket", `{"index":0,"value":2,"op":"SCMP_CMP_EQ"}`, true},
		"two on one argument":              {"fcntl", `{"index":1,"value":1,"op":"SCMP_CMP_EQ"},{"index":1,"value":1024,"op":"SCMP_CMP_EQ"}`, true},
		"a lease":                          {"fcntl", `{"index":1,"value":1024,"op":"SCMP_CMP_EQ"}`, true},
		"a lease in the bits of an int":    {"fcntl", `{"index":1,"value":4294967296,"valueTwo":4294967296,"op":"SCMP_CMP_MASKED_EQ"}`, true},
		"no lease":                         {"fcntl", `{"index":1,"value":1030,"op":"SCMP_CMP_EQ"}`, false},
		"everything but a lease, 64 bits":  {"fcntl", `{"index":1,"value":1024,"op":"SCMP_CMP_NE"}`, true},
		"the bits below a forbidden ioctl": {"ioctl", `{"index":1,"value":4294967295,"valueTwo":21522,"op":"SCMP_CMP_MASKED_EQ"}`, true},
		"an ordinary ioctl":                {"ioctl", `{"index":1,"value":21505,"op":"SCMP_CMP_EQ"}`, false},
	} {
		rule := `{"names":["` + c.name + `"],"action":"SCMP_ACT_ALLOW","args":[` + c.args + `]}`
		more, err := CompareSeccomp([]byte(with(allowing(), rule)))
		require.NoError(t, err, what)
		assert.Equal(t, c.weaker, slices.Contains(more, c.name), what)
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
	assert.Contains(t, gap, "a1, a2, a3, a4, a5, a6, a7, a8 and 4 more")
}
