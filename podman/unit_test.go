package podman

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/internal/rundir"
	"github.com/wisbox/wisbox/podman/podmantest"
	"github.com/wisbox/wisbox/sandbox"
)

// clean unsets the variables that would lead to a real Podman.
func clean(t *testing.T) {
	for _, name := range []string{"PODMAN_BASE_URL", "CONTAINER_HOST", "PODMAN_CONNECTION", "CONTAINER_CONNECTION", "PODMAN_IDENTITY", "CONTAINER_SSHKEY", "XDG_RUNTIME_DIR"} {
		t.Setenv(name, "")
	}
}

func names(b *Backend) []string {
	var out []string
	for _, p := range b.places() {
		out = append(out, p.name)
	}
	return out
}

func TestRuntimesThatChangeDeviceNodesAreKnown(t *testing.T) {
	for text, want := range map[string]bool{
		"crun version 1.8.1\ncommit: f8a": true, "crun version 1.21": true, "crun version 1.24": false, "crun version 2.0": false,
		"runc version 1.1.3": true, "runc version 1.1.4+ds1": true, "runc version 1.1.5+ds1": false, "runc version 1.3.3": false, "runsc version release-20260101": false, "": false,
	} {
		var i hostInfo
		i.Host.OCIRuntime.Version = text
		require.Equal(t, want, i.changesDevices(), text)
		i.Host.Security.Rootless = true
		require.False(t, i.changesDevices(), text)
	}
}

func TestAnExplicitChoiceIsTheOnlyPlace(t *testing.T) {
	clean(t)
	t.Setenv("CONTAINER_HOST", "unix:///c.sock")
	b, err := New(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "unix:///c.sock", b.opts.BaseURL)
	t.Setenv("PODMAN_BASE_URL", "unix:///p.sock")
	b, _ = New(t.Context(), nil)
	require.Equal(t, "unix:///p.sock", b.opts.BaseURL)
	require.Len(t, names(b), 1)
	b, _ = New(t.Context(), &Options{Connection: "mine"})
	require.Equal(t, []string{"the podman connection mine"}, names(b))
}

func TestWithoutAnyPodmanTheErrorSaysWhatToInstall(t *testing.T) {
	clean(t)
	b, err := New(t.Context(), &Options{Podman: "/nowhere/podman", systemSocket: "/nowhere/podman.sock"})
	require.NoError(t, err)
	_, err = b.Service(t.Context())
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.Contains(t, err.Error(), "apt-get install podman")
}

func TestASocketThatIsDeadWrongOrForeign(t *testing.T) {
	clean(t)
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead")
	l, err := net.Listen("unix", dead)
	require.NoError(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	foreign := filepath.Join(dir, "foreign")
	other, err := net.Listen("unix", foreign)
	require.NoError(t, err)
	defer other.Close()
	cases := map[string]string{dead: "nobody listens", file: "no podman answers", filepath.Join(dir, "none"): "not there"}
	if os.Chown(foreign, 12345, 12345) == nil && os.Getuid() == 0 {
		cases[foreign] = "no podman answers"
	}
	for path, says := range cases {
		b, err := New(t.Context(), &Options{BaseURL: "unix://" + path})
		require.NoError(t, err)
		_, err = b.List(t.Context())
		require.ErrorIs(t, err, sandbox.ErrUnavailable)
		require.Contains(t, err.Error(), says)
		require.NotContains(t, err.Error(), dir)
	}
}

func TestAServiceThatComesBackIsUsedAgain(t *testing.T) {
	b, server := newFake(t)
	require.NoError(t, b.Remove(t.Context(), "one"))
	b.eng.Load().conn.URI.Path += "-gone"
	b.eng.Load().conn.Client.CloseIdleConnections()
	require.NoError(t, b.Remove(t.Context(), "one"))
	require.Equal(t, 2, server.Count("GET", "/info"))
}

func TestNothingButOurWordsReachesTheText(t *testing.T) {
	secret := errors.New("open /home/user/secret: boom")
	err := explain(t.Context(), "make it", fmt.Errorf("x: %w", secret))
	require.NotContains(t, err.Error(), "/home")
	require.ErrorIs(t, err, secret)
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, explain(ctx, "make it", secret), context.Canceled)
}

func TestAFreeRangeOverlapsNothing(t *testing.T) {
	require.Equal(t, rangeStart, freeRange(0, nil))
	require.Equal(t, rangeStart+1000*rangeSize, freeRange(1000, nil))
	require.Equal(t, rangeStart+rangeSize, freeRange(0, []idRange{{rangeStart + 65535, 1}}))
	rapid.Check(t, func(t *rapid.T) {
		var taken []idRange
		for range rapid.IntRange(0, 20).Draw(t, "n") {
			taken = append(taken, idRange{
				rapid.IntRange(rangeStart-rangeSize, rangeStart+10*rangeSize).Draw(t, "start"), rapid.IntRange(0, 3*rangeSize).Draw(t, "size"),
			})
		}
		base := freeRange(rapid.IntRange(0, 1<<31-1).Draw(t, "uid"), taken)
		if overlaps(base, taken) || base+rangeSize > 1<<31 {
			t.Fatalf("range at %d", base)
		}
	})
}

func TestARuntimeDirectoryMustBeOurs(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink("/tmp", link))
	require.Error(t, rundir.Private(link))
	open := filepath.Join(dir, "open")
	require.NoError(t, os.Mkdir(open, 0o777))
	require.NoError(t, rundir.Private(open))
	info, err := os.Stat(open)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(open, 1, 1))
		require.Error(t, rundir.Private(open))
	}
}

func TestTheServiceConfigurationFitsTheHost(t *testing.T) {
	s := &service{dir: t.TempDir()}
	path, err := s.writeConf("c", "/opt/bin/crun")
	require.NoError(t, err)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, line := range []string{`runtime = "crun"`, `"crun" = ["/opt/bin/crun"]`, `events_logger = "file"`, "exit_command_delay = 1", "keyring = false", `detach_keys = ""`} {
		require.Contains(t, string(data), line)
	}
	var host syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &host))
	require.Contains(t, string(data), fmt.Sprintf("nofile=%d:", min(host.Max, 16384)))

	path, err = s.writeConf("c", runscName)
	require.NoError(t, err)
	data, err = os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(data), `runtime = "runsc"`)
	require.NotContains(t, string(data), "keyring", "no container of gVisor starts with it")
}

func TestTheServicesEnvironmentIsScrubbed(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://user:password@proxy")
	t.Setenv("SECRET_TOKEN", "token")
	s := &service{dir: t.TempDir(), runtime: "runc"}
	env, err := s.configure(t.Context())
	require.NoError(t, err)
	text := strings.Join(env, "\n")
	require.NotContains(t, text, "password")
	require.NotContains(t, text, "token")
	require.Contains(t, text, "CONTAINERS_CONF="+s.dir)
}

func TestAPodmanThatDoesNotStartIsSaidSo(t *testing.T) {
	clean(t)
	dir := t.TempDir()
	bad := filepath.Join(dir, "podman")
	require.NoError(t, os.WriteFile(bad, []byte("#!/bin/sh\necho 'cannot find newuidmap' >&2\nexit 125\n"), 0o755))
	b, err := New(t.Context(), &Options{Podman: bad, RuntimeDir: filepath.Join(dir, "r"), Runtime: "runc"})
	require.NoError(t, err)
	_, err = b.Service(t.Context())
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.Contains(t, err.Error(), "package uidmap")
	require.NotContains(t, err.Error(), dir)
}

// pipeStream returns a stream that reads data from a pipe.
func pipeStream(data ...[]byte) *stream {
	ours, theirs := net.Pipe()
	go func() {
		for _, d := range data {
			_, _ = theirs.Write(d)
		}
		theirs.Close()
	}()
	return newStream(ours, bufio.NewReader(ours))
}

func TestAnAttachedStreamIsTakenApart(t *testing.T) {
	s := pipeStream(podmantest.Frame(1, "one "), podmantest.Frame(2, "err"), podmantest.Frame(1, ""), podmantest.Frame(1, "two"))
	out, err := io.ReadAll(s)
	require.NoError(t, err)
	require.Equal(t, "one two", string(out))
	require.Equal(t, "err", s.Stderr())
	_, err = io.ReadAll(pipeStream(podmantest.Frame(3, "gone wrong")))
	require.ErrorContains(t, err, "gone wrong")
	_, err = io.ReadAll(pipeStream(podmantest.Frame(9, "")))
	require.ErrorContains(t, err, "unknown stream")
	_, err = io.ReadAll(pipeStream(podmantest.Frame(1, "cut")[:9]))
	require.Error(t, err)
	s = pipeStream(podmantest.Frame(2, strings.Repeat("e", 1<<20)), podmantest.Frame(1, "end"))
	out, err = io.ReadAll(s)
	require.NoError(t, err)
	require.Equal(t, "end", string(out))
	require.Len(t, s.Stderr(), maxStderr)
}

func FuzzAttachedStream(f *testing.F) {
	f.Add(append(podmantest.Frame(1, "a"), podmantest.Frame(2, "b")...))
	f.Add([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		out, _ := io.ReadAll(pipeStream(data))
		if len(out) > len(data) {
			t.Fatal("more came out than went in")
		}
	})
}

func TestProgressIsReadInLines(t *testing.T) {
	var lines []string
	p := &progress{line: func(s string) { lines = append(lines, s) }}
	for _, part := range []string{"{\"stream\":\"STEP 1\\nmo", "re\\n\"}\n{\"stream\":\"x\"}\ngarbage\n{\"err", "or\":\"it failed\"}"} {
		_, err := p.Write([]byte(part))
		require.NoError(t, err)
	}
	require.ErrorContains(t, p.result(), "it failed")
	require.Equal(t, []string{"STEP 1", "more", "x"}, lines)
	_, err := (&progress{}).Write(make([]byte, maxLine+1))
	require.Error(t, err)
}

func TestAnOwnRangeIsNobodyElses(t *testing.T) {
	b, _ := newFake(t)
	var taken []sandbox.Owner
	usual := modeFor(false).base
	for range 50 {
		o, err := b.OwnRange(t.Context(), taken)
		require.NoError(t, err)
		base := o.UID - sandbox.UserID
		require.True(t, isSlot(base))
		require.NotEqual(t, usual, base)
		require.NotContains(t, taken, o)
		taken = append(taken, o)
	}
	for slot := range rangeSlots {
		taken = append(taken, usernsMode{base: rangeStart + slot*rangeSize}.owner())
	}
	_, err := b.OwnRange(t.Context(), taken)
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
}

func TestOnlyARangeOfOursIsTakenFromAnOwner(t *testing.T) {
	e := &engine{}
	b := &Backend{}
	usual := modeFor(false)
	require.Equal(t, usual, b.userns(e, sandbox.Spec{}))
	require.Equal(t, usual, b.userns(e, sandbox.Spec{Owner: sandbox.Owner{UID: sandbox.UserID}}), "the host's own ids are never mapped")
	require.Equal(t, usual, b.userns(e, sandbox.Spec{Owner: sandbox.Owner{UID: rangeStart + 1}}))
	own := rangeStart + 7*rangeSize
	require.Equal(t, usernsMode{base: own}, b.userns(e, sandbox.Spec{Owner: sandbox.Owner{UID: own + sandbox.UserID}}))
	e.info.Host.Security.Rootless = true
	require.True(t, b.userns(e, sandbox.Spec{Owner: sandbox.Owner{UID: own + sandbox.UserID}}).rootless)
}

func TestAServiceThatDidNotStartSaysWhatIsMissing(t *testing.T) {
	for tail, want := range map[string]string{
		`Error: default OCI runtime "crun" not found: invalid argument`: "install runc or crun",
		`exec: "newuidmap": executable file not found in $PATH`:         "uidmap",
		// of Podman 4.3, for a user who had a login when the storage was made
		`level=warning msg="RunRoot is pointing to a path (/run/user/1000/containers) which is not writable."` + "\nError: creating events dirs: mkdir /run/user/1000: permission denied": "loginctl enable-linger",
		"something else": "it did not start",
	} {
		require.Contains(t, (&startError{tail: tail}).hint(), want)
	}
}

func TestTheFeaturesOfARuntimeAreThoseItLists(t *testing.T) {
	info := &hostInfo{}
	info.Host.OCIRuntime.Version = "crun version 1.8.1\ncommit: f8a0\nrundir: /run/crun\nspec: 1.0.0\n+SYSTEMD +SECCOMP +YAJL"
	require.Equal(t, []string{"+SYSTEMD", "+SECCOMP", "+YAJL"}, info.runtimeFeatures())
	info.Host.OCIRuntime.Version = "runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev"
	require.Empty(t, info.runtimeFeatures())
}

// TestABusThatIsNotThereIsNotPassedOn: after su the variable has the address of the user before.
func TestABusThatIsNotThereIsNotPassedOn(t *testing.T) {
	bus := filepath.Join(t.TempDir(), "bus")
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path="+bus)
	_, ok := serviceVariable("DBUS_SESSION_BUS_ADDRESS")
	require.False(t, ok)
	require.NoError(t, os.WriteFile(bus, nil, 0o600))
	address, ok := serviceVariable("DBUS_SESSION_BUS_ADDRESS")
	require.True(t, ok)
	require.Equal(t, "unix:path="+bus, address)
}
