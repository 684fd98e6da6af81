package e2b

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// timed is a writer that records its deadlines.
type timed struct {
	*httptest.ResponseRecorder
	read, write []time.Time
	pieces      []int
}

func (w *timed) SetReadDeadline(t time.Time) error  { w.read = append(w.read, t); return nil }
func (w *timed) SetWriteDeadline(t time.Time) error { w.write = append(w.write, t); return nil }
func (w *timed) Write(p []byte) (int, error) {
	w.pieces = append(w.pieces, len(p))
	return w.ResponseRecorder.Write(p)
}

// TestOnlyATokenTakesTheGuardsTimeAway: a client with only the ID of a sandbox can't keep a connection to its services.
func TestOnlyATokenTakesTheGuardsTimeAway(t *testing.T) {
	w := newWorld(t, program(t, func(http.ResponseWriter, *http.Request) {}), nil)
	a := w.create(keyA, `{}`)
	for _, c := range []struct {
		port, path string
		freed      bool
	}{{"49983", "/health", false}, {"49983", "/pass", true}, {"3000", "/", true}} {
		out := &timed{ResponseRecorder: httptest.NewRecorder()}
		w.server.ServeHTTP(out, w.toPort(a.SandboxID, c.port, c.path))
		assert.Equal(t, c.freed, len(out.read) > 0, c)
	}
	found, ok := w.reg.Find(a.SandboxID)
	require.True(t, ok)
	assert.Equal(t, 3, strings.Count(w.log.String(), `"sandbox":"`+found.Alias()+`"`), "each request's line in the log has the alias")
}

func TestASandboxHasAsManyRequestsAtOnce(t *testing.T) {
	places, inner := make(chan struct{}, 1), httptest.NewRecorder()
	serve := func(w http.ResponseWriter, next http.HandlerFunc) {
		letIn(places, w, httptest.NewRequest(http.MethodGet, "/", nil), next)
	}
	for range 2 { // the place is given back
		ran := false
		serve(httptest.NewRecorder(), func(http.ResponseWriter, *http.Request) {
			ran = true
			serve(inner, func(http.ResponseWriter, *http.Request) { t.Error("one too many") })
		})
		assert.True(t, ran)
		assert.Equal(t, 503, inner.Code)
		assert.Equal(t, "5", inner.Header().Get("Retry-After"))
	}
}

// TestEachPieceOfAnAnswerHasATimeLimit until the sandbox's end.
func TestEachPieceOfAnAnswerHasATimeLimit(t *testing.T) {
	done, out := make(chan struct{}), &timed{ResponseRecorder: httptest.NewRecorder()}
	w := &patient{out, http.NewResponseController(out), done}
	n, err := w.Write(make([]byte, 2*maxPiece+1))
	require.NoError(t, err)
	assert.Equal(t, 2*maxPiece+1, n)
	assert.Equal(t, []int{maxPiece, maxPiece, 1}, out.pieces)
	require.NoError(t, http.NewResponseController(w).Flush())
	assert.True(t, out.Flushed)
	require.Len(t, out.write, 4)
	for _, until := range out.write {
		assert.True(t, until.After(time.Unix(1, 0)))
	}
	close(done)
	_, _ = w.Write([]byte("late"))
	assert.Equal(t, time.Unix(1, 0), out.write[len(out.write)-1])
}

// TestAProgramGetsItsOwnKeys, and none of this server's in any header.
func TestAProgramGetsItsOwnKeys(t *testing.T) {
	var got http.Header
	w := newWorld(t, program(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() }), nil)
	a := w.create(keyA, `{}`)
	basic := func(user, password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	for name, own := range map[string][]string{
		"X-Api-Key": {"sk-1"}, "X-Access-Token": {"mine"}, "Authorization": {"Bearer mine", basic("me", "mine"), "Basic ?"},
	} {
		for _, ours := range []string{keyA, "bearer  " + keyB, basic("me", keyA), basic(keyA, ""), basic("me", a.EnvdToken), a.EnvdToken} {
			r := w.toPort(a.SandboxID, "3000", "/")
			r.Header[name] = append([]string{ours}, own...)
			w.do(r, nil)
			assert.Equal(t, own, got[name])
			r.Header[name] = []string{ours}
			w.do(r, nil)
			assert.Empty(t, got[name])
		}
	}
}
