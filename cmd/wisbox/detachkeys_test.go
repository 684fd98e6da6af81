package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKeysAreReadAsDockerWritesThem(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "ctrl-p,ctrl-q": "\x10\x11", "a": "a", "A,ctrl-A": "A\x01", "ctrl-@,ctrl-_": "\x00\x1f", `ctrl-[,ctrl-\,ctrl-]`: "\x1b\x1c\x1d",
	} {
		got, err := parseKeys(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, string(got), text)
	}
	for _, bad := range []string{",", "a,", "ctrl-", "ctrl-aa", "ctrl-1", "ab", "ctrl-é"} {
		_, err := parseKeys(bad)
		assert.ErrorContains(t, err, "separated by commas", bad)
	}
}

// TestTheDetachKeysLeaveAndNothingElseIsLost, however the keys are cut into reads.
func TestTheDetachKeysLeaveAndNothingElseIsLost(t *testing.T) {
	for _, c := range []struct{ keys, sequence, passed string }{
		{"abc", "\x10\x11", "abc"},
		{"a\x10\x11b", "\x10\x11", "a"},
		{"a\x10b\x10\x10\x11", "\x10\x11", "a\x10b\x10"},
		{"aab", "aaa", "aab"},
		{"aaaab", "aab", "aa"},
		{"ababac", "abac", "ab"},
		{"x\x10\x11", "", "x\x10\x11"},
	} {
		for name, cut := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r }, "one by one": iotest.OneByteReader} {
			found := 0
			d := &detachKeys{from: cut(strings.NewReader(c.keys)), sequence: []byte(c.sequence), found: func() { found++ }}
			got, err := io.ReadAll(iotest.OneByteReader(d))
			leaves := c.sequence != "" && strings.Contains(c.keys, c.sequence)
			assert.Equal(t, c.passed, string(got), "%q of %q, %s", c.sequence, c.keys, name)
			assert.Equal(t, leaves, found == 1, "%q of %q", c.sequence, c.keys)
			assert.Equal(t, leaves, errors.Is(err, errKeys), "leaving is not the end of the file")
		}
	}
}

func TestSignalsHaveNamesAndNumbers(t *testing.T) {
	for text, want := range map[string]string{"TERM": "TERM", "sigterm": "TERM", "15": "TERM", "Hup": "HUP", "SIGKILL": "KILL", "9": "KILL"} {
		got, err := signalOf(text)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, bad := range []string{"", "SIG", "0", "-9", "99", "NOSUCH"} {
		_, err := signalOf(bad)
		assert.ErrorContains(t, err, "USR1", bad)
	}
}

func TestAFileOfVariablesIsReadAsDockerReadsIt(t *testing.T) {
	t.Setenv("WISBOX_HERE", "a b=c")
	got, err := readEnv("f", strings.NewReader("\ufeff# first\nA=1\n  B= two words \nC=\r\n\nD=x=y#z\nWISBOX_HERE\nE=\"quoted\""))
	require.NoError(t, err)
	assert.Equal(t, []string{"A=1", "B= two words ", "C=", "D=x=y#z", "WISBOX_HERE=a b=c", `E="quoted"`}, got)
	for text, says := range map[string]string{
		"A=1\n=x": "f, line 2: the name is missing", "A=\x00": "line 1: the variable \"A\" has a NUL", "A=\xff": "not UTF-8", "NO_SUCH_VARIABLE": "line 1: the variable NO_SUCH_VARIABLE is not set",
		strings.Repeat("A=1\n", maxEnvFile/4+1): "more than 1048576 bytes", "A=" + strings.Repeat("x", maxEnvLine): "longer than",
	} {
		_, err := readEnv("f", strings.NewReader(text))
		assert.ErrorContains(t, err, says)
	}
}
