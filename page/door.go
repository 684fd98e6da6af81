package page

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wisbox/wisbox/httpguard"
)

// tokenHeader is required in every request besides the cookie. Cookies ignore ports: another server of this machine may
// get one. A page of another origin can neither read the token nor send the header.
const tokenHeader = "X-Wisbox-Token"

// ticketParam replaces the header in the URL of a download.
const ticketParam = "ticket"

const (
	maxVisitors = 32          // maximum number of browsers signed in; a new one replaces the oldest
	maxTickets  = 16          // unused ones of a browser; a new one replaces the oldest
	ticketTime  = time.Minute // lifetime of a ticket
)

// door signs browsers in: a one-time key is exchanged for a cookie and a token.
type door struct {
	secure bool
	label  string // of this server, part of the name of its cookie

	mu       sync.Mutex
	next     string
	visitors []*visitor // the oldest first
}

// visitor is a browser that is signed in, until its context ends.
type visitor struct {
	cookie, token string
	in            context.Context
	out           context.CancelFunc
	tickets       []ticket // the oldest first
}

// ticket authorizes one download.
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

// enter uses up the key, and returns nil for a wrong one. A browser that is already signed in stays the same visitor,
// so its open streams continue.
func (d *door) enter(key string, r *http.Request) *visitor {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !httpguard.Same(key, d.next) {
		return nil
	}
	if v := d.of(r, func(v *visitor) bool { return httpguard.Same(r.Header.Get(tokenHeader), v.token) }); v != nil {
		d.next = httpguard.NewToken()
		return v
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

// leave signs out a browser, and ends its open streams.
func (d *door) leave(v *visitor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v.out()
	d.visitors = slices.DeleteFunc(d.visitors, func(known *visitor) bool { return known == v })
}

// cookieName returns this server's own name, since browsers send the cookies of a host to each of its ports. It has the
// strictest prefix possible: without TLS browsers refuse __Host-.
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

// known returns the browser that sent a request, by its cookie and its token, nil if it is unknown.
func (d *door) known(r *http.Request) *visitor {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.of(r, func(v *visitor) bool { return v.proves(r) })
}

// of finds the visitor with the request's cookie for whom proven returns true. The caller must hold mu.
func (d *door) of(r *http.Request, proven func(*visitor) bool) *visitor {
	for _, c := range r.CookiesNamed(d.cookieName()) {
		for _, v := range d.visitors {
			if httpguard.Same(c.Value, v.cookie) && proven(v) {
				return v
			}
		}
	}
	return nil
}

// proves reports whether a request has the visitor's token, in the header or among the protocols of a WebSocket, or a
// ticket for a download, which it uses up.
func (v *visitor) proves(r *http.Request) bool {
	if httpguard.Same(r.Header.Get(tokenHeader), v.token) {
		return true
	}
	if r.Method != http.MethodGet {
		return false
	}
	for _, text := range r.Header.Values("Sec-WebSocket-Protocol") {
		for offered := range strings.SplitSeq(text, ",") {
			if httpguard.Same(strings.TrimSpace(offered), v.token) {
				return true
			}
		}
	}
	given := r.URL.Query().Get(ticketParam)
	at := slices.IndexFunc(v.tickets, func(t ticket) bool { return httpguard.Same(given, t.text) && time.Now().Before(t.until) })
	if at >= 0 {
		v.tickets = slices.Delete(v.tickets, at, at+1)
	}
	return at >= 0
}

// ticket issues a ticket for one download.
func (d *door) ticket(v *visitor) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := ticket{httpguard.NewToken(), time.Now().Add(ticketTime)}
	v.tickets = append(v.tickets[max(0, len(v.tickets)-maxTickets+1):], t)
	return t.text
}
