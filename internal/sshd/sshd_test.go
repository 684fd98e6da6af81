package sshd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/agent/agenttest"
	"github.com/wisbox/wisbox/agent/files"
	"github.com/wisbox/wisbox/internal/sshd"
	"github.com/wisbox/wisbox/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// session is an agent on this machine.
type session struct {
	*agent.Conn
	files *files.FS
	dir   string
	ports map[uint16]string
}

func (s *session) Inside() sandbox.FileSystem { return s.files }

func (s *session) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	addr, ok := s.ports[port]
	if !ok {
		return nil, fmt.Errorf("nothing listens on port %d", port)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}

func newSession(t *testing.T) *session {
	t.Helper()
	dir, err := os.MkdirTemp("", "wisbox-sshd-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Geteuid() == 0 {
		require.NoError(t, os.Lchown(dir, sandbox.UserID, sandbox.GroupID))
	}
	a := agenttest.Start(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := agent.Dial(ctx, a.Connect(t))
	require.NoError(t, err)
	s := &session{conn, files.New(conn), dir, map[uint16]string{}}
	t.Cleanup(func() {
		require.NoError(t, s.files.Close())
		require.NoError(t, conn.Close())
	})
	return s
}

// serve serves one client, and returns its connection and the result.
func serve(t *testing.T, s sshd.Session) (client net.Conn, ended chan error) {
	t.Helper()
	return serveWith(t, s, sshd.Options{})
}

func serveWith(t *testing.T, s sshd.Session, opts sshd.Options) (client net.Conn, ended chan error) {
	t.Helper()
	key, err := sshd.HostKey(filepath.Join(t.TempDir(), "ssh"))
	require.NoError(t, err)
	client, server := pipe(t)
	ended = make(chan error, 1)
	opts.Session, opts.HostKey = s, key
	go func() {
		ended <- sshd.Serve(context.Background(), server, &opts)
		close(ended)
	}()
	t.Cleanup(func() {
		client.Close()
		select {
		case <-ended: //nolint:errcheck // another test checks the result
		case <-time.After(30 * time.Second):
			t.Error("the server doesn't end")
		}
	})
	return client, ended
}

// pipe returns a pair of sockets, as ProxyCommand uses.
func pipe(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	defer l.Close()
	a, err = net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	b, err = l.Accept()
	require.NoError(t, err)
	return a, b
}

func connect(t *testing.T, s sshd.Session) *ssh.Client {
	t.Helper()
	return connectWith(t, s, sshd.Options{})
}

func connectWith(t *testing.T, s sshd.Session, opts sshd.Options) *ssh.Client {
	t.Helper()
	conn, _ := serveWith(t, s, opts)
	c, channels, requests, err := ssh.NewClientConn(conn, "box.wisbox", &ssh.ClientConfig{HostKeyCallback: ssh.InsecureIgnoreHostKey(), User: "anybody"})
	require.NoError(t, err)
	client := ssh.NewClient(c, channels, requests)
	t.Cleanup(func() { client.Close() })
	return client
}

func newChannel(t *testing.T, c *ssh.Client) *ssh.Session {
	t.Helper()
	s, err := c.NewSession()
	require.NoError(t, err)
	return s
}

func TestACommandHasItsStreamsItsVariablesAndItsExitCode(t *testing.T) {
	c := connect(t, newSession(t))
	s := newChannel(t, c)
	var out, errs bytes.Buffer
	s.Stdin, s.Stdout, s.Stderr = strings.NewReader("input"), &out, &errs
	require.NoError(t, s.Setenv("LC_TEST", "a b=c"))
	require.Error(t, s.Setenv("BAD NAME", "x"))
	require.Error(t, s.Setenv("NUL", "\x00"))
	err := s.Run(`cat; echo " $LC_TEST"; echo oops >&2; exit 7`)
	var exit *ssh.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 7, exit.ExitStatus())
	assert.Equal(t, "input a b=c\n", out.String())
	assert.Equal(t, "oops\n", errs.String())

	s = newChannel(t, c)
	errs.Reset()
	s.Stderr = &errs
	require.Error(t, s.Setenv("BYTES", "\xff"))
	require.ErrorAs(t, s.Run("echo \xff"), &exit, "no other command is run in place of that")
	assert.Equal(t, 125, exit.ExitStatus())
	assert.Contains(t, errs.String(), "wisbox: invalid: the command is not UTF-8")
}

func TestProgramsHaveTheVariablesOfAnAccount(t *testing.T) {
	const show = `printf '%s %s %s' "$USER" "$LOGNAME" "$SHELL"`
	name := "user" // the test's sandbox is this host
	if known, err := user.LookupId(fmt.Sprint(sandbox.UserID)); err == nil {
		name = known.Username
	}
	for shell, want := range map[string]string{"bash": name + " " + name + " /bin/bash", "/bin/sh": name + " " + name + " /bin/sh"} {
		c := connectWith(t, newSession(t), sshd.Options{Shell: func(context.Context) string { return shell }})
		out, err := newChannel(t, c).Output(show)
		require.NoError(t, err)
		assert.Equal(t, want, string(out))
	}
	s := newChannel(t, connect(t, newSession(t)))
	require.NoError(t, s.Setenv("USER", "me"))
	out, err := s.Output(show)
	require.NoError(t, err)
	assert.Equal(t, "me "+name+" /bin/bash", string(out), "the client's own")
}

func TestASignalThatEndsTheProgramIsSaid(t *testing.T) {
	s := newChannel(t, connect(t, newSession(t)))
	out, err := s.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.Start("echo up; exec sleep 1000"))
	_, err = io.ReadFull(out, make([]byte, 3))
	require.NoError(t, err)
	require.NoError(t, s.Signal(ssh.SIGTERM))
	var exit *ssh.ExitError
	require.ErrorAs(t, s.Wait(), &exit)
	assert.Equal(t, "TERM", exit.Signal())
}

// late is a session whose programs run before Start returns.
type late struct {
	*session
	release chan struct{}
}

func (l *late) Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	started, err := l.session.Start(ctx, cmd)
	<-l.release
	return started, err
}

// TestASignalThatComesEarlyIsKept: a program may have written before the server knows it.
func TestASignalThatComesEarlyIsKept(t *testing.T) {
	l := &late{newSession(t), make(chan struct{})}
	s := newChannel(t, connect(t, l))
	out, err := s.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.Start("echo up; exec sleep 1000"))
	_, err = io.ReadFull(out, make([]byte, 3))
	require.NoError(t, err)
	require.NoError(t, s.Signal(ssh.SIGTERM))
	_, err = s.SendRequest("after", true, nil) // answered after the signal
	require.NoError(t, err)
	close(l.release)
	var exit *ssh.ExitError
	require.ErrorAs(t, s.Wait(), &exit)
	assert.Equal(t, "TERM", exit.Signal())
}

func TestATerminalHasTheClientsSize(t *testing.T) {
	s := newChannel(t, connect(t, newSession(t)))
	out, err := s.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.RequestPty("xterm-256color", 33, 91, nil))
	require.NoError(t, s.Start(`stty size; echo $TERM; for i in $(seq 1000); do [ "$(stty size)" = "33 91" ] || break; sleep 0.01; done; stty size`))
	want := "33 91\r\nxterm-256color\r\n"
	got := make([]byte, len(want))
	_, err = io.ReadFull(out, got)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
	require.NoError(t, s.WindowChange(44, 120)) // has no answer: the program sees it a little later
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	assert.Equal(t, "44 120\r\n", string(rest))
	require.NoError(t, s.Wait())
}

// TestProgramsEndWithTheirChannelAndTheirConnection, and with nothing else.
func TestProgramsEndWithTheirChannelAndTheirConnection(t *testing.T) {
	box := newSession(t)
	c := connect(t, box)
	run := func() (*ssh.Session, string) {
		s := newChannel(t, c)
		out, err := s.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, s.Start("echo $$; sleep 1000 & sleep 1000"))
		pid := make([]byte, 20)
		n, err := out.Read(pid)
		require.NoError(t, err)
		return s, strings.TrimSpace(string(pid[:n]))
	}
	running := func(pid string) bool {
		_, err := os.Stat("/proc/" + pid)
		return err == nil
	}
	first, one := run()
	_, two := run()
	require.NoError(t, first.Close())
	require.Eventually(t, func() bool { return !running(one) }, 30*time.Second, time.Millisecond)
	require.True(t, running(two))
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return !running(two) }, 30*time.Second, time.Millisecond)
}

func TestWhatWisboxHasNotIsRefused(t *testing.T) {
	c := connect(t, newSession(t))
	ok, _, err := c.SendRequest("keepalive@openssh.com", true, nil)
	require.NoError(t, err)
	require.False(t, ok)
	_, err = c.Listen("tcp", "127.0.0.1:0")
	require.Error(t, err)
	for _, addr := range []string{"example.org:80", "127.0.0.2:80", "0.0.0.0:80", "localhost:0"} {
		_, err = c.Dial("tcp", addr)
		require.ErrorContains(t, err, "ports of the session itself", addr)
	}
	_, err = c.Dial("unix", "/run/docker.sock")
	require.ErrorContains(t, err, "sockets, agents, displays and tunnels")
	_, err = c.Dial("tcp", "localhost:81")
	require.Error(t, err)
	for _, request := range []string{"auth-agent-req@openssh.com", "x11-req", "nonsense", "subsystem"} {
		s := newChannel(t, c)
		ok, err := s.SendRequest(request, true, ssh.Marshal(struct{ Name string }{"other"}))
		require.NoError(t, err)
		require.False(t, ok, request)
		require.NoError(t, s.Close())
	}
	s := newChannel(t, c)
	require.NoError(t, s.Start("cat"))
	require.Error(t, s.RequestSubsystem("sftp"), "a channel has one program")
	require.Error(t, s.Setenv("LATE", "x"))
}

func TestAPortOfTheSessionIsReachedBothWays(t *testing.T) {
	box := newSession(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	box.ports[8000] = l.Addr().String()
	served := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		got, _ := io.ReadAll(conn)
		_, _ = conn.Write(bytes.ToUpper(got)) // after the client's end
		served <- string(got)
	}()
	conn, err := connect(t, box).Dial("tcp", "localhost:8000")
	require.NoError(t, err)
	sent := strings.Repeat("abc", 1<<20)
	_, err = io.WriteString(conn, sent)
	require.NoError(t, err)
	require.NoError(t, conn.(interface{ CloseWrite() error }).CloseWrite())
	got, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, strings.ToUpper(sent), string(got))
	require.Equal(t, sent, <-served)
}

// heap returns the allocated memory that the process still needs.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestAClientThatSpeaksNoSSHIsAnError(t *testing.T) {
	for _, said := range []string{strings.Repeat("x", 1<<20), "SSH-2.0-x\r\n" + strings.Repeat("\xff", 100)} {
		conn, ended := serve(t, newSession(t))
		go func() { _, _ = io.WriteString(conn, said) }()
		require.ErrorContains(t, <-ended, "breaks the SSH protocol")
	}
	for _, said := range []string{"", "GET / HTTP/1.1\r\n\r\n", "SSH-2.0-x\r\n"} {
		conn, ended := serve(t, newSession(t))
		_, err := io.WriteString(conn, said)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		<-ended //nolint:errcheck // only the end matters
	}
}

func TestAFloodOfChannelsAndVariablesTakesLittle(t *testing.T) {
	c := connect(t, newSession(t))
	before := heap()
	n, refused := 0, 0
	for range 1000 {
		ch, requests, err := c.OpenChannel("session", nil)
		if err != nil {
			require.ErrorContains(t, err, "there are 64 channels")
			refused++
			continue
		}
		go ssh.DiscardRequests(requests)
		if n++; n > 1 {
			continue
		}
		value := ssh.Marshal(struct{ Name, Value string }{"A", strings.Repeat("x", 2<<10)})
		for range 20_000 {
			_, err := ch.SendRequest("env", false, value)
			require.NoError(t, err)
		}
		ok, err := ch.SendRequest("env", true, value)
		require.NoError(t, err)
		require.False(t, ok)
	}
	assert.Equal(t, 64, n)
	assert.Equal(t, 936, refused)
	assert.Less(t, int64(heap())-int64(before), int64(16<<20))
	ch, _, err := c.OpenChannel("x11", nil)
	require.Error(t, err, "%v", ch)
}

// TestAClientThatReadsNothingSlowsItsProgramDown, and no other; memory stays.
func TestAClientThatReadsNothingSlowsItsProgramDown(t *testing.T) {
	c := connect(t, newSession(t))
	before := heap()
	ch, requests, err := c.OpenChannel("session", nil)
	require.NoError(t, err)
	go ssh.DiscardRequests(requests)
	_, err = ch.SendRequest("exec", true, ssh.Marshal(struct{ Command string }{"yes & yes >&2"}))
	require.NoError(t, err)
	s := newChannel(t, c)
	out, err := s.Output("head -c 20000000 /dev/zero | tr '\\0' y")
	require.NoError(t, err)
	require.Len(t, out, 20_000_000)
	runtime.KeepAlive(out) // 20 MB of the client's own are within the bound
	assert.Less(t, int64(heap())-int64(before), int64(64<<20))
}

// newSFTP returns the library's own client.
func newSFTP(t *testing.T, c *ssh.Client, opts ...sftp.ClientOption) *sftp.Client {
	t.Helper()
	client, err := sftp.NewClient(c, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

func TestFilesGoInAndOutWhole(t *testing.T) {
	box := newSession(t)
	c := newSFTP(t, connect(t, box), sftp.UseConcurrentWrites(true), sftp.MaxConcurrentRequestsPerFile(64))
	content := make([]byte, 10<<20+17)
	for i := range content {
		content[i] = byte(rand.Uint32())
	}
	path := box.dir + "/a file\n\xff"
	for range 3 {
		f, err := c.Create(path)
		require.NoError(t, err)
		_, err = f.ReadFromWithConcurrency(bytes.NewReader(content), 64)
		require.NoError(t, err)
		require.NoError(t, f.Chmod(0o751))
		require.NoError(t, f.Close())
		on, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(content, on))
		var back bytes.Buffer
		r, err := c.Open(path)
		require.NoError(t, err)
		_, err = r.WriteTo(&back)
		require.NoError(t, err)
		require.True(t, bytes.Equal(content, back.Bytes()))
		some := make([]byte, 1000)
		for range 10 { // here and there
			at := rand.Int64N(int64(len(content)))
			n, err := r.ReadAt(some, at)
			require.True(t, err == nil || errors.Is(err, io.EOF))
			require.True(t, bytes.Equal(content[at:at+int64(n)], some[:n]))
		}
		require.NoError(t, r.Close())
	}
	info, err := c.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o751), info.Mode())
	left, err := os.ReadDir(box.dir)
	require.NoError(t, err)
	assert.Len(t, left, 1)
}

func TestDirectoriesLinksAndNamesOfFiles(t *testing.T) {
	box := newSession(t)
	c := newSFTP(t, connect(t, box))
	at := func(name string) string { return box.dir + "/" + name }
	require.NoError(t, c.Mkdir(at("d")))
	require.Error(t, c.Mkdir(at("d")))
	for _, name := range []string{"a", "b"} {
		f, err := c.Create(at(name))
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	require.Error(t, c.Rename(at("a"), at("b")), "it is there")
	require.NoError(t, c.PosixRename(at("a"), at("b")))
	require.NoError(t, c.Rename(at("b"), at("d/c")))
	require.NoError(t, os.Symlink("d/c", at("link")))
	target, err := c.ReadLink(at("link"))
	require.NoError(t, err)
	assert.Equal(t, "d/c", target)
	info, err := c.Lstat(at("link"))
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeSymlink)
	require.ErrorContains(t, c.Symlink("d/c", at("other")), "makes no links over SFTP")
	all, err := c.ReadDir(box.dir)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.NoError(t, c.Chtimes(at("d/c"), time.Now(), time.Now()))
	require.Error(t, c.Chown(at("d/c"), 0, 0))
	require.ErrorContains(t, c.Truncate(at("d/c"), 10), "can't be changed")
	require.Error(t, c.RemoveDirectory(at("d")), "it is not empty")
	require.Error(t, c.RemoveDirectory(at("d/c")))
	require.NoError(t, c.Remove(at("d/c")))
	require.NoError(t, c.RemoveDirectory(at("d")))
	_, err = c.Stat(at("nosuch"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = c.Open(box.dir)
	require.Error(t, err)
	_, err = c.Create(at("nosuch/file"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = c.OpenFile(at("new"), os.O_WRONLY)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = c.OpenFile(at("link"), os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	require.NoError(t, err, "it leads nowhere now")
}

// TestAFileThatIsNotWrittenWholeStaysAsItWas: readers see the old file or the new one.
func TestAFileThatIsNotWrittenWholeStaysAsItWas(t *testing.T) {
	box := newSession(t)
	path := filepath.Join(box.dir, "file")
	keep := func() {
		require.NoError(t, os.WriteFile(path, []byte("0123456789"), 0o600))
		if os.Geteuid() == 0 {
			require.NoError(t, os.Lchown(path, sandbox.UserID, sandbox.GroupID))
		}
	}
	is := func(want string) {
		t.Helper()
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	keep()
	client := connect(t, box)
	c := newSFTP(t, client)
	write := func(flags int, at int64, text string) error {
		f, err := c.OpenFile(path, flags)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte(text), at)
		return errors.Join(err, f.Close())
	}
	require.ErrorContains(t, write(os.O_WRONLY|os.O_TRUNC, 5, "x"), "byte 0 is missing")
	is("0123456789")
	require.ErrorContains(t, write(os.O_WRONLY, 0, "ab"), "as a whole")
	is("0123456789")
	require.NoError(t, write(os.O_WRONLY, 0, "abcdefghijk"))
	is("abcdefghijk")
	f, err := c.OpenFile(path, os.O_WRONLY)
	require.NoError(t, err)
	_, err = f.Write([]byte("new"))
	require.NoError(t, err)
	is("abcdefghijk")
	require.NoError(t, f.Truncate(3))
	require.NoError(t, f.Close())
	is("new")
	require.NoError(t, write(os.O_WRONLY|os.O_APPEND, 3, " more"))
	is("new more")
	f, err = c.OpenFile(path, os.O_WRONLY|os.O_TRUNC)
	require.NoError(t, err)
	_, err = c.OpenFile(path, os.O_WRONLY)
	require.ErrorContains(t, err, "is being written already")
	_, err = f.Write([]byte("half"))
	require.NoError(t, err)
	require.NoError(t, client.Close())
	require.Eventually(t, func() bool {
		left, err := os.ReadDir(box.dir)
		return err == nil && len(left) == 1
	}, 30*time.Second, time.Millisecond)
	is("new more")
}

func TestManyOpenFilesAreRefusedAndReadInTurn(t *testing.T) {
	box := newSession(t)
	path := filepath.Join(box.dir, "file")
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	require.NoError(t, os.WriteFile(path, content, 0o644))
	c := newSFTP(t, connect(t, box))
	before := heap()
	var open []*sftp.File
	for range 64 {
		f, err := c.Open(path)
		require.NoError(t, err)
		open = append(open, f)
	}
	_, err := c.Open(path)
	require.ErrorContains(t, err, "64 files and directories are open")
	_, err = c.ReadDir(box.dir)
	require.Error(t, err)
	got := make([]byte, len(content)/2)
	for at := 0; at < len(content); at += len(got) {
		for _, f := range open {
			n, err := f.Read(got)
			require.NoError(t, err)
			require.Equal(t, len(got), n)
			require.True(t, bytes.Equal(content[at:at+n], got))
		}
	}
	assert.Less(t, int64(heap())-int64(before), int64(64<<20))
	for _, f := range open {
		require.NoError(t, f.Close())
	}
	_, err = c.ReadDir(box.dir)
	require.NoError(t, err)
}

func TestTheHostKeyIsMadeOnceAndForItsUserAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ssh")
	known := make(chan string, 8)
	for range cap(known) {
		go func() {
			_, err := sshd.HostKey(dir)
			assert.NoError(t, err)
			path, err := sshd.KnownHosts(dir)
			assert.NoError(t, err)
			raw, err := os.ReadFile(path)
			assert.NoError(t, err)
			known <- string(raw)
		}()
	}
	first := <-known
	require.True(t, strings.HasPrefix(first, "wisbox ssh-ed25519 "), first)
	for range cap(known) - 1 {
		require.Equal(t, first, <-known)
	}
	all, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, all, 2)
	for _, e := range all {
		info, err := e.Info()
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "host_key"), []byte("spoilt"), 0o600))
	_, err = sshd.HostKey(dir)
	require.ErrorContains(t, err, "remove it")
}
