package page

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/internal/beat"
	"github.com/wisbox/wisbox/tool"
)

// TestSilentCodeKeepsItsConnection: a proxy would close a silent connection.
func TestSilentCodeKeepsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		out := &parts{w: w, gone: func() { t.Error("the reader is there") }}
		stop := beat.Every(maxSilent, out.beat)
		time.Sleep(maxSilent - 1)
		out.mu.Lock()
		assert.Nil(t, out.to, "an error that comes soon has a status of its own")
		out.mu.Unlock()
		time.Sleep(3 * maxSilent)
		stop()
		assert.Equal(t, http.StatusOK, w.Code)
		assert.Equal(t, ":\n\n:\n\n:\n\n", w.Body.String())
		out.end(nil, tool.Errorf(tool.Timeout, "too late"))
		assert.Contains(t, w.Body.String(), "event: end\ndata: {\"status\":\"failed\"")
	})
}
