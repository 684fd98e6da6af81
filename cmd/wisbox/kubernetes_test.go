package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	_ "github.com/wisbox/wisbox/cluster/kubernetes" // the commands of these tests are those of wisbox-kube
)

// TestAProgramWithoutKubernetesFindsTheOneThatHasIt: beside itself, or on the PATH.
func TestAProgramWithoutKubernetesFindsTheOneThatHasIt(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	_, err := findKube()
	require.ErrorIs(t, err, exec.ErrNotFound)
	require.NoError(t, os.WriteFile(filepath.Join(dir, kubeProgram), nil, 0o755)) //nolint:gosec // a program
	path, err := findKube()
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, kubeProgram), path)
	assert.NoError(t, withKubernetes(), "this one has it")
}
