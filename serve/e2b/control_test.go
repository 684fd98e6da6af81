package e2b

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/egress/policy"
	"github.com/wisbox/wisbox/internal/registry/registrytest"
	"github.com/wisbox/wisbox/tool"
)

func TestALifeOfASandbox(t *testing.T) {
	w := newWorld(t, nil, nil)
	a := w.create(keyA, `{"templateID":"base","timeout":60,"metadata":{"k":"v"},"envVars":{"E":"1"},"secure":false,"somethingNew":[1]}`)
	assert.Regexp(t, regexp.MustCompile(`^[a-z0-9]{20}$`), a.SandboxID)
	assert.Nil(t, a.TrafficToken)
	assert.Nil(t, a.Domain)
	var d detail
	res := w.ask(keyA, "GET", "/sandboxes/"+a.SandboxID, "", &d)
	assert.Equal(t, 200, res.StatusCode)
	assert.NotEmpty(t, res.Header.Get("X-Request-Id"))
	assert.Equal(t, map[string]string{"k": "v"}, d.Metadata)
	assert.Equal(t, "kill", d.Lifecycle.OnTimeout)
	assert.Equal(t, a.EnvdToken, d.EnvdToken)
	assert.Equal(t, int64(512), d.MemoryMB)
	began, err := time.Parse(milliseconds, d.StartedAt)
	require.NoError(t, err)
	end, err := time.Parse(milliseconds, d.EndAt)
	require.NoError(t, err)
	assert.Equal(t, time.Minute, end.Sub(began))

	assert.Equal(t, 204, w.ask(keyA, "POST", "/sandboxes/"+a.SandboxID+"/timeout", `{"timeout":1000}`, nil).StatusCode)
	assert.Equal(t, 200, w.ask(keyA, "POST", "/v2/sandboxes/"+a.SandboxID+"/connect", `{"timeout":1}`, nil).StatusCode)
	w.ask(keyA, "GET", "/v2/sandboxes/"+a.SandboxID, "", &d)
	after, err := time.Parse(milliseconds, d.EndAt)
	require.NoError(t, err)
	assert.Greater(t, after.Sub(end), 10*time.Minute, "connect never shortens")

	assert.Equal(t, 204, w.ask(keyA, "POST", "/sandboxes/"+a.SandboxID+"/pause", "", nil).StatusCode)
	w.refused(409, keyA, "POST", "/sandboxes/"+a.SandboxID+"/pause", `{}`)
	w.refused(409, keyA, "POST", "/sandboxes/"+a.SandboxID+"/fork", `{}`)
	assert.Equal(t, 502, w.do(w.toPort(a.SandboxID, "49983", "/health"), nil).StatusCode)
	var again sandboxAnswer
	assert.Equal(t, 201, w.ask(keyA, "POST", "/v2/sandboxes/"+a.SandboxID+"/connect", ``, &again).StatusCode)
	assert.Equal(t, a, again)
	w.refused(409, keyA, "POST", "/sandboxes/"+a.SandboxID+"/resume", `{"timeout":60}`)
	assert.Equal(t, 204, w.do(w.toPort(a.SandboxID, "49983", "/health"), nil).StatusCode)

	assert.Equal(t, 204, w.ask(keyA, "DELETE", "/sandboxes/"+a.SandboxID, "", nil).StatusCode)
	w.refused(404, keyA, "DELETE", "/sandboxes/"+a.SandboxID, "")
	assert.Equal(t, 502, w.do(w.toPort(a.SandboxID, "49983", "/health"), nil).StatusCode)
}

// TestAPauseAtTheTimeoutMayKeepOnlyTheFiles is E2B's autoPauseMemory.
func TestAPauseAtTheTimeoutMayKeepOnlyTheFiles(t *testing.T) {
	w := newWorld(t, nil, nil)
	for body, want := range map[string]bool{`{"autoPause":true,"autoPauseMemory":false}`: true, `{"autoPause":true}`: false} {
		s, ok := w.reg.Find(w.create(keyA, body).SandboxID)
		require.True(t, ok)
		rec := s.Record()
		assert.True(t, rec.AutoPause, body)
		assert.Equal(t, want, rec.AutoPauseFiles, body)
	}
}

func TestWhatAClientAsksWrongly(t *testing.T) {
	w := newWorld(t, nil, nil)
	id := w.create(keyA, `{}`).SandboxID
	for _, c := range []struct {
		status             int
		method, path, body string
	}{
		{404, "POST", "/sandboxes", `{"templateID":"nosuch"}`},
		{400, "POST", "/sandboxes", `{"timeout":0}`},
		{400, "POST", "/sandboxes", `{"timeout":-1}`},
		{400, "POST", "/sandboxes", `{"timeout":99999999}`},
		{400, "POST", "/sandboxes", `{"timeout":"long"}`},
		{400, "POST", "/sandboxes", `{`},
		{400, "POST", "/sandboxes", `[]`},
		{400, "POST", "/sandboxes", `{"iam":{"tokens":{}}}`},
		{400, "POST", "/sandboxes", `{"volumeMounts":[{"name":"v"}]}`},
		{400, "POST", "/sandboxes", `{"autoResume":{"enabled":true}}`},
		{400, "POST", "/sandboxes", `{"autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":true}}`},
		{400, "POST", "/sandboxes", `{"envVars":{"A=B":"c"}}`},
		{400, "POST", "/sandboxes", `{"network":{"rules":{"a.com":[]}}}`},
		{400, "POST", "/sandboxes", `{"network":{"egressProxy":{"address":"x"}}}`},
		{400, "POST", "/sandboxes", `{"network":{"allowOut":["10.0.0.0/8"]}}`},
		{400, "POST", "/sandboxes", `{"network":{"allowOut":["8.8.8.8"]}}`},
		{400, "POST", "/sandboxes", `{"network":{"allowOut":["host:22"]}}`},
		{400, "POST", "/sandboxes", `{"network":{"allowOut":["private:db.example.com"]}}`},
		{400, "POST", "/sandboxes", `{"network":{"allowOut":["python"]}}`},
		{400, "POST", "/sandboxes", `{"network":{"denyOut":["::1"]}}`},
		{400, "POST", "/sandboxes", `{"network":{"maskRequestHost":"a b"}}`},
		{400, "POST", "/sandboxes", `{"metadata":{"k":"` + strings.Repeat("<", maxMetadata) + `"}}`},
		{400, "POST", "/sandboxes", `{"envVars":{"K":"` + strings.Repeat("x", maxEnv) + `"}}`},
		{413, "POST", "/sandboxes", `{"metadata":{"k":"` + strings.Repeat("x", maxBody) + `"}}`},
		{400, "POST", "/sandboxes/" + id + "/timeout", `{}`},
		{400, "POST", "/sandboxes/" + id + "/timeout", `{"timeout":-1}`},
		{400, "POST", "/sandboxes/" + id + "/fork", `{"count":0}`},
		{501, "POST", "/sandboxes/" + id + "/snapshots", `{}`},
		{400, "PUT", "/sandboxes/" + id + "/network", `{"allowOut":["8.8.8.8"]}`},
		{400, "PUT", "/sandboxes/" + id + "/network", `{"denyOut":["a.b"` + strings.Repeat(`,"a.b"`, policy.MaxRules) + `]}`},
		{400, "PUT", "/sandboxes/" + id + "/network", `{"rules":{"a.com":[]}}`},
		{400, "PUT", "/sandboxes/" + id + "/network", `{"egressProxy":{"address":"x"}}`},
		{400, "GET", "/sandboxes/" + id + "/metrics?start=soon", ``},
		{400, "GET", "/sandboxes/" + id + "/metrics?start=2&end=1", ``},
		{400, "GET", "/sandboxes/metrics", ``},
		{400, "GET", "/snapshots?limit=0", ``},
		{400, "GET", "/snapshots?nextToken=!", ``},
		{404, "POST", "/v3/templates", `{}`},
		{404, "POST", "/v2/templates/x/builds/y", `{}`},
		{404, "POST", "/templates/tags", `{}`},
		{404, "POST", "/templates", `{}`},
		{404, "DELETE", "/templates/base", ``},
		{400, "GET", "/v2/sandboxes?limit=0", ""},
		{400, "GET", "/v2/sandboxes?limit=x", ""},
		{400, "GET", "/v2/sandboxes?state=asleep", ""},
		{400, "GET", "/v2/sandboxes?order=up", ""},
		{400, "GET", "/v2/sandboxes?startedAfter=noon", ""},
		{400, "GET", "/v2/sandboxes?nextToken=%21", ""},
		{400, "GET", "/v2/sandboxes?metadata=%25zz", ""},
		{404, "GET", "/templates/aliases/nosuch", ""},
		{404, "DELETE", "/templates/nosuch", ""},
		{404, "GET", "/volumes", ""},
		{404, "POST", "/v3/templates", "{}"},
		{404, "PATCH", "/sandboxes/" + id, "{}"},
		{404, "GET", "/sandboxes/" + strings.Repeat("z", 20), ""},
		{404, "GET", "/sandboxes/nosuch", ""},
	} {
		w.refused(c.status, keyA, c.method, c.path, c.body)
	}
	assert.Len(t, w.reg.All(), 1, "nothing was made")
}

// TestNobodySeesAnothersSandboxes: for another owner's ID, every answer is the same as for an unknown ID.
func TestNobodySeesAnothersSandboxes(t *testing.T) {
	w := newWorld(t, nil, nil)
	theirs := w.create(keyA, `{"metadata":{"secret":"of a"}}`).SandboxID
	for _, c := range [][3]string{
		{"GET", "", ""},
		{"POST", "/timeout", `{"timeout":1}`},
		{"POST", "/connect", `{"timeout":900}`},
		{"POST", "/resume", `{"timeout":900}`},
		{"POST", "/pause", ``},
		{"POST", "/fork", `{}`},
		{"POST", "/snapshots", `{}`},
		{"GET", "/metrics", ``},
		{"GET", "/logs", ``},
		{"PUT", "/network", `{}`},
		{"DELETE", "", ""},
	} {
		for _, version := range []string{"", "/v2"} {
			other := w.refused(404, keyB, c[0], version+"/sandboxes/"+theirs+c[1], c[2])
			none := w.refused(404, keyB, c[0], version+"/sandboxes/"+strings.Repeat("q", 20)+c[1], c[2])
			assert.Equal(t, none, other)
		}
	}
	var items []item
	w.ask(keyB, "GET", "/v2/sandboxes", "", &items)
	assert.Empty(t, items)
	w.ask(keyB, "GET", "/sandboxes?metadata=secret%3Dof%2520a", "", &items)
	assert.Empty(t, items)
	w.ask(keyA, "GET", "/v2/sandboxes", "", &items)
	require.Len(t, items, 1)
	assert.Equal(t, theirs, items[0].SandboxID)
}

func TestWithoutAKeyNothingIsAnswered(t *testing.T) {
	w := newWorld(t, nil, nil)
	id := w.create(keyA, `{}`).SandboxID
	for _, path := range []string{"/sandboxes", "/v2/sandboxes", "/sandboxes/" + id, "/templates", "/nosuch", "/"} {
		w.refused(401, "", "GET", path, "")
		w.refused(401, "e2b_"+strings.Repeat("0", 40), "GET", path, "")
	}
	assert.Equal(t, 204, w.ask("", "GET", "/health", "", nil).StatusCode)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.web.URL+"/sandboxes/"+id, nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+keyA)
	assert.Equal(t, 200, w.do(r, nil).StatusCode)
}

func TestTenThousandWrongKeysChangeNothing(t *testing.T) {
	w := newWorld(t, nil, nil)
	id := w.create(keyA, `{}`).SandboxID
	h := w.server
	for i := range 10_000 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "/sandboxes/"+id, nil)
		require.NoError(t, err)
		r.Header.Set("X-API-KEY", fmt.Sprintf("e2b_%040x", i))
		seen := &discard{header: http.Header{}}
		h.ServeHTTP(seen, r)
		require.Equal(t, 401, seen.code)
	}
	assert.Equal(t, 200, w.ask(keyA, "GET", "/sandboxes/"+id, "", nil).StatusCode)
}

type discard struct {
	header http.Header
	code   int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(code int)        { d.code = code }

func TestSharesOfAKey(t *testing.T) {
	w := newWorld(t, nil, nil)
	one := w.create(keyB, `{}`)
	w.create(keyB, `{}`)
	over := w.refused(429, keyB, "POST", "/sandboxes", `{}`)
	assert.Contains(t, over.Message, "2 sandboxes")
	assert.Equal(t, 204, w.ask(keyB, "DELETE", "/sandboxes/"+one.SandboxID, "", nil).StatusCode)
	w.create(keyB, `{}`)
	w.create(keyC, `{}`)
	var f said
	res := w.ask(keyC, "POST", "/sandboxes", `{}`, &f) // the second within a minute
	assert.Equal(t, 429, res.StatusCode)
	assert.Regexp(t, `^[1-9][0-9]*$`, res.Header.Get("Retry-After"))
	w.create(keyA, `{}`) // doesn't count for another owner
}

func TestWithoutPodmanAClientMayTryAgain(t *testing.T) {
	w := newWorld(t, &registrytest.Engine{Fail: func(op string) error {
		if op == "create" {
			return tool.Errorf(tool.Unavailable, "Podman can't be reached")
		}
		return nil
	}}, nil)
	var f said
	res := w.ask(keyA, "POST", "/sandboxes", `{}`, &f)
	assert.Equal(t, 503, res.StatusCode)
	assert.NotEmpty(t, res.Header.Get("Retry-After"))
	assert.Contains(t, f.Message, "try again")
	assert.NotContains(t, f.Message, "Podman", "that is for the server's operator")
	assert.Contains(t, w.log.String(), "Podman can't be reached")
	assert.Empty(t, w.reg.All())
}

// TestAServerWithoutRoomNamesItsLimit, and asks the client to try again.
func TestAServerWithoutRoomNamesItsLimit(t *testing.T) {
	const bound = "this server has at most 1GiB for the sandboxes and snapshots of all keys"
	w := newWorld(t, &registrytest.Engine{Fail: func(op string) error {
		if op == "create" {
			return tool.Errorf(tool.NoSpace, bound)
		}
		return nil
	}}, nil)
	var f said
	res := w.ask(keyA, "POST", "/sandboxes", `{}`, &f)
	assert.Equal(t, 503, res.StatusCode)
	assert.NotEmpty(t, res.Header.Get("Retry-After"))
	assert.Equal(t, bound, f.Message)
}

func TestAServerThatCantPauseSaysSo(t *testing.T) {
	w := newWorld(t, &registrytest.Engine{NoPause: true}, func(o *Options) { o.Pauses = false })
	w.refused(501, keyA, "POST", "/sandboxes", `{"autoPause":true}`)
	w.refused(501, keyA, "POST", "/sandboxes/"+w.create(keyA, `{}`).SandboxID+"/pause", ``)
}

func TestAForkIsASandboxOfTheSameOwner(t *testing.T) {
	w := newWorld(t, nil, nil)
	from := w.create(keyA, `{"metadata":{"k":"v"}}`)
	var all []forked
	assert.Equal(t, 201, w.ask(keyA, "POST", "/sandboxes/"+from.SandboxID+"/fork", `{"count":2,"timeout":60}`, &all).StatusCode)
	require.Len(t, all, 2)
	for _, f := range all {
		require.NotNil(t, f.Sandbox)
		assert.NotEqual(t, from.EnvdToken, f.Sandbox.EnvdToken)
		assert.Equal(t, 200, w.ask(keyA, "GET", "/sandboxes/"+f.Sandbox.SandboxID, "", nil).StatusCode)
	}
	from = w.create(keyB, `{}`)
	assert.Equal(t, 201, w.ask(keyB, "POST", "/sandboxes/"+from.SandboxID+"/fork", `{"count":2}`, &all).StatusCode)
	assert.NotNil(t, all[0].Sandbox)
	assert.Equal(t, 429, all[1].Error.Code, "each has its own answer")
}

func TestTheNetworkIsWhatTheServerAllows(t *testing.T) {
	const ask = `{"network":{"allowOut":["pypi.org","*.example.com"],"denyOut":["0.0.0.0/0","evil.example.com"]}}`
	for _, c := range []struct {
		server, internet bool
		body             string
		allow, deny      []string
	}{
		{false, false, `{}`, nil, nil},
		{false, false, `{"allow_internet_access":true}`, nil, nil},
		{false, false, ask, nil, nil},
		{true, true, `{}`, []string{"public"}, nil},
		{true, false, `{"allow_internet_access":false}`, nil, nil},
		{true, true, ask, []string{"pypi.org", "*.example.com"}, []string{"evil.example.com"}},
		{true, true, `{"network":{"denyOut":["a.com","b.com"],"allowOut":["a.com"]}}`, []string{"public", "a.com"}, []string{"b.com"}},
	} {
		w := newWorld(t, nil, func(o *Options) { o.Internet = c.server })
		s, ok := w.reg.Find(w.create(keyA, c.body).SandboxID)
		require.True(t, ok)
		assert.Equal(t, c.internet, s.Record().Internet, c.body)
		assert.Equal(t, c.allow, s.Record().Allow, c.body)
		assert.Equal(t, c.deny, s.Record().Deny, c.body)
	}
}

func TestAStoppingServerBeginsNothing(t *testing.T) {
	w := newWorld(t, nil, nil)
	w.create(keyA, `{}`)
	w.server.Stop(hangGuard)
	w.refused(503, keyA, "POST", "/sandboxes", `{}`)
}

func TestTemplates(t *testing.T) {
	w := newWorld(t, nil, nil)
	var all []templateAnswer
	assert.Equal(t, 200, w.ask(keyA, "GET", "/templates", "", &all).StatusCode)
	assert.Len(t, all, 2)
	assert.Equal(t, 200, w.ask(keyA, "GET", "/templates/aliases/base", "", nil).StatusCode)
	var none []any
	assert.Equal(t, 200, w.ask(keyA, "GET", "/snapshots", "", &none).StatusCode)
	assert.NotNil(t, none)
}
