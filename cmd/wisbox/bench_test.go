package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestAnInterruptedBenchLetsItsProgramsCleanUp as a session of wisbox run does.
func TestAnInterruptedBenchLetsItsProgramsCleanUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dir := t.TempDir()
	fifo, cleaned := filepath.Join(dir, "ready"), filepath.Join(dir, "cleaned")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	go func() {
		_, _ = os.ReadFile(fifo) // until the program is there
		cancel()
	}()
	b := &benching{ctx: ctx}
	err := b.process("", []string{"sh"}, "-c", `trap 'touch "$2"; exit 1' INT; : >"$1"; while :; do :; done`, "sh", fifo, cleaned)()
	require.Error(t, err)
	assert.FileExists(t, cleaned)
}

// TestTheTableNamesThePodmanThatWasUsed where podman by itself is forbidden.
func TestTheTableNamesThePodmanThatWasUsed(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	b, c := &benching{ctx: t.Context()}, benchCase{beside: "podman exec -i", args: []string{"exec"}}
	for name, script := range map[string]string{"podman exec -i": "exit 0", "podman --remote exec -i": `[ "$1" = --remote ]`, "": "exit 1"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "podman"), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
		_, got := b.beside(c)
		assert.Equal(t, name, got)
	}
}
