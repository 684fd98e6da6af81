package e2b

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"strings"
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
	unpadded := "Basic " + base64.RawStdEncoding.EncodeToString([]byte("user:"+keyA))
	inURLs := "Basic " + base64.URLEncoding.EncodeToString([]byte("??>>??:"+keyA))
	joined := strings.Replace(basic("me", keyA), " ", "=", 1)
	for name, own := range map[string][]string{
		"X-Api-Key": {"sk-1"}, "X-Access-Token": {"mine"}, "Authorization": {"Bearer mine", basic("me", "mine"), "Basic ?"},
	} {
		for _, ours := range []string{keyA, "bearer  " + keyB, basic("me", keyA), basic(keyA, ""), basic("me", a.EnvdToken), a.EnvdToken, unpadded, inURLs, joined} {
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

// TestForwardedHeadersAreThoseOfTrustedProxies: of others a program learns what this server itself sees.
func TestForwardedHeadersAreThoseOfTrustedProxies(t *testing.T) {
	f := &front{proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}}
	for from, want := range map[string][3]string{
		"10.1.2.3:99":         {"203.0.113.7, 10.1.2.3", "shop.example", "https"},
		"[::ffff:10.1.2.3]:9": {"203.0.113.7, ::ffff:10.1.2.3", "shop.example", "https"},
		"[::1]:99":            {"203.0.113.7, ::1", "shop.example", "https"},
		"192.0.2.1:99":        {"192.0.2.1", "3000-id.localhost", "http"},
		"@":                   {"", "3000-id.localhost", "http"},
	} {
		in := httptest.NewRequest(http.MethodGet, "http://3000-id.localhost/", nil)
		in.RemoteAddr = from
		in.Header.Set("X-Forwarded-For", "203.0.113.7")
		in.Header.Set("X-Forwarded-Host", "shop.example")
		in.Header.Set("X-Forwarded-Proto", "https")
		out := in.Clone(t.Context())
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
			out.Header.Del(name) // as httputil.ReverseProxy does
		}
		f.forwarded(&httputil.ProxyRequest{In: in, Out: out})
		assert.Equal(t, want, [3]string{out.Header.Get("X-Forwarded-For"), out.Header.Get("X-Forwarded-Host"), out.Header.Get("X-Forwarded-Proto")}, from)
	}
}

// TestAProgramLearnsNoForgedAddress over a real connection of a client that is no proxy.
func TestAProgramLearnsNoForgedAddress(t *testing.T) {
	var got http.Header
	w := newWorld(t, program(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() }), nil)
	a := w.create(keyA, `{}`)
	r := w.toPort(a.SandboxID, "3000", "/")
	r.Header.Set("X-Forwarded-For", "203.0.113.7")
	r.Header.Set("X-Forwarded-Proto", "https")
	r.Header.Set("Forwarded", "for=203.0.113.7")
	r.Header["X_Forwarded_For"] = []string{"203.0.113.7"} // many programs read it as the one above
	r.Header["x-forwarded_proto"] = []string{"https"}
	w.do(r, nil)
	for name := range got {
		assert.NotContains(t, name, "_")
	}
	assert.NotContains(t, got.Get("X-Forwarded-For"), "203.0.113.7")
	assert.Equal(t, "http", got.Get("X-Forwarded-Proto"))
	assert.Empty(t, got.Get("Forwarded"))
}
