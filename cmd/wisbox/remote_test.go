package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/tool"
)

// Without Linux every command needs another machine, but those that work on files alone.
func TestWithoutLinuxCommandsNeedAnotherMachine(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	t.Setenv(remoteVariable, "")
	usual := system
	system = "darwin"
	t.Cleanup(func() { system = usual })
	seen := 0
	everyCommand((&app{}).newRootCmd(), func(cmd *cobra.Command) {
		name := nameOf(cmd)
		first, _, _ := strings.Cut(name, " ")
		free := slices.Contains(ofNoSession, first) || slices.Contains(alwaysHere, first) || slices.Contains(ofFiles, name)
		a := &app{}
		err := a.chooseRemote(cmd)
		if free {
			assert.NoError(t, err, name)
			return
		}
		seen++
		require.Equal(t, tool.Unsupported, tool.KindOf(err), name)
		assert.ErrorContains(t, err, "wisbox remote add", name)

		a.remote = "ssh://big"
		err = a.chooseRemote(cmd)
		if slices.Contains(onRemotes, first) && !slices.Contains(notOnRemotes, name) {
			assert.NoError(t, err, name)
			assert.Equal(t, "ssh://big", a.far)
		} else {
			assert.ErrorContains(t, err, "use it there", name)
			assert.NotContains(t, err.Error(), "--remote this", name)
		}
	})
	assert.Greater(t, seen, 40)
}

// A damaged file may name the machine that commands use: this machine isn't taken instead.
func TestADamagedFileOfRemotesIsAnError(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv(remoteVariable, "")
	remote, err := (&app{}).findRemote()
	require.NoError(t, err)
	require.Nil(t, remote)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "wisbox"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "wisbox", "remotes.json"), []byte(`{"current":"big","remo`), 0o600))
	_, err = (&app{}).findRemote()
	require.ErrorContains(t, err, "can't be read")
	_, err = (&app{remote: far.This}).findRemote()
	require.NoError(t, err)
	for _, none := range []string{"/dev/null", ""} { // no directory of this user
		t.Setenv("XDG_CONFIG_HOME", none)
		t.Setenv("HOME", none)
		remote, err = (&app{}).findRemote()
		require.NoError(t, err)
		assert.Nil(t, remote)
	}
}
