package wisbox_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// begin starts a script as a process with open input.
func begin(t *testing.T, s *wisbox.Session, script string) string {
	t.Helper()
	info, err := s.StartProcess(t.Context(), sandbox.Cmd{Argv: []string{"bash", "-c", script}}, &wisbox.ProcessOptions{KeepStdin: true})
	require.NoError(t, err)
	return info.ProcessID
}

// paper collects a program's output.
type paper struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *paper) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *paper) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func (p *paper) has(t *testing.T, want string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(p.String(), want) }, 30*time.Second, time.Millisecond, "%q", want)
}

func TestAProcessIsTheSameWhoeverBeganIt(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		mine := begin(t, s, "read x; echo got $x; echo err >&2; exit 3")
		theirs := text(t, s, "process_start", `{"script":"echo theirs; sleep 600"}`)
		assert.Contains(t, text(t, s, "process_list", `{}`), mine)
		all, err := s.Processes(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 2)
		assert.Equal(t, mine, all[0].ProcessID)
		assert.Contains(t, theirs, all[1].ProcessID)

		text(t, s, "process_write", fmt.Sprintf(`{"process_id":%q,"data":"it\n"}`, mine))
		var out, errs paper
		info, err := s.ProcessOutput(t.Context(), mine, &wisbox.OutputOptions{Stdout: &out, Stderr: &errs, Follow: true})
		require.NoError(t, err)
		assert.Equal(t, "got it\n|err\n", out.String()+"|"+errs.String())
		assert.Equal(t, 3, *info.ExitCode)

		info, err = s.SignalProcess(t.Context(), all[1].ProcessID, "KILL")
		require.NoError(t, err)
		assert.Equal(t, "signaled KILL", info.State+" "+info.Signal)
		for _, err := range []error{
			second(s.SignalProcess(t.Context(), "nosuch", "KILL")), second(s.ProcessOutput(t.Context(), "nosuch", nil)), second(s.AttachProcess(t.Context(), "nosuch", nil)),
		} {
			assert.Equal(t, tool.NotFound, tool.KindOf(err))
			assert.ErrorContains(t, err, "wisbox ps")
		}
		assert.Equal(t, tool.Invalid, tool.KindOf(second(s.SignalProcess(t.Context(), mine, "NOSUCH"))))
		_, err = s.StartProcess(t.Context(), sandbox.Cmd{Argv: []string{"cat"}, Stdin: strings.NewReader("x")}, nil)
		assert.Equal(t, tool.Unsupported, tool.KindOf(err))
	})
}

func second[T any](_ T, err error) error { return err }

func TestAProcessThatEndsByItself(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		for program, code := range map[string]int{"no-such-program": sandbox.ExitNotFound, "cat": 0} { // its input is at its end
			info, err := s.StartProcess(t.Context(), sandbox.Cmd{Argv: []string{program}}, nil)
			require.NoError(t, err)
			info, err = s.ProcessOutput(t.Context(), info.ProcessID, &wisbox.OutputOptions{Follow: true})
			require.NoError(t, err)
			require.NotNil(t, info.ExitCode)
			assert.Equal(t, code, *info.ExitCode, program)
		}
		_, err := s.StartProcess(t.Context(), sandbox.Cmd{Argv: []string{"true"}, Dir: "/etc"}, nil)
		assert.Equal(t, tool.Invalid, tool.KindOf(err), "this backend enters the workspace only")
		_, err = s.StartProcess(t.Context(), sandbox.Cmd{Argv: []string{"cat", "caf\xe9"}}, nil)
		assert.ErrorContains(t, err, "argument 1 of the command is not UTF-8")
	})
}

// TestAProcessIsStartedAndJoinedInOneStep: no output is lost, the process continues without the
// attached client, and the log has one record of the start.
func TestAProcessIsStartedAndJoinedInOneStep(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		var out, errs paper
		info, a, err := s.StartAttached(t.Context(), sandbox.Cmd{Argv: []string{"bash", "-c", "echo first; echo err >&2; read x; echo got $x; exit 3"}},
			&wisbox.ProcessOptions{AtOnce: true, Tag: "tagged"}, &wisbox.AttachOptions{Stdin: strings.NewReader("it\n"), CloseStdin: true, Stdout: &out, Stderr: &errs})
		require.NoError(t, err)
		assert.Equal(t, "tagged", info.Tag)
		res, err := a.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 3, res.ExitCode)
		assert.Equal(t, "first\ngot\n|err\n", out.String()+"|"+errs.String(), "its input was not kept open")

		info, a, err = s.StartAttached(t.Context(), sandbox.Cmd{Argv: []string{"bash", "-c", "echo on; read x; exit 4"}}, &wisbox.ProcessOptions{KeepStdin: true, AtOnce: true}, &wisbox.AttachOptions{Stdout: &out})
		require.NoError(t, err)
		out.has(t, "on\n")
		a.Detach()
		_, err = a.Wait(t.Context())
		require.ErrorIs(t, err, wisbox.ErrDetached)
		require.NoError(t, s.WriteProcess(t.Context(), info.ProcessID, []byte("x\n"), false))
		info, err = s.ProcessOutput(t.Context(), info.ProcessID, &wisbox.OutputOptions{Follow: true})
		require.NoError(t, err)
		assert.Equal(t, 4, *info.ExitCode)
		require.NoError(t, inLog(s, "process_end", info.ProcessID))
		log, err := os.ReadFile(filepath.Join(sessionDir(s), "log.jsonl"))
		require.NoError(t, err)
		assert.NotContains(t, string(log), "process_attach")

		for _, cmd := range []sandbox.Cmd{{Argv: []string{"true"}, Dir: "/etc"}, {Argv: []string{"true"}, Stdout: &out}} {
			_, _, err = s.StartAttached(t.Context(), cmd, nil, nil)
			assert.Contains(t, []tool.Kind{tool.Invalid, tool.Unsupported}, tool.KindOf(err))
		}
	})
}

// TestTheEndOfAProcessIsInTheLog under the call that started it, after that call's record, with the
// verdict; the same holds for a program that its caller steers.
func TestTheEndOfAProcessIsInTheLog(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		ctx := wisbox.WithCaller(t.Context(), "somebody")
		info, err := s.StartProcess(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", "echo four; exit 4"}}, nil)
		require.NoError(t, err)
		require.NoError(t, inLog(s, "process_end", info.ProcessID))
		p, err := s.Start(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", "kill -9 $$"}})
		require.NoError(t, err)
		_, err = p.Wait(t.Context())
		require.NoError(t, err)
		all := logged(t, s)
		require.Len(t, all, 4)
		for i, want := range []struct{ tool, outcome, verdict string }{
			{"process_start", "ok", ""}, {"process_end", "ok", "exited"}, {"start", "ok", ""}, {"process_end", "failed", "signaled"},
		} {
			e := all[i]
			assert.Equal(t, want.tool+" "+want.outcome+" "+want.verdict, e.Tool+" "+e.Outcome+" "+e.Verdict)
			assert.Equal(t, all[i/2*2].Call, e.Call)
			assert.Equal(t, "somebody", e.Caller)
			assert.True(t, e.Unknown)
		}
		assert.Equal(t, []any{"sh", "-c", "echo four; exit 4"}, all[1].Args["command"])
		assert.EqualValues(t, 4, all[1].Args["exit_code"])
		assert.Equal(t, 5, all[1].ResultSize)
		assert.NotContains(t, all[3].Args, "process_id")
	})
}

// TestUndoAndRestoreLeaveAProcessRunning, like those of process_start: both leave a step, and the
// processes see their files restored.
func TestUndoAndRestoreLeaveAProcessRunning(t *testing.T) {
	const loop = "while read x; do echo $x >f; cat f; done"
	starts := map[string]func(t *testing.T, s *wisbox.Session) string{
		"StartProcess": func(t *testing.T, s *wisbox.Session) string { return begin(t, s, loop) },
		"process_start": func(t *testing.T, s *wisbox.Session) string {
			text(t, s, "process_start", `{"script":"`+loop+`"}`)
			all, err := s.Processes(t.Context())
			require.NoError(t, err)
			return all[len(all)-1].ProcessID
		},
	}
	for name, start := range starts {
		t.Run(name, func(t *testing.T) {
			eachHost(t, wisbox.SessionOptions{AutoSnapshot: true}, func(t *testing.T, s *wisbox.Session) {
				text(t, s, "write_file", `{"file_path":"f","content":"before"}`)
				id := start(t, s)
				var out paper
				in, keys := io.Pipe()
				a, err := s.AttachProcess(t.Context(), id, &wisbox.AttachOptions{Stdin: in, Stdout: &out})
				require.NoError(t, err)
				_, _ = io.WriteString(keys, "one\n")
				out.has(t, "one")
				undone, err := s.Undo(t.Context(), "")
				require.NoError(t, err)
				assert.Equal(t, 1, undone.Calls, "who sends it input has a step too")
				assert.Equal(t, "before", content(t, s, "f"))
				_, _ = io.WriteString(keys, "two\n")
				out.has(t, "two")
				assert.Equal(t, "two\n", content(t, s, "f"))
				undone, err = s.Undo(t.Context(), "")
				require.NoError(t, err)
				assert.Equal(t, 1, undone.Calls)
				assert.Equal(t, "before", content(t, s, "f"))
				all, err := s.Processes(t.Context())
				require.NoError(t, err)
				assert.Equal(t, "running", all[0].State)
				require.NoError(t, a.Signal("KILL"))
				res, err := a.Wait(t.Context())
				require.NoError(t, err)
				assert.Equal(t, sandbox.StatusSignaled, res.Status)
				_ = keys.Close()
			})
		})
	}
}

// untilEnd prints its terminal's size, and each later one, until it reads "end". A read that
// times out may have taken the beginning of the line.
const untilEnd = `trap 'stty size' WINCH; stty size; until [[ $all == *end ]]; do x=; read -t 0.05 x; all+=$x; done; exit 6`

func TestWhoDetachesLeavesTheProcess(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		size := sandbox.WinSize{Cols: 91, Rows: 31}
		info, err := s.StartProcess(t.Context(), sandbox.Cmd{Argv: []string{"bash", "-c", untilEnd}, TTY: &size}, nil)
		require.NoError(t, err)
		var out, other paper
		a, err := s.AttachProcess(t.Context(), info.ProcessID, &wisbox.AttachOptions{Stdout: &out, Replay: -1})
		require.NoError(t, err)
		out.has(t, "31 91")
		require.NoError(t, a.Resize(sandbox.WinSize{Cols: 77, Rows: 33}))
		out.has(t, "33 77")
		a.Detach()
		a.Detach()
		_, err = a.Wait(t.Context())
		assert.ErrorIs(t, err, wisbox.ErrDetached)
		again, err := s.AttachProcess(t.Context(), info.ProcessID, &wisbox.AttachOptions{Stdin: strings.NewReader("end\n"), Stdout: &other, Replay: 1})
		require.NoError(t, err)
		res, err := again.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 6, res.ExitCode)
		assert.Contains(t, other.String(), "33 77")
	})
}

// watchers returns an attachment to a process, and a reader that follows its output.
func watchers(t *testing.T, s *wisbox.Session) (a *wisbox.Attachment, followed <-chan error) {
	t.Helper()
	id := begin(t, s, "echo begun; sleep 600")
	a, err := s.AttachProcess(t.Context(), id, &wisbox.AttachOptions{Stdin: silent(t)})
	require.NoError(t, err)
	read, done := &paper{}, make(chan error, 1)
	go func() {
		_, err := s.ProcessOutput(context.Background(), id, &wisbox.OutputOptions{Stdout: read, Follow: true})
		done <- err
	}()
	read.has(t, "begun")
	return a, done
}

func TestTheEndOfASessionIsSaidToWhoReads(t *testing.T) {
	s, m, _ := held(t, time.Minute)
	a, followed := watchers(t, s)
	removed := make(chan error, 1)
	go func() { removed <- m.Remove(context.Background(), "box") }()
	for _, err := range []error{<-followed, second(a.Wait(t.Context()))} {
		assert.Equal(t, tool.Closed, tool.KindOf(err))
		assert.ErrorContains(t, err, "the session ended, or was reset")
	}
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, <-removed, "nobody keeps it from being removed")
}

func TestAResetIsSaidToWhoReads(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		a, followed := watchers(t, s)
		require.NoError(t, s.Reset(t.Context()))
		assert.Equal(t, tool.Closed, tool.KindOf(<-followed))
		res, err := a.Wait(t.Context())
		assert.True(t, err == nil && res.Status == sandbox.StatusSandboxLost || tool.KindOf(err) == tool.Closed, "%v %v", res, err)
		all, err := s.Processes(t.Context())
		require.NoError(t, err)
		assert.Empty(t, all)
	})
}

// silent returns input that doesn't come before the test ends.
func silent(t *testing.T) io.Reader {
	in, out := io.Pipe()
	t.Cleanup(func() { _ = out.Close() })
	return in
}

// TestAnIdleHolderStaysForAProcess and ends after it; then no process is known, and a look starts
// no holder.
func TestAnIdleHolderStaysForAProcess(t *testing.T) {
	s, _, ended := held(t, 50*time.Millisecond)
	id := begin(t, s, "sleep 1; echo done >f") // many times the idle time
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("the holder stays")
	}
	assert.Equal(t, "done\n", content(t, s, "f"))
	all, err := s.Processes(t.Context())
	require.NoError(t, err)
	assert.Empty(t, all)
	_, err = s.ProcessOutput(t.Context(), id, nil)
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
	assert.ErrorContains(t, err, "wisbox history")
	_, err = s.AttachProcess(t.Context(), id, nil)
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
	require.NoError(t, inLog(s, "process_end", id))
}

// TestAValueIsNotInTheOutputOfAProcess, nor in the list of processes, nor in the log.
func TestAValueIsNotInTheOutputOfAProcess(t *testing.T) {
	m, _ := manager(t, wisbox.Options{})
	s, err := m.Open(t.Context(), withToken)
	require.NoError(t, err)
	defer s.Close(t.Context())
	half := strings.Repeat("x", 55) + token // it is shown cut, in the middle of the value
	info, err := s.StartProcess(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo a " + token, "0", half}}, nil)
	require.NoError(t, err)
	var out paper
	_, err = s.ProcessOutput(t.Context(), info.ProcessID, &wisbox.OutputOptions{Stdout: &out, Follow: true})
	require.NoError(t, err)
	assert.Equal(t, "a "+stars+"\n", out.String())
	all, err := s.Processes(t.Context())
	require.NoError(t, err)
	assert.NotContains(t, mustJSON(t, all)+mustJSON(t, info), token)
	require.NoError(t, inLog(s, "process_end", info.ProcessID))
	for _, e := range logged(t, s) {
		assert.NotContains(t, mustJSON(t, e), token[:6])
	}
}

func TestWhoGivesUpReadingIsTold(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		id := begin(t, s, "sleep 600")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := s.ProcessOutput(ctx, id, &wisbox.OutputOptions{Follow: true})
		assert.Equal(t, tool.Timeout, tool.KindOf(err))
		all, err := s.Processes(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "running", all[0].State)
	})
}

// TestReadersComeAndGoInACrowd: a reader that stays gets all output, once and in order.
func TestReadersComeAndGoInACrowd(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		const rounds, lines = 40, 500
		id := begin(t, s, fmt.Sprintf("while read x; do seq %d; done", lines))
		var want strings.Builder
		for range rounds {
			for i := range lines {
				fmt.Fprintln(&want, i+1)
			}
		}
		in, keys := io.Pipe()
		var all paper
		stays, err := s.AttachProcess(t.Context(), id, &wisbox.AttachOptions{Stdin: in, CloseStdin: true, Stdout: &all})
		require.NoError(t, err)
		var crowd sync.WaitGroup
		for n := range 8 {
			crowd.Go(func() {
				for i := range 12 {
					a, err := s.AttachProcess(t.Context(), id, &wisbox.AttachOptions{Stdin: silent(t), Stdout: io.Discard, Replay: n*i - 1})
					if !assert.NoError(t, err) {
						return
					}
					_ = a.Resize(sandbox.WinSize{Cols: 80, Rows: 24}) // it has no terminal
					_, err = s.ProcessOutput(t.Context(), id, &wisbox.OutputOptions{Stdout: io.Discard, Tail: n})
					assert.NoError(t, err)
					a.Detach()
					_, err = a.Wait(t.Context())
					assert.ErrorIs(t, err, wisbox.ErrDetached)
				}
			})
		}
		for range rounds {
			_, err := io.WriteString(keys, "go\n")
			require.NoError(t, err)
		}
		crowd.Wait()
		require.NoError(t, keys.Close())
		res, err := stays.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 0, res.ExitCode)
		assert.Empty(t, res.Notices)
		assert.Equal(t, want.String(), all.String())
	})
}
