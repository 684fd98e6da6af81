package page

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// timed is an answer whose connection has the guard's deadline.
type timed struct {
	http.ResponseWriter
	read time.Time
}

func (w *timed) SetReadDeadline(t time.Time) error { w.read = t; return nil }

// watched is a body that arrives before the deadline.
type watched struct {
	io.Reader
	w *timed
	t *testing.T
}

func (b *watched) Read(p []byte) (int, error) {
	assert.False(b.t, b.w.read.IsZero(), "a body that doesn't come is given up")
	return b.Reader.Read(p)
}

// TestTheGuardsDeadlineIsForTheRequestAlone: net/http ends a request whose deadline passes, even while the server still
// handles it.
func TestTheGuardsDeadlineIsForTheRequestAlone(t *testing.T) {
	s := &Server{door: newDoor("label", false)}
	v := s.door.enter(s.door.key(), httptest.NewRequest(http.MethodPost, "/api/enter", nil))
	require.NotNil(t, v)
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		w := &timed{httptest.NewRecorder(), time.Now()}
		r := httptest.NewRequest(method, "/api/sessions", &watched{strings.NewReader(`{"name":"x"}`), w, t})
		r.AddCookie(s.door.cookie(v))
		r.Header.Set(tokenHeader, v.token)
		served := false
		s.letIn(func(_ http.ResponseWriter, r *http.Request) {
			served = true
			assert.Zero(t, w.read, method)
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			assert.JSONEq(t, `{"name":"x"}`, string(body))
		})(w, r)
		assert.True(t, served, method)
	}
}
