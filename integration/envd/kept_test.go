package envd

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	handler "github.com/wisbox/wisbox/serve/e2b/envd"
)

// TestAKeptSessionIsServedTheSame by its holder: another handler finds programs and their tags again, as after a
// restart of the server.
func TestAKeptSessionIsServedTheSame(t *testing.T) {
	need(t)
	s, err := env.manager.Open(t.Context(), &wisbox.SessionOptions{Name: "kept", Kept: true, UserHome: true})
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	ready, over := make(chan struct{}), make(chan error, 1)
	go func() { over <- env.manager.Hold(ctx, "kept", time.Hour, func() { close(ready) }) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-over)
		require.NoError(t, env.manager.Remove(context.Background(), "kept"))
	})
	select {
	case <-ready:
	case err := <-over:
		t.Fatal("no holder: ", err)
	}
	client, err := wisbox.NewManager(t.Context(), &wisbox.Options{CacheDir: env.state, Holder: []string{"/bin/false"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	s, err = client.Attach(t.Context(), "kept")
	require.NoError(t, err)
	again := func() *box {
		server := httptest.NewServer(handler.New(handler.Options{Session: s, Token: token}))
		t.Cleanup(server.Close)
		return &box{t: t, session: s, url: server.URL}
	}
	b := again()
	content := bytes.Repeat([]byte("ab\x00"), 3<<20)
	status, answer := b.put("/tmp/x/f", bytes.NewReader(content), octets)
	require.Equal(t, 200, status, answer)
	_, got := b.get("/tmp/x/f")
	assert.True(t, string(content) == got)
	status, _ = b.get("/tmp/x/g")
	assert.Equal(t, 404, status)
	status, _ = b.call("filesystem.Filesystem/MakeDir", object{"path": "/tmp/x"})
	assert.Equal(t, 409, status)
	w := b.open("filesystem.Filesystem/WatchDir", object{"path": "/tmp/x"}, nil)
	w.want()
	ask := shell(`rm /tmp/x/f; cat; exit 5`)
	ask["tag"] = "mine"
	first := b.open("process.Process/Start", ask, nil)
	n := first.begin()
	assert.Equal(t, "EVENT_TYPE_REMOVE", w.want()["filesystem"].(object)["type"])
	first.end()

	b = again()
	next := b.open("process.Process/Connect", object{"process": object{"tag": "mine"}}, nil)
	assert.Equal(t, n, next.begin())
	b.must("process.Process/SendInput", object{"process": object{"tag": "mine"}, "input": object{"stdin": base64.StdEncoding.EncodeToString([]byte("in"))}})
	b.must("process.Process/CloseStdin", pid(n))
	var o outcome
	next.rest(&o)
	assert.Equal(t, "in", o.stdout)
	assert.Equal(t, 5., o.end["exitCode"])
}

// TestASandboxThatDiesCutsItsStreams: their clients can tell this from a normal end. The next request gets a new
// sandbox with the same files.
func TestASandboxThatDiesCutsItsStreams(t *testing.T) {
	b := serve(t, wisbox.SessionOptions{})
	status, answer := b.put("f", strings.NewReader("x"), octets)
	require.Equal(t, 200, status, answer)
	s := b.open("process.Process/Start", shell(`sleep 600`), nil)
	s.begin()
	require.NoError(t, env.manager.Backend().Remove(t.Context(), b.session.ID()))
	_, _, err := s.next()
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	status, answer = b.get("f")
	assert.Equal(t, 200, status, answer)
	assert.Equal(t, "0\n", b.run(`echo $?`).stdout)
}
