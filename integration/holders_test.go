package integration

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// login is a way to start wisbox: from a login, whose runtime directory comes and goes, or from a unit, cron or sudo, which
// have none.
type login struct {
	h          *home
	runtimeDir string // "" for none
}

func (l login) command(args ...string) *exec.Cmd {
	cmd := l.h.command(args...)
	cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "XDG_RUNTIME_DIR=") })
	if l.runtimeDir != "" {
		cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR="+l.runtimeDir)
	}
	return cmd
}

func (l login) do(args ...string) string {
	l.h.t.Helper()
	cmd := l.command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(l.h.t, cmd.Run(), "%v: %s", args, errs.String())
	return out.String()
}

// TestASessionHasOneHolderWhoeverStartsIt: an ssh login, a unit and sudo have other runtime directories, and logind removes a
// user's after the last log-out.
func TestASessionHasOneHolderWhoeverStartsIt(t *testing.T) {
	h := newHome(t)
	dir, err := os.MkdirTemp("/tmp", "wb") // short, for sockets
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	unit, person := login{h, ""}, login{h, dir}
	id := mark()
	unit.do("session", "create", "box")
	unit.do("exec", "-d", "box", "--", "sleep", id)
	unit.do("eval", "python", "--session", "box", "--keep", "y = 5")
	assert.Contains(t, person.do("ps", "box"), "sleep "+id)
	assert.Equal(t, "5\n", person.do("eval", "python", "--session", "box", "--keep", "y"))
	assert.Equal(t, "5\n", unit.do("eval", "python", "--session", "box", "--keep", "y"))
	assert.Len(t, holders(t, "box", h), 1)

	person.do("stop", "box")
	assert.False(t, asleep(id))
	assert.Empty(t, holders(t, "box", h))
	assert.NotContains(t, unit.do("ps", "box"), "sandbox_lost")
	person.do("exec", "-d", "box", "--", "sleep", id)
	assert.Contains(t, unit.do("ps", "box"), "sleep "+id)
	unit.do("rm", "box")
	h.requireNothing()
	assert.Empty(t, holders(t, "box", h))
}

// unreachable are the ways in which a holder loses its socket's name.
var unreachable = map[string]func(t *testing.T, socket string){
	"removed": func(t *testing.T, socket string) { require.NoError(t, os.Remove(socket)) },
	"replaced by a dead one": func(t *testing.T, socket string) {
		require.NoError(t, os.Remove(socket))
		listenAt(t, socket, func(l *net.UnixListener) { assert.NoError(t, l.Close()) })
	},
	"replaced by another one": func(t *testing.T, socket string) {
		require.NoError(t, os.Remove(socket))
		listenAt(t, socket, func(l *net.UnixListener) { t.Cleanup(func() { _ = l.Close() }) })
	},
}

// listenAt listens on a socket whose path may be too long for its address, and leaves the socket there.
func listenAt(t *testing.T, socket string, then func(*net.UnixListener)) {
	t.Helper()
	dir, err := os.Open(filepath.Dir(socket))
	require.NoError(t, err)
	defer dir.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + filepath.Base(socket), Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	then(l)
}

// TestAHolderThatNobodyCanReachIsEnded by what needs the session next. Its processes go on with the next holder.
func TestAHolderThatNobodyCanReachIsEnded(t *testing.T) {
	h := newHome(t)
	for how, lose := range unreachable {
		t.Run(how, func(t *testing.T) {
			id := mark()
			begin := func() (holder int) {
				h.do("session", "create", "box")
				h.do("exec", "-d", "box", "--", "sleep", id)
				all := holders(t, "box", h)
				require.Len(t, all, 1)
				lose(t, filepath.Join(h.cache, "sessions", "box", "hold.sock"))
				return all[0]
			}
			if how != "replaced by another one" { // which is a client's to answer
				old := begin()
				assert.Equal(t, "ran\n", h.do("exec", "box", "--", "echo", "ran"))
				assert.NotContains(t, holders(t, "box", h), old)
				assert.Len(t, holders(t, "box", h), 1)
				assert.Contains(t, h.do("ps", "box"), "sleep "+id)
				h.do("rm", "box")
				assert.False(t, asleep(id))
			}
			begin()
			began := time.Now()
			h.do("rm", "box")
			assert.Less(t, time.Since(began), 30*time.Second)
			assert.Empty(t, holders(t, "box", h))
			assert.False(t, asleep(id))

			begin()
			assert.Contains(t, h.do("prune", "--dry-run"), "box  a holder that no client can reach")
			assert.Len(t, holders(t, "box", h), 1)
			assert.Contains(t, h.do("prune"), "box  a holder that no client can reach")
			assert.Empty(t, holders(t, "box", h))
			assert.Equal(t, "nothing to remove\n", h.do("prune"))
			h.do("rm", "box")
			h.requireNothing()
		})
	}
}

// TestAHolderWhoseDirectoryIsGoneIsEnded: somebody took it away while it was in use.
func TestAHolderWhoseDirectoryIsGoneIsEnded(t *testing.T) {
	h := newHome(t)
	t.Cleanup(func() { hosttest.UnmountBelow(filepath.Dir(h.cache)) })
	h.do("session", "create", "box")
	h.do("exec", "box", "--", "true")
	require.Len(t, holders(t, "box", h), 1)
	require.NoError(t, os.Rename(filepath.Join(h.cache, "sessions", "box"), h.cache+"-taken-away"))
	assert.Contains(t, h.do("prune"), "box  a holder that no client can reach")
	assert.Empty(t, holders(t, "box", h))
	hosttest.UnmountBelow(h.cache + "-taken-away")
	h.requireNothing()
	h.do("session", "create", "box")
	assert.Equal(t, "ran\n", h.do("exec", "box", "--", "echo", "ran"))
	h.do("rm", "box")
	h.requireNothing()
}
