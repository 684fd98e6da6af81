package integration

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/podman"
)

// farAway makes the sessions of a test and of its commands use a Podman over TCP, as on another machine, which can't
// pass descriptors.
func farAway(t *testing.T) {
	t.Helper()
	need(t)
	service, err := env.backend.Service(t.Context())
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { forward(c, strings.TrimPrefix(service.URL, "unix://")) })
		}
	})
	t.Cleanup(all.Wait)
	t.Cleanup(func() { l.Close() })
	t.Setenv("CONTAINER_HOST", "tcp://"+l.Addr().String())
	manager, backend, root := env.manager, env.backend, env.root
	t.Cleanup(func() { env.manager, env.backend, env.root = manager, backend, root })
	env.root = filepath.Join(t.TempDir(), "state")
	env.manager, err = wisbox.NewManager(t.Context(), &wisbox.Options{CacheDir: env.root})
	require.NoError(t, err)
	env.backend = env.manager.Backend().(*podman.Backend)
	t.Cleanup(func() { require.NoError(t, env.manager.Close()) })
}

// forward copies between a connection and a socket until either end is closed.
func forward(c net.Conn, socket string) {
	defer c.Close()
	up, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	var there sync.WaitGroup
	there.Go(func() { _, _ = io.Copy(up, c); up.Close() })
	_, _ = io.Copy(c, up)
	c.Close()
	there.Wait()
}

// TestEgressAndPortsOfASandboxThatIsFarAway: connections are relayed instead of passed as sockets, and everything else
// is the same.
func TestEgressAndPortsOfASandboxThatIsFarAway(t *testing.T) {
	hosttest.Slow(t)
	if env.isolation != "" {
		t.Skip("with this isolation every test already carries its sockets; CI's run without it covers this test")
	}
	farAway(t)
	for _, one := range []struct {
		name string
		test func(*testing.T)
	}{
		{"reaches what is allowed", TestEgressReachesWhatIsAllowed},
		{"denials teach", TestEgressDenialsTeach},
		{"leaves the own ports", TestEgressLeavesTheSessionItsOwnPorts},
		{"no other session's", TestEgressOfOneSessionIsNoOthers},
		{"rules change", TestEgressRulesChangeWhileAConnectionIsOpen},
		{"opens while it runs", TestEgressOpensWhileTheSessionRuns},
		{"opens again", TestEgressOpensAgainAfterARestart},
		{"a flood", TestEgressOfAProgramThatFloods},
		{"a killed holder", TestEgressOfAKilledHolder},
		{"killed looks like no end", TestEgressThatIsKilledLooksLikeNoEnd},
		{"dial", TestDialOfASession},
		{"port", TestPortIsASocketOfItsOwner},
		{"port for a browser", TestPortForABrowser},
		{"port where nothing listens", TestPortWhereNothingListens},
	} {
		t.Run(one.name, one.test)
	}
}
