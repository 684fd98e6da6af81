package agent_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/sandbox"
)

func TestVerdictsComeFromTheCgroup(t *testing.T) {
	if os.Getenv("WISBOX_AGENT_TEST_EXEC") == "" {
		t.Skip("needs a container with limits of its own, see WISBOX_AGENT_TEST_EXEC")
	}
	f := start(t, agent.Options{})
	limits := f.Hello().Limits
	require.NotEmpty(t, limits["memory"])
	require.NotEmpty(t, limits["pids"])
	eat := "b=[]\nwhile True: b.append(bytearray(64<<20))"
	for _, c := range []struct {
		name, script string
		status       sandbox.Status
	}{
		{"memory of the program", "exec python3 -c '" + eat + "'", sandbox.StatusOOMKilled},
		{"memory of a child", "python3 -c '" + eat + "'; exit 1", sandbox.StatusOOMKilled},
		{"memory of a child that was expected", "python3 -c '" + eat + "'; exit 0", sandbox.StatusExited},
		{"processes", "for i in $(seq 500); do sleep 5 & done; exit 3", sandbox.StatusPIDsLimit},
		{"file size", "ulimit -f 1; head -c 100000 /dev/zero > big", sandbox.StatusDiskLimit},
		{"file size of the program", "ulimit -f 1; exec head -c 100000 /dev/zero > big", sandbox.StatusDiskLimit},
		{"nothing", "exit 1", sandbox.StatusExited},
	} {
		t.Run(c.name, func(t *testing.T) {
			begin := time.Now()
			got := f.sh(t, c.script)
			t.Log(got.ExitCode, got.Status, got.Notices, time.Since(begin))
			require.Equal(t, c.status, got.Status, got.err)
		})
	}
}
