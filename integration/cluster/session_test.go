package cluster

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

func call(t *testing.T, s *wisbox.Session, name, args string) *tool.Result {
	t.Helper()
	res, err := s.Call(t.Context(), name, json.RawMessage(args))
	require.NoError(t, err)
	return res
}

// said returns the output of a shell of the session.
func said(t *testing.T, s *wisbox.Session, script string) string {
	t.Helper()
	var out bytes.Buffer
	res, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"bash", "-c", script}, Stdout: &out, Stderr: &out})
	require.NoError(t, err)
	require.Equal(t, 0, res.ExitCode, out.String())
	return strings.TrimSpace(out.String())
}

func TestASessionInAPod(t *testing.T) {
	p := newPod(t)
	m := p.manager()
	s := p.open(m, wisbox.SessionOptions{AutoSnapshot: true, Limits: limits, Secrets: map[string]wisbox.Secret{"TOKEN": {Value: []byte("a secret value")}}})

	t.Run("programs and tools see the same files", func(t *testing.T) {
		call(t, s, "write_file", `{"file_path":"a.txt","content":"of a tool\n"}`)
		assert.Equal(t, "of a tool", said(t, s, "cat /workspace/a.txt; echo 'of a program' >b.txt"))
		text, err := fs.ReadFile(s.Files(), "b.txt")
		require.NoError(t, err)
		assert.Equal(t, "of a program\n", string(text))
		assert.Equal(t, "1000:1000", said(t, s, "stat -c %u:%g a.txt"))
	})
	t.Run("a program's files can be undone", func(t *testing.T) {
		call(t, s, "shell_execute", `{"commands":["mv","b.txt","a.txt"]}`)
		assert.Equal(t, "of a program", said(t, s, "cat a.txt"))
		steps, err := s.Steps(t.Context(), 20)
		require.NoError(t, err)
		for _, step := range steps {
			if step.Tool == "shell_execute" {
				_, err = s.Undo(t.Context(), step.Call)
				require.NoError(t, err)
			}
		}
		assert.Equal(t, "of a tool\nof a program", said(t, s, "cat a.txt b.txt"))
	})
	t.Run("evaluations", func(t *testing.T) {
		res := call(t, s, "evaluate_python", `{"code":"import os\nprint(6*7, os.getuid())"}`)
		assert.Contains(t, res.Text, "42 1000")
	})
	t.Run("evaluations in WebAssembly use the compiled code of the image", func(t *testing.T) {
		res := call(t, s, "evaluate_python", `{"code":"import sys\nprint(sys.platform)","sandbox":"wasm"}`)
		assert.Contains(t, res.Text, "wasi")
		root := fmt.Sprintf("/proc/%d/root", p.process("__pod"))
		attached, err := zip.OpenReader(root + "/usr/local/bin/wisbox")
		require.NoError(t, err, "wisbox image wrap attaches it")
		defer attached.Close()
		var times []time.Time
		for _, pattern := range []string{"*.compiled/*/*", "*.state"} {
			found, err := fs.Glob(attached, pattern)
			require.NoError(t, err)
			require.Len(t, found, 1)
			info, err := os.Stat(root + "/state/.cache/wisbox/wasm/" + found[0])
			require.NoError(t, err)
			times = append(times, info.ModTime())
		}
		assert.False(t, times[0].After(times[1]), "the state is copied last; compiling would come after it")
	})
	t.Run("secrets", func(t *testing.T) {
		assert.Equal(t, "14", said(t, s, "wc -c </run/secrets/TOKEN"))
	})
	t.Run("programs that outlive their call", func(t *testing.T) {
		info, err := s.StartProcess(t.Context(), sandbox.Cmd{Argv: []string{"sleep", "600"}}, nil)
		require.NoError(t, err)
		all, err := s.Processes(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 1)
		_, err = s.SignalProcess(t.Context(), info.ProcessID, "KILL")
		require.NoError(t, err)
	})
	t.Run("programs can't reach the agent, nor fill the node's file", func(t *testing.T) {
		assert.Contains(t, said(t, s, "ls /ctl 2>&1; ls /ctl/agent.sock 2>&1; true"), "Permission denied")
		assert.Contains(t, said(t, s, "(echo x >>/dev/termination-log) 2>&1; true"), "Permission denied")
		assert.NotContains(t, said(t, s, "env"), "KUBERNETES")
		assert.Equal(t, "no token", said(t, s, "ls /var/run/secrets/kubernetes.io 2>/dev/null || echo no token"))
	})
	t.Run("what doesn't hold is reported", func(t *testing.T) {
		in, err := s.Inspect(t.Context())
		require.NoError(t, err)
		held := map[string]bool{}
		for _, l := range in.Limits {
			held[l.Name] = l.Enforced
		}
		assert.Equal(t, map[string]bool{"cpus": true, "memory": true, "pids": false, "tmp": true, "nofile": true, "fsize": true, "disk": true, "inodes": true}, held)
		for _, gap := range in.Gaps {
			assert.NotContains(t, gap, "has a network")
			assert.NotContains(t, gap, "disk isn't enforced", "the image has no VOLUME")
			assert.NotContains(t, gap, "is unknown")
		}
		assert.Equal(t, p.name, in.Sandbox.Object)
	})
	t.Run("there is no second session", func(t *testing.T) {
		_, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: "other", Kept: true})
		assert.Equal(t, tool.Unsupported, tool.KindOf(err), "%v", err)
		_, err = s.Fork(t.Context(), 1, nil)
		assert.Equal(t, tool.Unsupported, tool.KindOf(err), "%v", err)
		_, err = m.Attach(t.Context(), "other")
		assert.Equal(t, tool.NotFound, tool.KindOf(err))
		assert.Equal(t, "of a tool", said(t, s, "cat a.txt"))
	})
	t.Run("a reset", func(t *testing.T) {
		require.NoError(t, s.Reset(t.Context()))
		assert.Empty(t, said(t, s, "ls -A"))
		call(t, s, "write_file", `{"file_path":"after.txt","content":"x"}`)
		assert.Equal(t, "after.txt", said(t, s, "ls"))
	})
	t.Run("the Pod ends with it", func(t *testing.T) {
		require.NoError(t, m.Remove(t.Context(), p.session))
		p.ended()
	})
}

// limits are those of the manifest.
var limits = sandbox.Limits{Memory: 512 << 20, Tmp: 64 << 20}

func TestAPodEndsWithItsSessionsTime(t *testing.T) {
	p := newPod(t)
	m := p.manager()
	s := p.open(m, wisbox.SessionOptions{Limits: limits, TTL: 5 * time.Second})
	require.NoError(t, s.Close(t.Context()))
	p.ended()
}

func TestStrictIsRefusedInAPod(t *testing.T) {
	p := newPod(t)
	s := p.open(p.manager(), wisbox.SessionOptions{Limits: limits, Strict: true})
	_, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
	assert.ErrorContains(t, err, "podPidsLimit")
}

// TestANetworkIsReported: programs of a Pod on the node's network see its interfaces.
func TestANetworkIsReported(t *testing.T) {
	p := newPod(t, "  hostname: wisbox\n", "  hostNetwork: true\n")
	s := p.open(p.manager(), wisbox.SessionOptions{Limits: limits})
	said(t, s, "true")
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	assert.Contains(t, strings.Join(in.Gaps, "\n"), "the Pod has a network (")
}
