package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAProgramThatStopsOthersHoldsNoCall: a program of the session may stop every process of its user at any moment,
// even one that is just being started. A call must still end soon after its limit, and the session must continue to
// work.
func TestAProgramThatStopsOthersHoldsNoCall(t *testing.T) {
	s := open(t, nil)
	call(t, s, "process_start", args{"commands": []string{"python3", "-c", `
import os, signal, time
end = time.time() + 8
while time.time() < end:
    try: os.kill(-1, signal.SIGSTOP)
    except OSError: pass
    time.sleep(0.0002)`}})
	for range 4 {
		began := time.Now()
		_, err := try(t, s, "shell_execute", args{"script": "touch late; sleep 50", "timeout": 1})
		if err != nil {
			require.Equal(t, "unavailable", string(kind(err)), "%v", err)
		}
		assert.Less(t, time.Since(began), 25*time.Second, "the call is held")
	}
	require.Eventually(t, func() bool {
		a, err := try(t, s, "shell_execute", args{"script": "echo ok", "timeout": 5})
		return err == nil && a.str("stdout") == "ok\n"
	}, 60*time.Second, 200*time.Millisecond, "the session goes on")
}
