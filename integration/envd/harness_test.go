// Package envd tests the API within a sandbox on a real Podman, by plain HTTP and with
// the published SDK.
package envd

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/podman"
	handler "github.com/wisbox/wisbox/serve/e2b/envd"
)

// env is the common state of all tests.
var env struct {
	manager *wisbox.Manager
	state   string // the server's directory
	problem string
}

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	root, err := os.MkdirTemp("", "wisbox-envd-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(root)
	if err := setUp(filepath.Join(root, "state")); err != nil {
		env.problem = hosttest.Why(err)
	}
	code := m.Run()
	if env.manager != nil {
		if err := env.manager.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close the manager:", err)
			code = max(code, 1)
		}
	}
	return code
}

func setUp(state string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	m, err := wisbox.NewManager(ctx, &wisbox.Options{CacheDir: state})
	if err != nil {
		return err
	}
	env.manager, env.state = m, state
	if archive := os.Getenv("WISBOX_TEST_ARCHIVE"); archive != "" {
		f, err := os.Open(archive)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = m.Backend().(*podman.Backend).LoadImage(ctx, f)
		return err
	}
	_, err = images.Build(ctx, m.Backend().(*podman.Backend), &images.Options{})
	return err
}

const token = "the-token"

// box is a sandbox with a server.
type box struct {
	t       *testing.T
	session *wisbox.Session
	url     string
	end     func() // ends it like its timeout
}

// guard bounds waits.
const guard = 30 * time.Second

// need skips the test if Podman can't run, or fails it if Podman is required.
func need(t *testing.T) {
	t.Helper()
	hosttest.NeedPodman(t, env.problem)
}

func serve(t *testing.T, opts wisbox.SessionOptions) *box {
	t.Helper()
	need(t)
	opts.UserHome = true
	s, err := env.manager.Open(t.Context(), &opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, s.Close(ctx))
	})
	done := make(chan struct{})
	server := httptest.NewServer(handler.New(handler.Options{Session: s, Token: token, Env: map[string]string{"FROM": "options"}, Done: done}))
	end := sync.OnceFunc(func() { close(done) })
	t.Cleanup(func() {
		end()
		server.Close()
	})
	return &box{t, s, server.URL, end}
}

// do sends a request with the token.
func (b *box) do(method, path string, body io.Reader, header map[string]string) *http.Response {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, body)
	require.NoError(b.t, err)
	req.Header.Set("X-Access-Token", token)
	for name, value := range header {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { res.Body.Close() })
	return res
}

type object = map[string]any

// call calls a unary method and returns the status.
func (b *box) call(method string, ask any) (int, object) {
	b.t.Helper()
	raw, err := json.Marshal(ask)
	require.NoError(b.t, err)
	res := b.do("POST", "/"+method, bytes.NewReader(raw), map[string]string{"Content-Type": "application/json"})
	var answer object
	require.NoError(b.t, json.NewDecoder(res.Body).Decode(&answer))
	return res.StatusCode, answer
}

// must is like call, for a call that must succeed.
func (b *box) must(method string, ask any) object {
	b.t.Helper()
	status, answer := b.call(method, ask)
	require.Equal(b.t, 200, status, "%s: %v", method, answer)
	return answer
}

// stream is the answer of a method with many messages.
type stream struct {
	t   *testing.T
	res *http.Response
	end context.CancelFunc
}

func (b *box) open(method string, ask any, header map[string]string) *stream {
	b.t.Helper()
	raw, err := json.Marshal(ask)
	require.NoError(b.t, err)
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(raw)))
	ctx, cancel := context.WithCancel(b.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/"+method, bytes.NewReader(append(frame, raw...)))
	require.NoError(b.t, err)
	req.Header.Set("X-Access-Token", token)
	req.Header.Set("Content-Type", "application/connect+json")
	for name, value := range header {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(b.t, err)
	require.Equal(b.t, 200, res.StatusCode)
	s := &stream{b.t, res, func() { cancel(); res.Body.Close() }}
	b.t.Cleanup(s.end)
	return s
}

// next reads a message; last reports whether it is the end.
func (s *stream) next() (message object, last bool, err error) {
	stop := time.AfterFunc(guard, s.end)
	defer stop.Stop()
	var head [5]byte
	if _, err := io.ReadFull(s.res.Body, head[:]); err != nil {
		return nil, false, err
	}
	raw := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(s.res.Body, raw); err != nil {
		return nil, false, err
	}
	return message, head[0] == 2, json.Unmarshal(raw, &message)
}

// want reads a message, which must exist.
func (s *stream) want() object {
	s.t.Helper()
	message, last, err := s.next()
	require.NoError(s.t, err)
	require.False(s.t, last, "the stream has ended: %v", message)
	return message
}

// outcome is the result of a program.
type outcome struct {
	pid                 int
	stdout, stderr, pty string
	end                 object // nil without one
	last                object // the last message of the stream
}

// begin reads the start of a program. On a busy machine a keepalive may come first.
func (s *stream) begin() int {
	s.t.Helper()
	for {
		event := s.want()["event"].(object)
		if start, ok := event["start"].(object); ok {
			return int(start["pid"].(float64))
		}
		require.Contains(s.t, event, "keepalive")
	}
}

// rest reads a program's messages to its end.
func (s *stream) rest(o *outcome) {
	s.t.Helper()
	got := map[string]*bytes.Buffer{"stdout": {}, "stderr": {}, "pty": {}}
	for {
		message, last, err := s.next()
		require.NoError(s.t, err)
		if last {
			o.stdout, o.stderr, o.pty, o.last = got["stdout"].String(), got["stderr"].String(), got["pty"].String(), message
			return
		}
		event := message["event"].(object)
		if end, ok := event["end"].(object); ok {
			o.end = end
		}
		data, _ := event["data"].(object)
		for name, text := range data {
			raw, err := base64.StdEncoding.DecodeString(text.(string))
			require.NoError(s.t, err)
			got[name].Write(raw)
		}
	}
}

func shell(script string) object {
	return object{"process": object{"cmd": "/bin/bash", "args": []string{"-l", "-c", script}}}
}

// run runs a script like the SDK's commands.run.
func (b *box) run(script string) outcome {
	b.t.Helper()
	s := b.open("process.Process/Start", shell(script), nil)
	o := outcome{pid: s.begin()}
	s.rest(&o)
	return o
}

func pid(n int) object { return object{"process": object{"pid": n}} }
