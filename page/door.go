package page

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wisbox/wisbox/httpguard"
)

// tokenHeader is of every request beside the cookie. Cookies know no ports: another server of
// this machine may get one. A page of another origin can neither read the token nor send the
// header.
const tokenHeader = "X-Wisbox-Token"

// ticketParam is in place of the header in the URL of a download.
const ticketParam = "ticket"

const (
	maxVisitors = 32          // browsers that are in at once; one more takes the place of the oldest
	maxTickets  = 16          // of a browser that weren't used; likewise
	ticketTime  = time.Minute // in which a ticket is used
)

// door lets browsers in: a key that is good once becomes a cookie and a token.
type door struct {
	secure bool
	label  string // of this server, in the name of its cookie

	mu       sync.Mutex
	next     string
	visitors []*visitor // the oldest first
}

// visitor is a browser that is in, until its context ends.
type visitor struct {
	cookie, token string
	in            context.Context
	out           context.CancelFunc
	tickets       []ticket // the oldest first
}

// ticket lets in one download.
type ticket struct {
	text  string
	until time.Time
}

func newDoor(label string, secure bool) *door {
	return &door{label: label, secure: secure, next: httpguard.NewToken()}
}

func (d *door) key() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.next
}

// enter uses the key up, and gives nothing for a wrong one.
func (d *door) enter(key string) *visitor {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !same(key, d.next) {
		return nil
	}
	v := &visitor{cookie: httpguard.NewToken(), token: httpguard.NewToken()}
	v.in, v.out = context.WithCancel(context.Background())
	d.next = httpguard.NewToken()
	if len(d.visitors) == maxVisitors {
		d.visitors[0].out()
		d.visitors = slices.Delete(d.visitors, 0, 1)
	}
	d.visitors = append(d.visitors, v)
	return v
}

// leave forgets a browser, and ends what it has open.
func (d *door) leave(v *visitor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v.out()
	d.visitors = slices.DeleteFunc(d.visitors, func(known *visitor) bool { return known == v })
}

// cookieName is this server's own: browsers send the cookies of a host to each of its ports. It
// is the strictest that browsers keep: without TLS a name __Host- isn't taken.
func (d *door) cookieName() string {
	name := "wisbox-" + d.label
	if d.secure {
		return "__Host-" + name
	}
	return name
}

func (d *door) cookie(v *visitor) *http.Cookie {
	return &http.Cookie{Name: d.cookieName(), Value: v.cookie, Path: "/", HttpOnly: true, Secure: d.secure, SameSite: http.SameSiteStrictMode}
}

// known finds the browser that sends a request, by its cookie and its token; nil is a stranger.
func (d *door) known(r *http.Request) *visitor {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range r.CookiesNamed(d.cookieName()) {
		for _, v := range d.visitors {
			if same(c.Value, v.cookie) && v.proves(r) {
				return v
			}
		}
	}
	return nil
}

// proves reports whether a request has the visitor's token: in the header, among the protocols
// of a WebSocket, or as the ticket of a download, which is used up.
func (v *visitor) proves(r *http.Request) bool {
	if same(r.Header.Get(tokenHeader), v.token) {
		return true
	}
	if r.Method != http.MethodGet {
		return false
	}
	for _, text := range r.Header.Values("Sec-WebSocket-Protocol") {
		for offered := range strings.SplitSeq(text, ",") {
			if same(strings.TrimSpace(offered), v.token) {
				return true
			}
		}
	}
	given := r.URL.Query().Get(ticketParam)
	at := slices.IndexFunc(v.tickets, func(t ticket) bool { return same(given, t.text) && time.Now().Before(t.until) })
	if at >= 0 {
		v.tickets = slices.Delete(v.tickets, at, at+1)
	}
	return at >= 0
}

// ticket is for one download.
func (d *door) ticket(v *visitor) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := ticket{httpguard.NewToken(), time.Now().Add(ticketTime)}
	v.tickets = append(v.tickets[max(0, len(v.tickets)-maxTickets+1):], t)
	return t.text
}

func same(given, want string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
