package hostmount_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/hostmount"
)

// The target is at most twice the time of cp -a for 10,000 files with a total of 100 MB:
//
//	go test -bench . -benchtime 5x ./hostmount
func BenchmarkTenThousandFiles(b *testing.B) {
	src := b.TempDir()
	content := make([]byte, 10_000)
	for i := range 10_000 {
		dir := fmt.Sprintf("%s/%d", src, i%100)
		require.NoError(b, os.MkdirAll(dir, 0o755))
		require.NoError(b, os.WriteFile(fmt.Sprintf("%s/%d", dir, i), content, 0o644))
	}
	b.Run("cp", func(b *testing.B) {
		bench(b, func(dir string) error { return exec.Command("cp", "-a", src, dir+"/workspace").Run() })
	})
	b.Run("mount", func(b *testing.B) { bench(b, func(dir string) error { return mount(b, src, dir) }) })
}

func bench(b *testing.B, copy func(dir string) error) {
	for b.Loop() {
		b.StopTimer()
		dir := b.TempDir()
		require.NoError(b, os.Mkdir(dir+"/workspace", 0o755))
		require.NoError(b, os.Mkdir(dir+"/tmp", 0o755))
		b.StartTimer()
		require.NoError(b, copy(dir))
		b.StopTimer()
		require.NoError(b, os.RemoveAll(dir))
		b.StartTimer()
	}
}

func mount(b *testing.B, src, dir string) error {
	dest, err := os.OpenRoot(dir + "/workspace")
	require.NoError(b, err)
	defer dest.Close()
	staging, err := os.OpenRoot(dir + "/tmp")
	require.NoError(b, err)
	defer staging.Close()
	_, err = hostmount.Copy(b.Context(), []hostmount.Mount{{HostPath: src, MountPath: "."}},
		&hostmount.Options{AllowedRoots: []string{src}, Dest: dest, Staging: staging})
	return err
}
