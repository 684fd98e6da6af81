package e2b

import (
	"encoding/base64"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

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
