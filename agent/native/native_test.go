package native_test

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/native"
)

// isAgent checks that a container can use the file.
func isAgent(t *testing.T, path string) {
	t.Helper()
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o555), info.Mode())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	sum := sha256.Sum256(data)
	require.Equal(t, native.Sum(), hex.EncodeToString(sum[:]))
}

func TestTheBinaryIsStatic(t *testing.T) {
	binary, err := native.Binary()
	require.NoError(t, err)
	file, err := elf.NewFile(bytes.NewReader(binary))
	require.NoError(t, err)
	for _, p := range file.Progs {
		assert.NotEqual(t, elf.PT_INTERP, p.Type, "it needs a loader that images lack")
	}
}

func TestInstallingTwiceWritesOnce(t *testing.T) {
	dir := t.TempDir()
	path, err := native.Install(dir)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "agent", native.Sum()), path)
	isAgent(t, path)
	first, err := os.Stat(path)
	require.NoError(t, err)
	again, err := native.Install(dir)
	require.NoError(t, err)
	require.Equal(t, path, again)
	second, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(first, second))
}

func TestManyInstallAtOnce(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			_, err := native.Install(dir)
			assert.NoError(t, err)
		})
	}
	all.Wait()
	entries, err := os.ReadDir(filepath.Join(dir, "agent"))
	require.NoError(t, err)
	require.Len(t, entries, 1, "the slower writers leave nothing")
	isAgent(t, filepath.Join(dir, "agent", native.Sum()))
}

func TestWhatIsNotTheAgentIsReplaced(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.WriteFile(victim, []byte("mine"), 0o644))
	binary, err := native.Binary()
	require.NoError(t, err)
	for name, leave := range map[string]func(path string) error{
		"half of it":    func(p string) error { return os.WriteFile(p, binary[:len(binary)/2], 0o555) },
		"one bit":       func(p string) error { return os.WriteFile(p, append([]byte{1}, binary[1:]...), 0o555) },
		"another mode":  func(p string) error { return os.WriteFile(p, binary, 0o755) },
		"a link":        func(p string) error { return os.Symlink(victim, p) },
		"a second name": func(p string) error { return twoNames(p, binary) },
		"a full folder": func(p string) error { return os.MkdirAll(filepath.Join(p, "a/b"), 0o755) },
		"a pipe":        func(p string) error { return unix.Mkfifo(p, 0o555) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(dir, "agent"), 0o755))
			require.NoError(t, leave(filepath.Join(dir, "agent", native.Sum())))
			path, err := native.Install(dir)
			require.NoError(t, err)
			isAgent(t, path)
		})
	}
	data, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, "mine", string(data))
}

func twoNames(path string, data []byte) error {
	if err := os.WriteFile(path, data, 0o555); err != nil {
		return err
	}
	return os.Link(path, path+"-too")
}

func TestAFolderThatIsNotOursIsRefused(t *testing.T) {
	elsewhere := t.TempDir()
	linked := t.TempDir()
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(linked, "agent")))
	_, err := native.Install(linked)
	require.ErrorContains(t, err, "not a directory of ours")
	file := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(file, "agent"), nil, 0o644))
	_, err = native.Install(file)
	require.ErrorContains(t, err, "not a directory of ours")
	left, err := os.ReadDir(elsewhere)
	require.NoError(t, err)
	require.Empty(t, left)
	_, err = native.Install(filepath.Join(file, "missing"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestAFolderThatOthersCouldWriteToIsOursAgain(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "agent")
	require.NoError(t, os.Mkdir(folder, 0o755))
	require.NoError(t, os.Chmod(folder, 0o777))
	_, err := native.Install(dir)
	require.NoError(t, err)
	info, err := os.Stat(folder)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o755), info.Mode().Perm())
}

// TestAFileSystemWithoutProgramsIsRefused needs its own mount, as root or in a user namespace.
func TestAFileSystemWithoutProgramsIsRefused(t *testing.T) {
	if dir := os.Getenv("NATIVE_NOEXEC"); dir != "" { // the child, in its namespaces
		require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOEXEC, "size=32m"))
		_, err := native.Install(dir)
		require.ErrorIs(t, err, native.ErrNoExec)
		_, err = os.Stat(filepath.Join(dir, "agent", native.Sum()))
		require.ErrorIs(t, err, fs.ErrNotExist)
		return
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), "NATIVE_NOEXEC="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "PASS")
}

// TestAKilledInstallLeavesNothingThatCounts: after a writer was killed at any moment, the next one can write.
func TestAKilledInstallLeavesNothingThatCounts(t *testing.T) {
	if dir := os.Getenv("NATIVE_KILLED"); dir != "" {
		fmt.Println("up")
		_, err := native.Install(dir)
		require.NoError(t, err)
		return
	}
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	for range 8 {
		cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.count=1")
		cmd.Env = append(os.Environ(), "NATIVE_KILLED="+dir)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = out.Read(make([]byte, 3))
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		if path := filepath.Join(dir, "agent", native.Sum()); exists(path) {
			isAgent(t, path)
			require.NoError(t, os.Remove(path))
		}
	}
	path, err := native.Install(dir)
	require.NoError(t, err)
	isAgent(t, path)
}

func TestWhatAKilledWriterLeftIsSweptLater(t *testing.T) {
	dir := t.TempDir()
	old, young := filepath.Join(dir, "agent/.new-old"), filepath.Join(dir, "agent/.new-young")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "agent"), 0o755))
	require.NoError(t, os.WriteFile(old, nil, 0o600))
	require.NoError(t, os.WriteFile(young, nil, 0o600))
	require.NoError(t, os.Chtimes(old, time.Time{}, time.Now().Add(-time.Hour)))
	_, err := native.Install(dir)
	require.NoError(t, err)
	require.False(t, exists(old))
	require.True(t, exists(young), "its writer may live")
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
