package envd

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestEveryRouteCountsForItsClient before it does anything.
func TestEveryRouteCountsForItsClient(t *testing.T) {
	full := Options{Token: "token", Pass: func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
		w.WriteHeader(http.StatusTooManyRequests)
	}}
	h := New(full)
	for pattern := range (&handler{opts: full}).routes() {
		method, path, _ := strings.Cut(pattern, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader("{"))
		r.Header.Set("X-Access-Token", "token")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, http.StatusTooManyRequests, w.Code, pattern)
	}
}
