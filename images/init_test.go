package images

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The kernel reaps for a process that ignores SIGCHLD, and signals from inside a
// container reach its pid 1 only where it has a handler.
func TestInitIgnoresSIGCHLDAndHandlesNothing(t *testing.T) {
	cmd := exec.Command("/bin/bash", "./wisbox-init")
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	status := ""
	require.Eventually(t, func() bool {
		data, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/status")
		status = string(data)
		return err == nil && strings.HasPrefix(status, "Name:\tsleep\n")
	}, 10*time.Second, time.Millisecond)
	require.NotZero(t, signalMask(t, status, "SigIgn")>>(uint(syscall.SIGCHLD)-1)&1)
	require.Zero(t, signalMask(t, status, "SigCgt"))
}

func signalMask(t *testing.T, status, field string) uint64 {
	m := regexp.MustCompile(field + `:\s*([0-9a-f]+)`).FindStringSubmatch(status)
	require.NotNil(t, m)
	mask, err := strconv.ParseUint(m[1], 16, 64)
	require.NoError(t, err)
	return mask
}

func TestTheShellScriptsParse(t *testing.T) {
	for shell, file := range map[string]string{"/bin/sh": "finish.sh", "/bin/bash": "wisbox-init"} {
		out, err := exec.Command(shell, "-n", file).CombinedOutput()
		require.NoError(t, err, string(out))
	}
}
