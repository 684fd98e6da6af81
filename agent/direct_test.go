package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/agent"
)

// readers are the processes that have a descriptor of a socket open.
func readers(t *testing.T, inode uint64) int {
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	require.NoError(t, err)
	n := 0
	for _, fd := range fds {
		if link, _ := os.Readlink(fd); link == fmt.Sprintf("socket:[%d]", inode) {
			n++
		}
	}
	return n
}

// TestTheSocketIsTheHostsAlone: once the frames go by it, nothing in the sandbox
// has the host's end; and it ends with the host.
func TestTheSocketIsTheHostsAlone(t *testing.T) {
	f := start(t, agent.Options{})
	require.Equal(t, "hi\n", f.sh(t, "echo hi").out)
	inode := f.Hello().Socket[1]
	if os.Geteuid() == 0 {
		require.Equal(t, 1, readers(t, inode), "ours and no other")
	}
	require.NoError(t, f.Close())
	require.NoError(t, f.cmd.Wait(), "the agent ends")
}

// TestWithoutTheSocketTheStreamServes: another machine's process, or none that we
// may look into.
func TestWithoutTheSocketTheStreamServes(t *testing.T) {
	for name, find := range map[string]func(context.Context, agent.Hello) (int, error){
		"unknown":         func(context.Context, agent.Hello) (int, error) { return 0, errors.New("unknown") },
		"not there":       func(context.Context, agent.Hello) (int, error) { return 1 << 30, nil },
		"another process": func(context.Context, agent.Hello) (int, error) { return os.Getpid(), nil },
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, agent.Options{PID: find})
			require.Equal(t, "hi\n", f.sh(t, "echo hi").out)
			if os.Geteuid() == 0 {
				require.NotZero(t, readers(t, f.Hello().Socket[1]), "the agent has both ends")
			}
		})
	}
}
