package wisbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// fake listens in the place of a session's holder.
type fake struct {
	t *testing.T
	*net.UnixListener
}

// faked returns a session whose holder is a fake, and a channel that reports when its client starts
// another one: those are real, and there is at most one.
func faked(t *testing.T) (fake, *wisbox.Session, *wisbox.Manager, <-chan struct{}) {
	t.Helper()
	holder, host := manager(t, wisbox.Options{})
	so := &wisbox.SessionOptions{Name: "box", Kept: true}
	made, err := holder.Open(t.Context(), so)
	require.NoError(t, err)
	require.NoError(t, made.Close(t.Context()))

	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	opts := &wisbox.Options{CacheDir: holder.CacheDir(), Backend: host, Holder: []string{"sh", "-c", `cat "$0"`, fifo}}
	m, err := wisbox.NewManager(t.Context(), opts)
	require.NoError(t, err)
	s, err := m.Attach(t.Context(), "box")
	require.NoError(t, err)

	dir, err := os.Open(holderFile(m, ""))
	require.NoError(t, err)
	path := fmt.Sprintf("/proc/self/fd/%d/hold.sock", dir.Fd()) // its own path may be too long for an address
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, errors.Join(err, dir.Close()))
	l.SetUnlinkOnClose(false) // like a killed one
	require.NoError(t, l.SetDeadline(time.Now().Add(20*time.Second)))
	started := make(chan struct{})
	stopped := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(stopped)
		ready, err := os.OpenFile(fifo, os.O_WRONLY, 0) // waits for the command
		if err != nil || ctx.Err() != nil {
			return
		}
		close(started)
		assert.NoError(t, holder.Hold(ctx, "box", time.Minute, wisbox.HoldReady(ready)))
	}()
	t.Cleanup(func() {
		cancel()
		if r, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil {
			defer r.Close()
		}
		<-stopped
		_ = l.Close()
		require.NoError(t, m.Close())
	})
	return fake{t, l}, s, m, started
}

// asked waits until a client has connected, and reads nothing from it.
func (f fake) asked() {
	raw, err := f.SyscallConn()
	require.NoError(f.t, err)
	require.NoError(f.t, raw.Control(func(fd uintptr) {
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
			if !errors.Is(err, unix.EINTR) {
				assert.NoError(f.t, err)
				assert.Equal(f.t, 1, n, "nobody asks")
				return
			}
		}
	}))
}

// accept accepts a client and its request.
func (f fake) accept() *hold.Conn {
	c, err := f.Accept()
	require.NoError(f.t, err)
	conn := hold.NewConn(c)
	kind, _, err := conn.Receive()
	assert.NoError(f.t, err)
	assert.Equal(f.t, hold.FrameRequest, kind)
	return conn
}

// deaths are ways in which a holder can end without having taken an operation.
var deaths = map[string]func(fake){
	"before it accepts": func(f fake) {
		f.asked()
		_ = f.Close()
	},
	"before it reads": func(f fake) {
		c, err := f.Accept()
		require.NoError(f.t, err)
		_ = c.Close() // and its socket after that, as the kernel may do it
		f.asked()
		_ = f.Close()
	},
	"before it takes what it read": func(f fake) {
		c := f.accept()
		_ = f.Close()
		_ = c.Close()
	},
}

func TestWhatNoHolderTookIsDoneByTheNext(t *testing.T) {
	operations := map[string]func(*wisbox.Session) error{
		"a call": func(s *wisbox.Session) error {
			_, err := s.Call(context.Background(), "write_file", json.RawMessage(`{"file_path":"f","content":"x"}`))
			return err
		},
		"a call whose request is longer than what a socket holds": func(s *wisbox.Session) error {
			_, err := s.Call(context.Background(), "write_file", json.RawMessage(`{"file_path":"f","content":"`+strings.Repeat("x", 1<<20)+`"}`))
			if tool.KindOf(err) == tool.TooLarge { // returned by the tool, so it was called
				return nil
			}
			return err
		},
		"a program": func(s *wisbox.Session) error {
			var out strings.Builder
			res, err := s.Run(context.Background(), sandbox.Cmd{Argv: []string{"cat"}, Stdin: strings.NewReader("in"), Stdout: &out})
			if err == nil && out.String() != "in" {
				return errors.New(string(res.Status) + ": " + out.String())
			}
			return err
		},
		"secrets": func(s *wisbox.Session) error {
			return s.SetSecrets(context.Background(), map[string]wisbox.Secret{"TOKEN": {Value: []byte("a value of a secret")}})
		},
		"a reset": func(s *wisbox.Session) error { return s.Reset(context.Background()) },
	}
	for how, die := range deaths {
		for name, do := range operations {
			if how == "before it takes what it read" && strings.Contains(name, "longer") {
				continue // the request is read, so the length makes no difference
			}
			t.Run(name+" "+how, func(t *testing.T) {
				f, s, _, started := faked(t)
				done := make(chan error, 1)
				go func() { done <- do(s) }()
				die(f)
				require.NoError(t, <-done)
				<-started
			})
		}
	}
}

// TestAHolderThatEndsIsAwaited: it no longer listens, but still has the session.
func TestAHolderThatEndsIsAwaited(t *testing.T) {
	f, s, m, started := faked(t)
	_ = f.Close()
	lock := flock.New(holderFile(m, "hold.lock"))
	require.NoError(t, lock.Lock())
	defer lock.Close()
	done := make(chan error, 1)
	go func() { _, err := s.Call(context.Background(), "ls", nil); done <- err }()
	<-started // the next holder, which waits for the lock
	require.NoError(t, lock.Unlock())
	require.NoError(t, <-done)
}

func TestAHolderThatEndsTakesNothing(t *testing.T) {
	_, m, ended := held(t, time.Minute)
	holder := m.Holders().Looker("box")
	dial := func() *hold.Conn {
		c, err := holder.Dial(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	late, stopping := dial(), dial()
	require.NoError(t, stopping.Send(hold.FrameRequest, []byte(`{"op":"stop"}`)))
	require.Eventually(t, func() bool {
		c, err := holder.Dial(t.Context())
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, 20*time.Second, time.Millisecond, "it listens no more")
	require.NoError(t, late.Send(hold.FrameRequest, []byte(`{"op":"`+hold.Version+`:call","args":{"tool":"write_file","args":"{\"file_path\":\"f\",\"content\":\"x\"}"},"ack":true}`)))
	_, _, err := late.Receive()
	require.Error(t, err, "it gets nothing")
	require.NoError(t, <-ended)
	s, err := m.Attach(t.Context(), "box")
	require.NoError(t, err)
	_, err = fs.Stat(s.Files(), "f")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestWhatAHolderTookIsNotDoneAgain(t *testing.T) {
	for name, do := range map[string]func(*wisbox.Session) error{
		"call": func(s *wisbox.Session) error { _, err := s.Call(context.Background(), "ls", nil); return err },
		"program": func(s *wisbox.Session) error {
			_, err := s.Start(context.Background(), sandbox.Cmd{Argv: []string{"true"}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, s, _, started := faked(t)
			done := make(chan error, 1)
			go func() { done <- do(s) }()
			c := f.accept()
			require.NoError(t, c.Send(hold.FrameTaken, nil))
			_, _ = f.Close(), c.Close()
			err := <-done
			assert.Equal(t, tool.Unavailable, tool.KindOf(err))
			assert.ErrorContains(t, err, "ended during the call")
			select {
			case <-started:
				t.Error("it was asked of another holder")
			default:
			}
		})
	}
}

func TestAHolderThatTakesNothingIsAskedAFewTimes(t *testing.T) {
	f, s, _, _ := faked(t)
	done := make(chan error, 1)
	go func() { _, err := s.Call(context.Background(), "ls", nil); done <- err }()
	for range 5 {
		_ = f.accept().Close()
	}
	err := <-done
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
	assert.ErrorContains(t, err, "nothing of the call was done")
}

// TestAnOlderHolderNeedNotSayThatItTakes: its first frame has the same meaning.
func TestAnOlderHolderNeedNotSayThatItTakes(t *testing.T) {
	f, s, _, _ := faked(t)
	done := make(chan error, 1)
	go func() { _, err := s.Call(context.Background(), "ls", nil); done <- err }()
	c := f.accept()
	require.NoError(t, c.Send(hold.FrameProgress, []byte("half")))
	_ = c.Close()
	assert.ErrorContains(t, <-done, "ended during the call")
}

// TestAHolderOfAnotherVersionMakesRoom: it knows no operation of this version, and does nothing. A
// look leaves it alone; the next call ends it, with its programs, and reports the loss where it
// matters.
func TestAHolderOfAnotherVersionMakesRoom(t *testing.T) {
	f, s, _, started := faked(t)
	refuse := func() {
		c := f.accept()
		defer c.Close()
		assert.NoError(t, c.Send(hold.FrameTaken, nil))
		assert.NoError(t, c.SendJSON(hold.FrameFailure, tool.Errorf(tool.Unsupported, "of another version")))
	}
	looked := make(chan *wisbox.Inspection, 1)
	go func() { in, _ := s.Inspect(context.Background()); looked <- in }()
	refuse()
	assert.Contains(t, strings.Join((<-looked).Gaps, "\n"), "another version")

	done := make(chan error, 1)
	go func() { _, err := s.Call(context.Background(), "ls", nil); done <- err }()
	refuse()
	stopping := f.accept() // it is requested to stop, and ends
	_ = f.Close()
	_ = stopping.Close()
	require.NoError(t, <-done)
	<-started
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	assert.Contains(t, strings.Join(in.Gaps, "\n"), "ended for another version")
}

func TestLookingStartsNoHolder(t *testing.T) {
	for how, die := range deaths {
		t.Run(how, func(t *testing.T) {
			f, s, m, started := faked(t)
			done := make(chan error, 1)
			go func() { _, err := s.Inspect(context.Background()); done <- err }()
			die(f)
			require.NoError(t, <-done)
			reports, err := m.HolderReports(t.Context())
			require.NoError(t, err)
			assert.Empty(t, reports)
			select {
			case <-started:
				t.Error("a holder was started")
			default:
			}
		})
	}
}

func TestAHolderThatEndsUnaskedHasNoReport(t *testing.T) {
	for how, die := range deaths {
		t.Run(how, func(t *testing.T) {
			f, _, m, _ := faked(t)
			done := make(chan []wisbox.HolderReport, 1)
			go func() { reports, _ := m.HolderReports(context.Background()); done <- reports }()
			die(f)
			assert.Empty(t, <-done)
		})
	}
}

// TestACallOfAHolderThatStandsStillEndsWithItsCaller: the holder is stopped, so the kernel accepts
// the connection and nobody reads the request.
func TestACallOfAHolderThatStandsStillEndsWithItsCaller(t *testing.T) {
	for name, content := range map[string]string{"short": "x", "longer than what a socket holds": strings.Repeat("x", 1<<20)} {
		t.Run(name, func(t *testing.T) {
			f, s, m, _ := faked(t)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := s.Call(ctx, "write_file", json.RawMessage(`{"file_path":"f","content":"`+content+`"}`))
				done <- err
			}()
			f.asked()
			cancel()
			select {
			case err := <-done:
				assert.Equal(t, tool.Closed, tool.KindOf(err))
			case <-time.After(30 * time.Second):
				t.Fatal("the call is held")
			}
			reports, err := m.HolderReports(t.Context())
			require.NoError(t, err)
			require.Len(t, reports, 1)
			assert.Equal(t, tool.Timeout, tool.KindOf(reports[0].Err))
		})
	}
}

// TestAHolderThatStandsStillIsGivenUp even if the caller would wait longer.
func TestAHolderThatStandsStillIsGivenUp(t *testing.T) {
	wisbox.SetTakeWait(t, 100*time.Millisecond)
	for name, content := range map[string]string{"short": "x", "longer than what a socket holds": strings.Repeat("x", 1<<20)} {
		t.Run(name, func(t *testing.T) {
			_, s, _, _ := faked(t)
			_, err := s.Call(t.Context(), "write_file", json.RawMessage(`{"file_path":"f","content":"`+content+`"}`))
			assert.Equal(t, tool.Unavailable, tool.KindOf(err))
			assert.ErrorContains(t, err, "takes no call")
			in, err := s.Inspect(t.Context())
			require.NoError(t, err)
			assert.Contains(t, strings.Join(in.Gaps, "\n"), "takes no call")
		})
	}
}

// TestAHolderHasAllTimeForWhatItTook: only the time until it takes the operation is bounded.
func TestAHolderHasAllTimeForWhatItTook(t *testing.T) {
	const wait = 100 * time.Millisecond
	wisbox.SetTakeWait(t, wait)
	f, s, _, _ := faked(t)
	go func() {
		c := f.accept()
		assert.NoError(t, c.Send(hold.FrameTaken, nil))
		<-time.After(3 * wait)
		assert.NoError(t, c.SendJSON(hold.FrameAnswer, map[string]any{"result": map[string]any{"text": "done"}}))
	}()
	_, err := s.Call(t.Context(), "ls", json.RawMessage(`{}`))
	assert.NoError(t, err)
}

func TestAHolderSaysThatItTakesToWhomItConcerns(t *testing.T) {
	_, m, _ := held(t, time.Minute)
	ask := func(request string) (kinds []hold.Type) {
		conn, err := m.Holders().Looker("box").Dial(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.Send(hold.FrameRequest, []byte(request)))
		for {
			kind, _, err := conn.Receive()
			if err != nil {
				return kinds
			}
			kinds = append(kinds, kind)
		}
	}
	assert.Equal(t, []hold.Type{hold.FrameTaken, hold.FrameAnswer}, ask(`{"op":"`+hold.Version+`:call","args":{"tool":"ls","args":"{}"},"ack":true}`))
	assert.Equal(t, []hold.Type{hold.FrameAnswer}, ask(`{"op":"`+hold.Version+`:call","args":{"tool":"ls","args":"{}"}}`), "who does not ask for it gets no such frame")
	assert.Equal(t, []hold.Type{hold.FrameFailure}, ask(`{"op":"call","tool":"ls","args":{}}`), "of another version")
}
