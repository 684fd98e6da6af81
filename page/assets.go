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

// assets is the output of `make page` from web/: commit its changes.
//
//go:embed assets
var assets embed.FS

// nonceMark is the placeholder in index.html for the nonce of its styles.
const nonceMark = "NONCE"

// policy returns the policy of the page, which loads only its own files. Scripts come from files, never from inline
// text; xterm.js creates its styles at run time, and gets the nonce.
func policy(nonce string) string {
	return strings.Join([]string{
		"default-src 'none'", "script-src 'self'", "style-src 'self' 'nonce-" + nonce + "'", "img-src 'self' blob: data:", "font-src 'self'",
		"connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'",
	}, "; ")
}

// nothing is the policy of answers that are not a page.
const nothing = "default-src 'none'; frame-ancestors 'none'; sandbox"

// withHeaders sets the security headers of every answer.
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

// index serves the page. It has no private content, so it needs no cookie: a strict cookie would be missing when a link
// of another site leads here.
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

// packed returns the compressed assets, which most browsers accept.
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

// asset serves a file of the page.
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
