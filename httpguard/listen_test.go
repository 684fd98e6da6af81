package httpguard

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

func TestAddressesBeyondTheirOptionsAreRefused(t *testing.T) {
	tokens := &Options{Tokens: []string{strings.Repeat("A", 26)}}
	_, err := Listen("127.0.0.1:0", nil)
	assert.ErrorContains(t, err, "token")
	_, err = Listen("0.0.0.0:0", tokens)
	assert.ErrorContains(t, err, "TLS")
	_, err = Listen(":0", tokens)
	assert.ErrorContains(t, err, "TLS")
	_, err = Listen("127.0.0.1:0", &Options{Tokens: []string{"short"}})
	assert.ErrorContains(t, err, "22 characters")
	l, err := Listen("127.0.0.1:0", tokens)
	require.NoError(t, err)
	l.Close()
	open := t.TempDir()
	require.NoError(t, os.Chmod(open, 0o755))
	_, err = Listen("unix:"+filepath.Join(open, "s"), nil)
	assert.ErrorContains(t, err, "open to other users")
}

func TestASocketThatADeadServerLeftIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "private", "s")
	l, err := Listen("unix:"+path, nil)
	require.NoError(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	l, err = Listen("unix:"+path, nil)
	require.NoError(t, err)
	l.Close()
}

func TestTokensAreKeptInPrivateFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	token := NewToken()
	require.NoError(t, WriteToken(path, token))
	got, err := ReadToken(path)
	require.NoError(t, err)
	assert.Equal(t, token, got)
	require.NoError(t, os.Chmod(path, 0o644))
	_, err = ReadToken(path)
	assert.ErrorContains(t, err, "0600")
}

// TestPathsThatOthersDecideAreRefused for tokens and sockets, if another user could replace any part of the path.
func TestPathsThatOthersDecideAreRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make directories of other users")
	}
	const other = 12345
	token := NewToken()
	place := func(t *testing.T, mode os.FileMode, owner int) string {
		dir := filepath.Join(t.TempDir(), "dir")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte(token+"\n"), 0o600))
		require.NoError(t, os.Mkdir(filepath.Join(dir, "deep"), 0o700))
		require.NoError(t, os.Symlink("/", filepath.Join(dir, "link")))
		require.NoError(t, os.Lchown(filepath.Join(dir, "link"), owner, owner))
		require.NoError(t, os.Chmod(dir, mode))
		require.NoError(t, os.Chown(dir, owner, owner))
		return dir
	}
	refused := func(t *testing.T, path string) {
		_, err := ReadToken(path)
		assert.ErrorContains(t, err, "choose", "read %s", path)
		assert.ErrorContains(t, WriteToken(path, token), "choose", "write %s", path)
		_, err = Listen("unix:"+filepath.Join(filepath.Dir(path), "s"), nil)
		assert.Error(t, err, "listen beside %s", path)
	}
	t.Run("a directory of another user", func(t *testing.T) { refused(t, filepath.Join(place(t, 0o700, other), "token")) })
	t.Run("below a directory of another user", func(t *testing.T) { refused(t, filepath.Join(place(t, 0o700, other), "deep", "token")) })
	t.Run("a directory that others write to", func(t *testing.T) { refused(t, filepath.Join(place(t, 0o777, 0), "token")) })
	t.Run("a directory that a group writes to", func(t *testing.T) { refused(t, filepath.Join(place(t, 0o770, 0), "deep", "token")) })
	t.Run("a link to there", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "link")
		require.NoError(t, os.Symlink(place(t, 0o700, other), link))
		refused(t, filepath.Join(link, "token"))
	})
	t.Run("a link of another user's", func(t *testing.T) {
		dir := place(t, os.ModeSticky|0o777, 0)
		require.NoError(t, os.Lchown(filepath.Join(dir, "link"), other, other))
		refused(t, filepath.Join(dir, "link", "root", "token"))
	})
	t.Run("a file of another user's", func(t *testing.T) {
		dir := place(t, os.ModeSticky|0o777, 0)
		require.NoError(t, os.Chown(filepath.Join(dir, "token"), other, other))
		_, err := ReadToken(filepath.Join(dir, "token"))
		assert.ErrorContains(t, err, "another user")
	})
	t.Run("ours", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "link")
		require.NoError(t, os.Symlink(place(t, 0o755, 0), link))
		got, err := ReadToken(filepath.Join(link, "token"))
		require.NoError(t, err)
		assert.Equal(t, token, got)
		_, err = ReadToken(filepath.Join(place(t, os.ModeSticky|0o777, 0), "token"))
		assert.NoError(t, err, "a directory like /tmp")
	})
	t.Run("a FIFO", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "fifo")
		require.NoError(t, syscall.Mkfifo(path, 0o600))
		_, err := ReadToken(path)
		assert.ErrorContains(t, err, "not a file")
	})
}

// TestBothFamiliesOfTheLoopbackInterface: whoever had the other one would get the requests, with their keys, of clients
// that try it first.
func TestBothFamiliesOfTheLoopbackInterface(t *testing.T) {
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		hosttest.Lacks(t, "IPv6: %v", err)
	} else {
		require.NoError(t, l.Close())
	}
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]"} {
		l, err := Listen(host+":0", &Options{Tokens: []string{strings.Repeat("t", minToken)}})
		require.NoError(t, err)
		_, port, err := net.SplitHostPort(l.Addr().String())
		require.NoError(t, err)
		for _, addr := range []string{net.JoinHostPort("127.0.0.1", port), net.JoinHostPort("::1", port)} {
			_, err = net.Listen("tcp", addr)
			require.ErrorIs(t, err, syscall.EADDRINUSE, "%s for %s", addr, host)
			c, err := net.Dial("tcp", addr)
			require.NoError(t, err)
			got, err := l.Accept()
			require.NoError(t, err)
			assert.Equal(t, c.LocalAddr().String(), got.RemoteAddr().String())
			require.NoError(t, errors.Join(c.Close(), got.Close()))
		}
		require.NoError(t, l.Close())
		_, err = l.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
	}
}

func TestALoopbackPortThatSomebodyHasInTheOtherFamilyIsRefused(t *testing.T) {
	other, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		hosttest.Lacks(t, "IPv6: %v", err)
	}
	defer other.Close()
	_, err = Listen(fmt.Sprintf("127.0.0.1:%d", other.Addr().(*net.TCPAddr).Port), &Options{Public: true})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
}
