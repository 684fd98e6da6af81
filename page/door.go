package page

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"sync"

	"github.com/wisbox/wisbox/httpguard"
)

// tokenHeader is of every request that changes something. A page of another origin can
// neither read the token nor send the header.
const tokenHeader = "X-Wisbox-Token"

// maxVisitors is how many browsers are in at once; one more takes the place of the oldest.
const maxVisitors = 32

// door lets browsers in: a key that is good once becomes a cookie and a token.
type door struct {
	secure bool

	mu       sync.Mutex
	next     string
	visitors []visitor // the oldest first
}

// visitor is a browser that is in.
type visitor struct{ cookie, token string }

func newDoor(secure bool) *door { return &door{secure: secure, next: httpguard.NewToken()} }

func (d *door) key() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.next
}

// enter uses the key up, and gives nothing for a wrong one.
func (d *door) enter(key string) (v visitor, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !same(key, d.next) {
		return v, false
	}
	v = visitor{httpguard.NewToken(), httpguard.NewToken()}
	d.next = httpguard.NewToken()
	d.visitors = append(d.visitors[max(0, len(d.visitors)-maxVisitors+1):], v)
	return v, true
}

// leave forgets a browser.
func (d *door) leave(v visitor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.visitors = slices.DeleteFunc(d.visitors, func(known visitor) bool { return known == v })
}

// cookieName is the strictest that browsers keep: without TLS a name __Host- isn't taken.
func (d *door) cookieName() string {
	if d.secure {
		return "__Host-wisbox"
	}
	return "wisbox"
}

func (d *door) cookie(v visitor) *http.Cookie {
	return &http.Cookie{Name: d.cookieName(), Value: v.cookie, Path: "/", HttpOnly: true, Secure: d.secure, SameSite: http.SameSiteStrictMode}
}

// known finds the browser that sends a request.
func (d *door) known(r *http.Request) (v visitor, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range r.CookiesNamed(d.cookieName()) {
		for _, known := range d.visitors {
			if same(c.Value, known.cookie) {
				return known, true
			}
		}
	}
	return v, false
}

func same(given, want string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
