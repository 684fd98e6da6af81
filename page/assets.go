package page

import (
	"bytes"
	"compress/gzip"
	"embed"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/wisbox/wisbox/httpguard"
)

// assets is what `make page` makes of web/: commit what it changes.
//
//go:embed assets
var assets embed.FS

// nonceMark stands in index.html where the nonce of its styles is.
const nonceMark = "NONCE"

// policy is for the page alone: everything it loads is its own. Scripts come from files,
// never from text; xterm.js makes its styles while it runs, and gets the nonce.
func policy(nonce string) string {
	return strings.Join([]string{
		"default-src 'none'", "script-src 'self'", "style-src 'self' 'nonce-" + nonce + "'", "img-src 'self' blob:", "font-src 'self'",
		"connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'",
	}, "; ")
}

// nothing is the policy of answers that are no page.
const nothing = "default-src 'none'; frame-ancestors 'none'; sandbox"

// withHeaders says to browsers what no answer of ours is for.
func withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", nothing)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// index is the page. It has nothing of anybody, so it needs no cookie: one that is
// sent to no other site's link could not come with the first request.
func (s *Server) index(w http.ResponseWriter, _ *http.Request) {
	text, err := assets.ReadFile("assets/index.html")
	if err != nil {
		http.Error(w, "the page isn't built; run make page", http.StatusInternalServerError)
		return
	}
	nonce := httpguard.NewToken()
	w.Header().Set("Content-Security-Policy", policy(nonce))
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(bytes.ReplaceAll(text, []byte(nonceMark), []byte(nonce)))
}

// packed are the assets as most browsers take them.
var packed = sync.OnceValue(func() map[string][]byte {
	all := map[string][]byte{}
	files, _ := assets.ReadDir("assets")
	for _, f := range files {
		text, _ := assets.ReadFile("assets/" + f.Name())
		var small bytes.Buffer
		z := gzip.NewWriter(&small)
		_, _ = z.Write(text)
		_ = z.Close()
		all[f.Name()] = small.Bytes()
	}
	return all
})

// asset is a file that the page is made of.
func (s *Server) asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	text, err := assets.ReadFile("assets/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		text = packed()[name]
	}
	_, _ = w.Write(text)
}
