package page

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/httpguard"
)

// TestEveryRouteCountsForItsClient before it does anything.
func TestEveryRouteCountsForItsClient(t *testing.T) {
	s := &Server{door: newDoor("label", false)}
	v := s.door.enter(s.door.key(), httptest.NewRequest(http.MethodPost, "/api/enter", nil))
	require.NotNil(t, v)
	g, err := httpguard.New(&httpguard.Options{OwnKeys: true, Rate: 1e-6, Burst: 1})
	require.NoError(t, err)
	require.NoError(t, g.Share(browser.Name).Wait(t.Context()))
	mux := http.NewServeMux()
	s.routes(mux)
	routes := s.private()
	routes["POST /api/enter"] = nil
	for pattern := range routes {
		method, path, _ := strings.Cut(pattern, " ")
		r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(`{"key":"`+s.door.key()+`"}`))
		r.AddCookie(s.door.cookie(v))
		r.Header.Set(tokenHeader, v.token)
		w := httptest.NewRecorder()
		g.Handler(mux).ServeHTTP(w, r)
		assert.Equal(t, http.StatusTooManyRequests, w.Code, pattern)
	}
}
