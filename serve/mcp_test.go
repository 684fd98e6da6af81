package serve

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox/internal/apikeys"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/registry/registrytest"
	"github.com/wisbox/wisbox/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAConnectionsSandboxOutlivesWhatIsInItsWay: an earlier end set by a client, and a failed renewal.
func TestAConnectionsSandboxOutlivesWhatIsInItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r, err := registry.Open(t.Context(), &registry.Options{Engine: &registrytest.Engine{}, Dir: dir})
		require.NoError(t, err)
		defer func() { assert.NoError(t, r.Close()) }()
		s, err := r.Create(t.Context(), registry.Record{}, lease, registry.Quota{})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go keep(ctx, s, time.Now().Add(24*time.Hour))
		require.NoError(t, s.SetEnd(time.Minute, false))
		<-time.After(lease)
		assert.True(t, s.IsRunning())

		records, away := filepath.Join(dir, "sandboxes"), filepath.Join(dir, "away")
		require.NoError(t, os.Rename(records, away)) // nothing can be written
		<-time.After(lease/2 + time.Minute)
		require.NoError(t, os.Rename(away, records))
		<-time.After(lease)
		assert.True(t, s.IsRunning())
	})
}

// TestOneOwnersRequestsLeaveRoomForOthers: the number of an owner's waiting requests is limited.
func TestOneOwnersRequestsLeaveRoomForOthers(t *testing.T) {
	d := &mcpDoor{set: tool.NewSet(), owners: map[string]*mcpOwner{}}
	post := func(owner string, body io.Reader) error {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", body)
		r.Header.Set("Content-Type", "application/json")
		return d.serve(httptest.NewRecorder(), r, apikeys.Key{Owner: owner}, nil)
	}
	in, out := io.Pipe()
	var waiting sync.WaitGroup
	for range maxWaiting {
		waiting.Go(func() { assert.NoError(t, post("a", in)) })
		_, err := out.Write([]byte(" ")) // it reads
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return len(d.owners["a"].places) == maxWaiting }, time.Minute, time.Millisecond)
	unread := strings.NewReader("{}")
	err := post("a", unread)
	assert.Equal(t, tool.Busy, tool.KindOf(err))
	assert.Equal(t, 2, unread.Len())
	assert.NoError(t, post("b", strings.NewReader("{}")))
	require.NoError(t, out.Close())
	waiting.Wait()
	assert.NoError(t, post("a", strings.NewReader("{}")))
	d.Close()
}

// TestAConnectionsSandboxIsKeptWhileItLasts, at most for the server's maximum, and not long after the server is killed.
func TestAConnectionsSandboxIsKeptWhileItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := registry.Open(t.Context(), &registry.Options{Engine: &registrytest.Engine{}, Dir: t.TempDir()})
		require.NoError(t, err)
		defer func() { assert.NoError(t, r.Close()) }()
		made := func(most time.Duration) (*registry.Sandbox, context.CancelFunc) {
			s, err := r.Create(t.Context(), registry.Record{}, lease, registry.Quota{})
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			go keep(ctx, s, time.Now().Add(most))
			return s, stop
		}
		lasts, stopOne := made(24 * time.Hour)
		defer stopOne()
		bounded, stopTwo := made(time.Hour)
		defer stopTwo()
		lost, stopThree := made(24 * time.Hour)
		stopThree()
		<-time.After(lease + time.Second)
		assert.True(t, lasts.IsRunning())
		assert.True(t, bounded.IsRunning())
		assert.False(t, lost.IsRunning())
		<-time.After(time.Hour)
		assert.True(t, lasts.IsRunning())
		assert.False(t, bounded.IsRunning())
	})
}
