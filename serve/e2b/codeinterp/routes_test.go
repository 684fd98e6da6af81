package codeinterp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox"
)

// TestEveryRouteCountsForItsClient before it does anything.
func TestEveryRouteCountsForItsClient(t *testing.T) {
	full := func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	o := Options{Session: (*wisbox.Session)(nil), Token: "token", Pass: full, Visit: full}
	h := New(o)
	for pattern := range (&server{Options: o}).routes() {
		method, path, _ := strings.Cut(strings.ReplaceAll(pattern, "{id}", "a"), " ")
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader("{"))
		r.Header.Set("X-Access-Token", "token")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, http.StatusTooManyRequests, w.Code, pattern)
	}
}
