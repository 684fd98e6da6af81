package wisbox_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
	"github.com/wisbox/wisbox/tool"
)

// example calls do with a Manager over the backend without isolation, so that the examples run
// without Podman. Leave Backend and CacheDir out to use Podman.
func example(opts wisbox.Options, do func(ctx context.Context, m *wisbox.Manager) error) {
	dir, err := os.MkdirTemp("", "wb")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	opts.CacheDir, opts.Backend = dir+"/state", sandboxtest.NewHost()
	opts.Podman.RuntimeDir = dir
	m, err := wisbox.NewManager(context.Background(), &opts)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	if err := do(context.Background(), m); err != nil {
		fmt.Println(err)
	}
}

// A session is opened, its tools are called with JSON, and it is closed and removed.
func ExampleNewManager() {
	example(wisbox.Options{}, func(ctx context.Context, m *wisbox.Manager) error {
		s, err := m.Open(ctx, &wisbox.SessionOptions{Limits: sandbox.Limits{Memory: 512 << 20}})
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		res, err := s.Call(ctx, "shell_execute", json.RawMessage(`{"script":"echo hello; exit 3"}`))
		if err != nil {
			return err
		}
		fmt.Println(res.Verdict, strings.Fields(res.Text)[0]) // res.Value is the result object
		return nil
	})
	// Output: exited hello
}

// Every error is a *tool.Error: a kind from a closed set, the invalid parameter, and what to do.
func ExampleSession_Call_error() {
	example(wisbox.Options{}, func(ctx context.Context, m *wisbox.Manager) error {
		s, err := m.Open(ctx, nil)
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		_, err = s.Call(ctx, "read_file", json.RawMessage(`{"file_path":"../etc/passwd"}`))
		fmt.Println(tool.KindOf(err), tool.AsError(err).Field)
		return nil
	})
	// Output: invalid file_path
}

// Run gives a program the caller's own streams, without the bounds of shell_execute.
func ExampleSession_Run() {
	example(wisbox.Options{}, func(ctx context.Context, m *wisbox.Manager) error {
		s, err := m.Open(ctx, nil)
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		res, err := s.Run(ctx, sandbox.Cmd{Argv: []string{"tr", "a-z", "A-Z"}, Stdin: strings.NewReader("loud\n"), Stdout: os.Stdout})
		if err != nil {
			return err
		}
		fmt.Println(res.Status, res.ExitCode)
		return nil
	})
	// Output:
	// LOUD
	// exited 0
}

// Start returns a running program, which can be signalled, resized, waited for or killed.
func ExampleSession_Start() {
	example(wisbox.Options{}, func(ctx context.Context, m *wisbox.Manager) error {
		s, err := m.Open(ctx, nil)
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		p, err := s.Start(ctx, sandbox.Cmd{Argv: []string{"sleep", "600"}})
		if err != nil {
			return err
		}
		if err := p.Kill(); err != nil {
			return err
		}
		res, err := p.Wait(ctx)
		fmt.Println(res.Status)
		return err
	})
	// Output: signaled
}

// Import and Export move files as tar streams, which can't leave the workspace.
func ExampleSession_Import() {
	example(wisbox.Options{}, func(ctx context.Context, m *wisbox.Manager) error {
		s, err := m.Open(ctx, nil)
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		if err := w.WriteHeader(&tar.Header{Name: "data.csv", Size: 4, Mode: 0o644}); err != nil {
			return err
		}
		if _, err := io.WriteString(w, "a,b\n"); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		done, err := s.Import(ctx, &archive, "in")
		if err != nil {
			return err
		}
		fmt.Println(done.Files, "file")
		back, err := s.Export(ctx, "in/data.csv", io.Discard)
		if err != nil {
			return err
		}
		fmt.Println(back.Bytes, "bytes")
		return nil
	})
	// Output:
	// 1 file
	// 4 bytes
}

// With AutoSnapshot, each call that changes files can be undone.
func ExampleSession_Undo() {
	example(wisbox.Options{}, func(ctx context.Context, m *wisbox.Manager) error {
		s, err := m.Open(ctx, &wisbox.SessionOptions{AutoSnapshot: true})
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		if _, err := s.Call(ctx, "write_file", json.RawMessage(`{"file_path":"keep","content":"x"}`)); err != nil {
			return err
		}
		if _, err := s.Call(ctx, "shell_execute", json.RawMessage(`{"script":"rm keep"}`)); err != nil {
			return err
		}
		done, err := s.Undo(ctx, "")
		if err != nil {
			return err
		}
		fmt.Println(done.Calls, "call undone;", done.Restored.Added, "file is back")
		return nil
	})
	// Output: 1 call undone; 1 file is back
}

// Fork gives sub-agents sessions with the same files.
func ExampleSession_Fork() {
	example(wisbox.Options{}, func(ctx context.Context, m *wisbox.Manager) error {
		s, err := m.Open(ctx, nil)
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		if _, err := s.Call(ctx, "write_file", json.RawMessage(`{"file_path":"task","content":"go"}`)); err != nil {
			return err
		}
		forks, err := s.Fork(ctx, 2, nil)
		if err != nil {
			return err
		}
		for _, f := range forks {
			defer f.Close(ctx)
			res, err := f.Call(ctx, "shell_execute", json.RawMessage(`{"commands":["cat","task"]}`))
			if err != nil {
				return err
			}
			fmt.Println(strings.Fields(res.Text)[0])
		}
		return nil
	})
	// Output:
	// go
	// go
}

// A session's archive becomes a session elsewhere.
func ExampleManager_Load() {
	example(wisbox.Options{}, func(ctx context.Context, m *wisbox.Manager) error {
		s, err := m.Open(ctx, nil)
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		var archive bytes.Buffer
		if _, err := s.Save(ctx, &archive); err != nil {
			return err
		}
		other, err := m.Load(ctx, &archive, &wisbox.LoadOptions{Name: "elsewhere"})
		if err != nil {
			return err
		}
		defer other.Close(ctx)
		fmt.Println(other.ID())
		return nil
	})
	// Output: elsewhere
}

// Every call, whoever makes it, becomes an Event.
func ExampleOptions_onEvent() {
	seen := func(e wisbox.Event) { fmt.Println(e.Caller, e.Tool, e.Outcome, len(e.Changes)) }
	example(wisbox.Options{OnEvent: seen}, func(ctx context.Context, m *wisbox.Manager) error {
		s, err := m.Open(ctx, nil)
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		_, err = s.Call(wisbox.WithCaller(ctx, "agent-7"), "write_file", json.RawMessage(`{"file_path":"f","content":"x"}`))
		return err
	})
	// Output: agent-7 write_file ok 1
}

// An embedder's own tools are called, recorded and listed like all others.
func ExampleOptions_tools() {
	type params struct {
		Name string `json:"name" jsonschema:"whom to greet"`
	}
	type result struct {
		Greeting string `json:"greeting"`
	}
	own := func(s *wisbox.Session) []tool.Tool {
		return []tool.Tool{tool.New(tool.Spec{Name: "greet", Description: "Greet somebody."},
			func(ctx context.Context, p params) (result, error) { return result{"hello, " + p.Name}, nil })}
	}
	example(wisbox.Options{Tools: own}, func(ctx context.Context, m *wisbox.Manager) error {
		s, err := m.Open(ctx, nil)
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		res, err := s.Call(ctx, "greet", json.RawMessage(`{"name":"agent"}`))
		if err != nil {
			return err
		}
		raw, err := json.Marshal(res.Value)
		fmt.Println(string(raw))
		return err
	})
	// Output: {"greeting":"hello, agent"}
}

// A pool keeps containers ready: opening a session and running its first program take milliseconds.
func ExamplePoolOptions() {
	opts := wisbox.Options{Pool: wisbox.PoolOptions{Min: 2, Max: 8, Session: wisbox.SessionOptions{Limits: sandbox.Limits{Memory: 256 << 20}}}}
	example(opts, func(ctx context.Context, m *wisbox.Manager) error {
		s, err := m.Open(ctx, &opts.Pool.Session)
		if err != nil {
			return err
		}
		fmt.Println(s.Options().Limits.Memory)
		return s.Close(ctx)
	})
	// Output: 268435456
}

// A process belongs to the session: attached clients may leave, and come back.
func ExampleSession_StartProcess() {
	example(wisbox.Options{}, func(ctx context.Context, m *wisbox.Manager) error {
		s, err := m.Open(ctx, nil)
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		p, err := s.StartProcess(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", "read name; echo hello, $name; exit 3"}}, &wisbox.ProcessOptions{KeepStdin: true})
		if err != nil {
			return err
		}
		a, err := s.AttachProcess(ctx, p.ProcessID, &wisbox.AttachOptions{Stdin: strings.NewReader("agent\n"), Stdout: os.Stdout})
		if err != nil {
			return err
		}
		res, err := a.Wait(ctx) // or a.Detach(), and the process continues
		if err != nil {
			return err
		}
		fmt.Println(res.Status, res.ExitCode)
		p, err = s.ProcessOutput(ctx, p.ProcessID, &wisbox.OutputOptions{Stdout: os.Stdout, Tail: 1})
		if err == nil {
			fmt.Println(p.State)
		}
		return err
	})
	// Output:
	// hello, agent
	// exited 3
	// hello, agent
	// exited
}

// A server in the session is reached by a connection that nothing else on the machine can use, with
// or without rules for the network.
func ExampleSession_Dial() {
	example(wisbox.Options{}, func(ctx context.Context, m *wisbox.Manager) error {
		s, err := m.Open(ctx, nil)
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		const port = 18765 // the kernel assigns none below 32768
		server := sandbox.Cmd{Argv: []string{"python3", "-m", "http.server", "--bind", "127.0.0.1", strconv.Itoa(port)}}
		if _, err := s.StartProcess(ctx, server, &wisbox.ProcessOptions{WaitPort: port}); err != nil {
			return err
		}
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx, port) },
		}}
		res, err := client.Get("http://session/")
		if err != nil {
			return err
		}
		defer res.Body.Close()
		fmt.Println(res.Status)
		return nil
	})
	// Output: 200 OK
}
