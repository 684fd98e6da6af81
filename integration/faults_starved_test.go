package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/tool"
)

const (
	fewDescriptors = 32
	littleMemory   = 4 << 20 // bytes beyond what is in use
)

// TestFault_F31_TheOwnerHasFewDescriptorsAndLittleMemory: concurrent calls work or fail with their own errors;
// afterwards the session is as before.
func TestFault_F31_TheOwnerHasFewDescriptorsAndLittleMemory(t *testing.T) {
	h := newHome(t)
	cmd, out := h.helper("starved")
	kinds := map[tool.Kind]int{}
	require.True(t, out.Scan(), "the owner ended")
	require.NoError(t, json.Unmarshal(out.Bytes(), &kinds), "%s", out.Text())
	assert.NoError(t, cmd.Wait())
	t.Log(kinds)
	for k := range kinds {
		assert.Contains(t, []tool.Kind{"", tool.Busy, tool.Limit, tool.Unavailable}, k)
	}
	h.requireNothing()
}

// helpStarved makes many calls at once with almost no descriptors: a session alone needs about 30. Then it raises the
// limit, and one call of each kind must work.
func helpStarved(ctx context.Context, m *wisbox.Manager, _ []string) error {
	s, err := m.Open(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := helpCall(ctx, s, "write_file", args{"file_path": "a/b/f", "content": "x"}); err != nil {
		return err
	}
	if err := oneOfEach(ctx, s); err != nil {
		return err
	}
	enough, err := starve()
	if err != nil {
		return err
	}
	kinds := callAtOnce(ctx, s)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &enough); err != nil {
		return err
	}
	if err := oneOfEach(ctx, s); err != nil {
		return fmt.Errorf("afterwards: %w", err)
	}
	if err := s.Close(ctx); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(kinds)
}

func oneOfEach(ctx context.Context, s *wisbox.Session) error {
	for _, c := range starvedCalls {
		if _, err := helpCall(ctx, s, c.name, c.args); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// starve limits descriptors and memory, and returns the previous limit of descriptors.
func starve() (old syscall.Rlimit, err error) {
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	debug.SetMemoryLimit(int64(now.Sys-now.HeapReleased) + littleMemory)
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		return old, err
	}
	few := syscall.Rlimit{Cur: fewDescriptors, Max: old.Max}
	return old, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few)
}

var starvedCalls = []struct {
	name string
	args args
}{
	{"write_file", args{"file_path": "a/b/f", "content": "x", "mode": "overwrite"}},
	{"read_file", args{"file_path": "a/b/f"}},
	{"glob", args{"pattern": "**"}},
	{"grep", args{"pattern": "x"}},
	{"shell_execute", args{"script": "echo x"}},
	{"snapshot_create", args{}},
}

// callAtOnce counts the kinds of errors; "" is none.
func callAtOnce(ctx context.Context, s *wisbox.Session) map[tool.Kind]int {
	kinds := map[tool.Kind]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			for range 3 {
				c := starvedCalls[i%len(starvedCalls)]
				_, err := helpCall(ctx, s, c.name, c.args)
				mu.Lock()
				kinds[tool.KindOf(err)]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return kinds
}
