package far_test

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var hello = far.Hello{Version: "v1", Protocol: "1"}

// TestConnectionsShareAStream, each with its own bytes, and a stream that has broken is replaced.
func TestConnectionsShareAStream(t *testing.T) {
	var serving sync.WaitGroup
	var streams []net.Conn
	way := far.Func{Name: "box", Dial: func(context.Context) (io.ReadWriteCloser, error) {
		a, b := net.Pipe()
		streams = append(streams, a)
		serving.Go(func() {
			assert.NoError(t, far.Serve(context.Background(), b, hello, func(_ context.Context, c net.Conn) { _, _ = io.Copy(c, c) }))
		})
		return a, nil
	}}
	c := far.NewClient(way, hello)
	for range 2 {
		var all []net.Conn
		for range 10 {
			conn, err := c.Dial(t.Context())
			require.NoError(t, err)
			all = append(all, conn)
		}
		for i, conn := range all {
			text := strings.Repeat(string(rune('a'+i)), 1000)
			_, err := conn.Write([]byte(text))
			require.NoError(t, err)
			got := make([]byte, len(text))
			_, err = io.ReadFull(conn, got)
			require.NoError(t, err)
			assert.Equal(t, text, string(got))
		}
		waits := make(chan error, 1)
		go func() {
			_, err := all[0].Read(make([]byte, 1))
			waits <- err
		}()
		require.NoError(t, all[0].Close())
		require.Error(t, <-waits, "Close ends a Read")
		require.NoError(t, streams[len(streams)-1].Close())
		_, err := io.ReadAll(all[1])
		require.NoError(t, err, "an end, which the frames above tell from a whole message")
	}
	assert.Len(t, streams, 2)
	require.NoError(t, c.Close())
	_, err := c.Dial(t.Context())
	assert.Equal(t, tool.Closed, tool.KindOf(err))
	serving.Wait()
}

// TestAStreamThatSaysNoHello ends within bounds: garbage, an endless line, nothing at all.
func TestAStreamThatSaysNoHello(t *testing.T) {
	for _, says := range []string{"", "HTTP/1.1 400 Bad Request\r\n\r\n", strings.Repeat("x", 1<<20), "wisbox-relay {\n", "wisbox-relay null\n"} {
		a, b := net.Pipe()
		go func() {
			_, _ = io.WriteString(b, says)
			_ = b.Close()
		}()
		c := far.NewClient(far.Func{Name: "box", Dial: func(context.Context) (io.ReadWriteCloser, error) { return a, nil }}, hello)
		_, err := c.Dial(t.Context())
		require.Error(t, err, "%.20q", says)
		require.NoError(t, c.Close())
	}
	a, b := net.Pipe()
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	c := far.NewClient(far.Func{Name: "box", Dial: func(context.Context) (io.ReadWriteCloser, error) { cancel(); return a, nil }}, hello)
	_, err := c.Dial(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

// TestAServerEndsAClientThatSaysNothing sensible.
func TestAServerEndsAClientThatSaysNothing(t *testing.T) {
	for says, refused := range map[string]bool{
		"":                         true,
		"GET / HTTP/1.1\r\n\r\n":   true,
		strings.Repeat("x", 1<<20): true,
		"wisbox-relay {\"protocol\":\"1\"}\ngarbage garbage garbage": false, // its connection ends, like that of any client
	} {
		a, b := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, a) }()
		go func() {
			_, _ = io.WriteString(a, says)
			_ = a.Close()
		}()
		err := far.Serve(t.Context(), b, hello, func(context.Context, net.Conn) { t.Error("a connection of garbage") })
		assert.Equal(t, refused, err != nil, "%.40q: %v", says, err)
	}
}

func TestABookKeepsItsMachines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "remotes.json")
	b, err := far.Read(path)
	require.NoError(t, err)
	require.NoError(t, b.Add("big", far.Remote{Address: "ssh://big"}))
	b.Current = "big"
	require.NoError(t, b.Write(path))
	b, err = far.Read(path)
	require.NoError(t, err)
	for name, want := range map[string]string{"": "ssh://big", "big": "ssh://big", "ssh://other": "ssh://other"} {
		r, err := b.Find(name)
		require.NoError(t, err)
		assert.Equal(t, want, r.Address)
	}
	r, err := b.Find(far.This)
	require.NoError(t, err)
	assert.Nil(t, r)
}

// TestPortsOfAHostAreMachinesOfTheirOwn: records of one don't apply to the other.
func TestPortsOfAHostAreMachinesOfTheirOwn(t *testing.T) {
	places := map[string]bool{}
	for _, address := range []string{"ssh://localhost", "ssh://localhost:2201", "ssh://localhost:2202", "ssh://me@localhost:2202"} {
		a, err := far.Parse(address)
		require.NoError(t, err)
		places[a.(interface{ Place() string }).Place()] = true
	}
	assert.Len(t, places, 4)
}

// FuzzAddress: an accepted address can't be an option of ssh, or have a special meaning to a shell.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"ssh://box", "ssh://me@box:22/opt/wisbox", "ssh://-oProxyCommand=x", "ssh://box/a;b", "ssh://me:pw@box", "ssh://[::1]:22", "ssh://%2doption", "ssh://box/%3bid"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		way, err := far.Parse(s)
		a, ok := way.(*far.SSH)
		if err != nil || !ok {
			return
		}
		for _, arg := range append([]string{a.String()}, a.Command()...) {
			assert.NotContains(t, arg, "\n")
			assert.False(t, strings.ContainsAny(arg, ";|&$`<>(){}[]*?!#~'\"\\"), arg)
		}
		assert.False(t, strings.HasPrefix(a.String(), "-"))
	})
}

func TestTheAddressOfAClusterFromWithin(t *testing.T) {
	for address, want := range map[string]far.Kube{
		"kube:in-cluster":        {Context: far.InCluster},
		"kube:in-cluster/agents": {Context: far.InCluster, Namespace: "agents"},
		"kube:kind-kind/agents":  {Context: "kind-kind", Namespace: "agents"},
	} {
		got, err := far.ParseKube(address)
		require.NoError(t, err)
		assert.Equal(t, want, *got)
	}
	for _, address := range []string{"kube:in-cluster/", "kube:other", "kube:", "kube:/agents"} {
		_, err := far.ParseKube(address)
		assert.Error(t, err, address)
	}
}
