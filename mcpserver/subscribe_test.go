package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/vfs"
)

// watchedSession reports the changes that a test makes up.
type watchedSession struct {
	*fakeSession
	changes chan string
}

func (s *watchedSession) Watch(ctx context.Context, _ string) (<-chan vfs.Change, error) {
	out := make(chan vfs.Change)
	go func() {
		defer close(out)
		for {
			select {
			case path := <-s.changes:
				select {
				case out <- vfs.Change{Path: path}:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// wrapped hides a session's optional capabilities.
type wrapped struct{ Session }

func (w wrapped) Unwrap() any { return w.Session }

// startWatched serves one session that reports changes and has been opened.
func startWatched(t *testing.T) (*raw, chan<- string) {
	t.Helper()
	changes := make(chan string)
	all := newSessions(newFakes().set())
	s := New(all.set, &Options{Open: func(ctx context.Context) (Session, error) {
		one, err := all.open(ctx)
		return wrapped{&watchedSession{one.(*fakeSession), changes}}, err
	}})
	r := startReady(t, s)
	r.call(1, "echo", `{"text":"x"}`)
	r.next()
	return r, changes
}

func (r *raw) subscription(method, uri string) reply {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","id":"s","method":"resources/` + method + `","params":{"uri":"` + uri + `"}}`)
	return r.next()
}

// updates reads notifications until these URIs were reported, and returns all reported ones.
func (r *raw) updates(uris ...string) (got map[string]bool) {
	r.t.Helper()
	got = map[string]bool{}
	for len(uris) > 0 {
		var m struct {
			Method string
			Params struct{ URI string }
		}
		require.NoError(r.t, json.Unmarshal([]byte(r.next().Line), &m))
		require.Equal(r.t, "notifications/resources/updated", m.Method)
		got[m.Params.URI] = true
		for len(uris) > 0 && got[uris[0]] {
			uris = uris[1:]
		}
	}
	return got
}

func TestSubscribersAreToldOfWhatMattersToThem(t *testing.T) {
	r, changes := startWatched(t)
	const a, b, digest, diff = "wisbox://s1/file/a", "wisbox://s1/file/b", "wisbox://s1/digest", "wisbox://s1/diff/x"
	for _, uri := range []string{a, b, digest, diff} {
		require.Nil(t, r.subscription("subscribe", uri).Error, uri)
	}
	changes <- "a"
	assert.NotContains(t, r.updates(a, digest, diff), b)
	changes <- "dir/a"
	assert.NotContains(t, r.updates(digest, diff), a)
	changes <- ""
	r.updates(a, b, digest, diff)
	require.Nil(t, r.subscription("unsubscribe", diff).Error)
	changes <- "b"
	assert.NotContains(t, r.updates(b, digest), diff)
	r.end()
}

func TestSubscriptionsAreBoundedAndOfTheOwnSession(t *testing.T) {
	r, _ := startWatched(t)
	for i := range maxSubscriptions {
		require.Nil(t, r.subscription("subscribe", fmt.Sprintf("wisbox://s1/file/%d", i)).Error)
	}
	assert.NotNil(t, r.subscription("subscribe", "wisbox://s1/file/more").Error)
	require.Nil(t, r.subscription("unsubscribe", "wisbox://s1/file/0").Error)
	assert.Nil(t, r.subscription("subscribe", "wisbox://s1/file/more").Error)
	for _, bad := range []string{"wisbox://s2/file/a", "wisbox://s1/output/x/stdout", "wisbox://s1/nonsense/a", "wisbox://s1/digest/a", "file:///etc/passwd", "test://watched"} {
		assert.NotNil(t, r.subscription("subscribe", bad).Error, bad)
	}
	r.end()
}

func TestASessionThatTellsNothingCantBeSubscribedTo(t *testing.T) {
	s := New(newFakes().set(), &Options{Open: newSessions(newFakes().set()).open})
	r := startReady(t, s)
	r.call(1, "echo", `{"text":"x"}`)
	r.next()
	assert.Contains(t, r.subscription("subscribe", "wisbox://s1/file/a").Line, "doesn't report changes")
	r.end()
}

func TestLongURIsOfSubscriptionsAreBounded(t *testing.T) {
	r, _ := startWatched(t)
	long := "wisbox://s1/file/" + strings.Repeat("a", 60<<10)
	for i := range 4 {
		require.Nil(t, r.subscription("subscribe", long+fmt.Sprint(i)).Error)
	}
	assert.NotNil(t, r.subscription("subscribe", long+"4").Error)
	assert.Nil(t, r.subscription("subscribe", long+"0").Error, "that it has")
	require.Nil(t, r.subscription("unsubscribe", long+"0").Error)
	assert.Nil(t, r.subscription("subscribe", long+"4").Error)
	r.end()
}
