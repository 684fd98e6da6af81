package e2b

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/apikeys"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/registry/registrytest"
	"github.com/wisbox/wisbox/internal/templates"
	"github.com/wisbox/wisbox/tool"
)

// shelf stores templates without files, each of 1 MiB.
type shelf struct {
	mu     sync.Mutex
	all    []templates.Template
	making func() // called before a template is created; may be nil
}

func (s *shelf) List() ([]templates.Template, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(s.all)
	slices.Reverse(all)
	return all, nil
}

func (s *shelf) Find(ref, owner string) (templates.Template, error) {
	all, _ := s.List()
	for _, t := range all {
		if t.ID == ref || t.Name == ref && t.Owner == owner {
			return t, nil
		}
	}
	return templates.Template{}, tool.Errorf(tool.NotFound, "template %q not found", ref)
}

func (s *shelf) Create(_ context.Context, b registry.Box, name, owner string) (templates.Template, error) {
	if name == "broken" {
		return templates.Template{}, errors.New("no room below /var/lib")
	}
	if s.making != nil {
		s.making()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := templates.Template{
		ID: fmt.Sprintf("%020d", len(s.all)+1), Name: name, Owner: owner, Session: b.(*registrytest.Box).ID,
		Created: time.UnixMilli(int64(1 + len(s.all)/2)), Disk: 1 << 20,
	}
	s.all = append(s.all, t)
	return t, nil
}

func (s *shelf) Remove(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.all)
	s.all = slices.DeleteFunc(s.all, func(t templates.Template) bool { return t.ID == id })
	if len(s.all) == before {
		return tool.Errorf(tool.NotFound, "template %q not found", id)
	}
	return nil
}

func (w *world) snapshot(key, id, body string) snapshotAnswer {
	w.t.Helper()
	var a snapshotAnswer
	require.Equal(w.t, 201, w.ask(key, "POST", "/sandboxes/"+id+"/snapshots", body, &a).StatusCode)
	return a
}

func TestASnapshotIsATemplateOfItsOwner(t *testing.T) {
	kept := &shelf{}
	w := newWorld(t, nil, func(o *Options) { o.Templates = kept })
	box := w.create(keyA, `{}`).SandboxID
	a := w.snapshot(keyA, box, `{"name":"ready"}`)
	assert.Equal(t, []string{"ready"}, a.Names)
	b := w.snapshot(keyA, box, ``)
	assert.Equal(t, []string{}, b.Names)
	for _, ref := range []string{"ready", a.SnapshotID} {
		assert.Equal(t, a.SnapshotID, w.create(keyA, fmt.Sprintf(`{"templateID":%q}`, ref)).TemplateID)
		assert.Equal(t, 200, w.ask(keyA, "GET", "/templates/aliases/"+ref, "", nil).StatusCode)
		w.refused(404, keyB, "POST", "/sandboxes", fmt.Sprintf(`{"templateID":%q}`, ref))
		w.refused(404, keyB, "GET", "/templates/aliases/"+ref, "")
		w.refused(404, keyB, "DELETE", "/templates/"+ref, "")
	}
	var all []templateAnswer
	w.ask(keyA, "GET", "/templates", "", &all)
	assert.Len(t, all, 4)
	w.ask(keyB, "GET", "/templates", "", &all)
	assert.Len(t, all, 2)
	var listed []snapshotAnswer
	w.ask(keyB, "GET", "/snapshots", "", &listed)
	assert.Empty(t, listed)

	w.refused(400, keyA, "POST", "/sandboxes/"+box+"/snapshots", `{"name":"base"}`)
	w.refused(400, keyA, "POST", "/sandboxes/"+box+"/snapshots", `{"name":"../x"}`)
	w.refused(404, keyB, "POST", "/sandboxes/"+box+"/snapshots", `{}`)
	assert.NotContains(t, w.refused(500, keyA, "POST", "/sandboxes/"+box+"/snapshots", `{"name":"broken"}`).Message, "/var")
	assert.Equal(t, 204, w.ask(keyA, "POST", "/sandboxes/"+box+"/pause", "", nil).StatusCode)
	w.refused(409, keyA, "POST", "/sandboxes/"+box+"/snapshots", `{}`)
	assert.Equal(t, 204, w.ask(keyA, "DELETE", "/sandboxes/"+box, "", nil).StatusCode)
	assert.Equal(t, 204, w.ask(keyA, "DELETE", "/templates/"+a.SnapshotID, "", nil).StatusCode)
	w.refused(404, keyA, "DELETE", "/templates/"+a.SnapshotID, "")
	w.refused(404, keyA, "POST", "/sandboxes", `{"templateID":"ready"}`)
	w.create(keyA, fmt.Sprintf(`{"templateID":%q}`, b.SnapshotID))
}

func TestSnapshotsAreListedInPages(t *testing.T) {
	w := newWorld(t, nil, func(o *Options) { o.Templates = &shelf{} })
	box, other := w.create(keyA, `{}`).SandboxID, w.create(keyA, `{}`).SandboxID
	var want []string
	for i := range 5 {
		want = append(want, w.snapshot(keyA, box, fmt.Sprintf(`{"name":"n%d"}`, i)).SnapshotID)
	}
	w.snapshot(keyA, other, `{}`)
	var got []string
	for token := ""; ; {
		var page []snapshotAnswer
		res := w.ask(keyA, "GET", "/snapshots?limit=2&sandboxID="+box+"&nextToken="+token, "", &page)
		for _, a := range page {
			got = append(got, a.SnapshotID)
		}
		if token = res.Header.Get("X-Next-Token"); token == "" {
			break
		}
	}
	slices.Sort(got)
	assert.Equal(t, want, got, "each once")
	for name, n := range map[string]int{"n3": 1, "nosuch": 0, want[2]: 1} {
		var page []snapshotAnswer
		w.ask(keyA, "GET", "/snapshots?name="+url.QueryEscape(name), "", &page)
		assert.Len(t, page, n, name)
		assert.NotNil(t, page)
	}
}

func TestSnapshotsAreBounded(t *testing.T) {
	kept := &shelf{}
	w := newWorld(t, nil, func(o *Options) { o.Templates, o.Snapshots = kept, 2 })
	box := w.create(keyA, `{}`).SandboxID
	w.snapshot(keyA, box, `{}`)
	w.snapshot(keyA, box, `{}`)
	w.refused(429, keyA, "POST", "/sandboxes/"+box+"/snapshots", `{}`)

	kept = &shelf{}
	w = newWorld(t, nil, func(o *Options) {
		o.Templates = kept
		o.Keys = func(string) (apikeys.Key, bool) { return apikeys.Key{ID: "Q", Owner: "q", Disk: 2<<30 + 3<<19}, true }
	})
	box = w.create(keyA, `{}`).SandboxID
	w.snapshot(keyA, box, `{}`)
	w.create(keyA, `{}`)
	w.refused(429, keyA, "POST", "/sandboxes", `{}`)
	w.refused(429, keyA, "POST", "/sandboxes/"+box+"/snapshots", `{}`) // it would be half a MiB too much
	assert.Len(t, kept.all, 1, "what was too much is gone")
}

// TestWhatIsBeingMadeIsCounted: concurrent creations can't exceed a bound, and a refused one doesn't cause another
// refusal.
func TestWhatIsBeingMadeIsCounted(t *testing.T) {
	for name, limit := range map[string]func(*Options){
		"snapshots": func(o *Options) { o.Snapshots = 1 },
		"disk": func(o *Options) {
			o.Keys = func(string) (apikeys.Key, bool) { return apikeys.Key{ID: "Q", Owner: "q", Disk: 2 << 30}, true }
		},
	} {
		kept := &shelf{}
		w := newWorld(t, nil, func(o *Options) { o.Templates = kept; limit(o) })
		box := w.create(keyA, `{}`).SandboxID
		path := "/sandboxes/" + box + "/snapshots"
		var begun atomic.Bool
		kept.making = func() {
			if begun.Swap(true) {
				return
			}
			w.refused(429, keyA, "POST", path, `{}`)
			if name == "disk" {
				assert.Contains(t, w.refused(429, keyA, "POST", "/sandboxes", `{}`).Message, "2GiB of 2GiB of disk")
			}
		}
		w.snapshot(keyA, box, `{}`)
		assert.Len(t, kept.all, 1)
		for _, one := range kept.all {
			assert.Equal(t, 204, w.ask(keyA, "DELETE", "/templates/"+one.ID, "", nil).StatusCode)
		}
		w.refused(500, keyA, "POST", path, `{"name":"broken"}`)
		w.snapshot(keyA, box, `{}`) // the failed snapshot left nothing
	}
}

func TestAKeysSandboxesAreBoundedTogether(t *testing.T) {
	for name, key := range map[string]apikeys.Key{
		"processors": {CPUs: 5}, "memory": {Memory: 1025 << 20}, "disk": {Disk: 2049 << 20},
	} {
		key.ID, key.Owner = "Q", "q"
		w := newWorld(t, nil, func(o *Options) { o.Keys = func(string) (apikeys.Key, bool) { return key, true } })
		first := w.create(keyA, `{}`).SandboxID
		w.create(keyA, `{}`)
		assert.Contains(t, w.refused(429, keyA, "POST", "/sandboxes", `{}`).Message, name)
		var all []forked
		assert.Equal(t, 201, w.ask(keyA, "POST", "/sandboxes/"+first+"/fork", `{}`, &all).StatusCode)
		assert.Equal(t, 429, all[0].Error.Code)
		assert.Equal(t, 204, w.ask(keyA, "DELETE", "/sandboxes/"+first, "", nil).StatusCode)
		w.create(keyA, `{}`)
	}
}

func TestTheNetworkOfASandboxThatRunsIsReplaced(t *testing.T) {
	var gone atomic.Bool
	w := newWorld(t, &registrytest.Engine{Fail: func(operation string) error {
		if operation == "network" && gone.Load() {
			return tool.Errorf(tool.Unavailable, "Podman is gone")
		}
		return nil
	}}, func(o *Options) { o.Internet = true })
	id := w.create(keyA, `{"network":{"allowOut":["a.com"],"denyOut":["0.0.0.0/0"],"allowPublicTraffic":false}}`).SandboxID
	s, ok := w.reg.Find(id)
	require.True(t, ok)
	box, err := s.Box(t.Context())
	require.NoError(t, err)
	put := func(body string) {
		assert.Equal(t, 204, w.ask(keyA, "PUT", "/sandboxes/"+id+"/network", body, nil).StatusCode)
	}
	put(`{"allowOut":["b.com"],"denyOut":["0.0.0.0/0","c.com"]}`)
	allow, deny, _ := box.(*registrytest.Box).Network(t.Context())
	assert.Equal(t, []string{"b.com"}, allow)
	assert.Equal(t, []string{"c.com"}, deny)
	var d detail
	w.ask(keyA, "GET", "/sandboxes/"+id, "", &d)
	assert.JSONEq(t, `{"allowOut":["b.com"],"denyOut":["0.0.0.0/0","c.com"],"allowPublicTraffic":false}`, string(d.Network))
	assert.True(t, s.Record().ClosedPorts, "who may reach the ports stays as it is")
	put(`{"allow_internet_access":false}`)
	allow, deny, _ = box.(*registrytest.Box).Network(t.Context())
	assert.Empty(t, allow)
	assert.Empty(t, deny)
	d = detail{}
	w.ask(keyA, "GET", "/sandboxes/"+id, "", &d)
	require.NotNil(t, d.Internet)
	assert.False(t, *d.Internet)
	put(`{}`)
	allow, _, _ = box.(*registrytest.Box).Network(t.Context())
	assert.Equal(t, []string{"public"}, allow)
	w.refused(404, keyB, "PUT", "/sandboxes/"+id+"/network", `{}`)
	gone.Store(true)
	w.refused(503, keyA, "PUT", "/sandboxes/"+id+"/network", `{"allow_internet_access":false}`)
	assert.Equal(t, []string{"public"}, s.Record().Allow, "the old rules stay")
	gone.Store(false)
	assert.Equal(t, 204, w.ask(keyA, "POST", "/sandboxes/"+id+"/pause", "", nil).StatusCode)
	w.refused(409, keyA, "PUT", "/sandboxes/"+id+"/network", `{}`)

	w = newWorld(t, nil, nil) // a server without Internet
	id = w.create(keyA, `{}`).SandboxID
	put(`{"allowOut":["b.com"]}`)
	s, _ = w.reg.Find(id)
	assert.Empty(t, s.Record().Allow)
}

// TestAForkIsNoMoreOpenThanTheServer: sandboxes outlive a server that opened them.
func TestAForkIsNoMoreOpenThanTheServer(t *testing.T) {
	for _, opens := range []bool{false, true} {
		w := newWorld(t, nil, func(o *Options) { o.Internet = opens })
		open := registry.Rules{Internet: true, Allow: []string{"public"}, Deny: []string{"a.com"}}
		old, err := w.reg.Create(t.Context(), registry.Record{Owner: "a", Rules: open}, time.Hour, registry.Quota{})
		require.NoError(t, err)
		var all []forked
		require.Equal(t, 201, w.ask(keyA, "POST", "/sandboxes/"+old.ID()+"/fork", `{}`, &all).StatusCode)
		fork, ok := w.reg.Find(all[0].Sandbox.SandboxID)
		require.True(t, ok)
		box, err := fork.Box(t.Context())
		require.NoError(t, err)
		allow, _, _ := box.(*registrytest.Box).Network(t.Context())
		want := registry.Rules{}
		if opens {
			want = open
		}
		assert.Equal(t, want, fork.Record().Rules)
		assert.Equal(t, want.Allow, allow)
	}
}

func TestRulesThatArentKnownAreNotSaid(t *testing.T) {
	var gone atomic.Bool
	w := newWorld(t, &registrytest.Engine{Fail: func(operation string) error {
		if gone.Load() && (operation == "networked" || operation == "ask") {
			return tool.Errorf(tool.Unavailable, "Podman is gone")
		}
		return nil
	}}, func(o *Options) { o.Internet = true })
	id := w.create(keyA, `{"allow_internet_access":false}`).SandboxID
	said := func() *bool {
		var d detail
		w.ask(keyA, "GET", "/sandboxes/"+id, "", &d)
		return d.Internet
	}
	gone.Store(true)
	w.refused(503, keyA, "PUT", "/sandboxes/"+id+"/network", `{}`)
	assert.Nil(t, said())
	gone.Store(false)
	if now := said(); assert.NotNil(t, now) {
		assert.True(t, *now, "the change was made")
	}
}

func TestMetricsAreWhatASandboxTook(t *testing.T) {
	w := newWorld(t, nil, nil)
	id := w.create(keyA, `{}`).SandboxID
	var all []sampleAnswer
	require.Eventually(t, func() bool {
		w.ask(keyA, "GET", "/sandboxes/"+id+"/metrics", "", &all)
		return len(all) > 2
	}, hangGuard, time.Millisecond)
	first := all[0]
	assert.Equal(t, 2, first.CPUCount)
	assert.Equal(t, int64(512<<20), first.MemTotal)
	assert.Equal(t, int64(1<<30), first.DiskTotal)
	assert.Equal(t, int64(1<<20), first.MemUsed)
	assert.Equal(t, int64(1<<10), first.DiskUsed)
	at, err := time.Parse(time.RFC3339, first.Timestamp)
	require.NoError(t, err)
	assert.Equal(t, first.TimestampUnix, at.Unix())
	path := "/sandboxes/" + id + "/metrics"
	w.ask(keyA, "GET", fmt.Sprintf("%s?start=%d&end=%d", path, first.TimestampUnix-10, first.TimestampUnix-1), "", &all)
	assert.Empty(t, all)
	assert.NotNil(t, all)
	w.ask(keyA, "GET", fmt.Sprintf("%s?start=%d&end=%d", path, first.TimestampUnix, first.TimestampUnix), "", &all)
	assert.NotEmpty(t, all, "both ends are included, to the second")
	w.refused(404, keyB, "GET", path, "")

	var latest struct{ Sandboxes map[string]sampleAnswer }
	w.ask(keyA, "GET", "/sandboxes/metrics?sandbox_ids="+id+","+strings.Repeat("a", 20), "", &latest)
	assert.Len(t, latest.Sandboxes, 1)
	assert.Contains(t, latest.Sandboxes, id)
	latest.Sandboxes = nil
	w.ask(keyB, "GET", "/sandboxes/metrics?sandbox_ids="+id, "", &latest)
	assert.NotNil(t, latest.Sandboxes)
	assert.Empty(t, latest.Sandboxes, "others' aren't there")
	w.refused(400, keyA, "GET", "/sandboxes/metrics?sandbox_ids="+strings.Repeat("a,", 101), "")
}

func TestTheServersOwnMetricsNeedAKeyWithThatRight(t *testing.T) {
	w := newWorld(t, nil, nil)
	w.refused(404, keyB, "GET", "/metrics", "")
	w = newWorld(t, nil, func(o *Options) { o.Metrics = writeNumbers })
	w.refused(403, keyA, "GET", "/metrics", "")
	w.refused(401, "", "GET", "/metrics", "")
	res := w.ask(keyB, "GET", "/metrics", "", nil)
	assert.Equal(t, 200, res.StatusCode)
	assert.Contains(t, res.Header.Get("Content-Type"), "text/plain")
}

func writeNumbers(w io.Writer) error {
	_, err := io.WriteString(w, "wisbox_sessions 0\n")
	return err
}

func TestEachRequestIsObserved(t *testing.T) {
	var mu sync.Mutex
	var seen []Request
	w := newWorld(t, nil, func(o *Options) {
		o.Observe = func(r Request) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, r)
		}
	})
	id := w.create(keyA, `{}`).SandboxID
	w.ask(keyA, "GET", "/sandboxes/"+id, "", nil)
	w.refused(404, keyB, "GET", "/sandboxes/"+id, "")
	w.refused(401, keyA+"0", "GET", "/sandboxes/"+id, "")
	w.do(w.toPort(id, "49983", "/health"), nil)
	w.web.Close() // all have been answered and logged
	mu.Lock()
	defer mu.Unlock()
	var got []string
	for _, r := range seen {
		assert.NotEmpty(t, r.ID)
		got = append(got, fmt.Sprintf("%s %s %d %t", r.Key, r.Route, r.Status, r.Sandbox != ""))
		assert.NotContains(t, fmt.Sprint(r), id)
		assert.NotContains(t, fmt.Sprint(r), keyA)
	}
	assert.ElementsMatch(t, []string{
		"A POST /v2/sandboxes 201 false", "A GET /sandboxes/{id} 200 true", "B GET /sandboxes/{id} 404 false",
		" GET /sandboxes/{id} 401 false", " envd 204 true",
	}, got)
}

// TestSnapshotsAreBoundedInTimeAsSandboxesAre: both count toward the rate per minute.
func TestSnapshotsAreBoundedInTimeAsSandboxesAre(t *testing.T) {
	w := newWorld(t, nil, func(o *Options) { o.Templates = &shelf{} })
	a := w.create(keyC, "{}") // uses the key's only creation of this minute
	f := w.refused(429, keyC, "POST", "/sandboxes/"+a.SandboxID+"/snapshots", "{}")
	assert.Contains(t, f.Message, "sandboxes and snapshots in a minute")
}
