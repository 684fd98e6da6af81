package egress

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/wisbox/wisbox/egress/policy"
)

// heads counts the memory of the headers of one request and its answer. A program chooses both if it runs the server, and
// the sandbox doesn't pay for them.
type heads struct {
	p *Proxy
	n atomic.Int64
}

type headsKey struct{}

// fieldMemory is the memory of a header's field beside its text: in the parsed header, and in the copy that is sent on.
const fieldMemory = 256

// errHeads is the error for headers beyond [Bounds.Headers].
var errHeads = errors.New("the headers of the session's requests and answers take too much memory together; make fewer requests at once, or send fewer headers")

// take counts a header until free.
func (h *heads) take(header http.Header) error {
	n := int64(0)
	for name, values := range header {
		for _, value := range values {
			n += int64(len(name)+len(value)) + fieldMemory
		}
	}
	h.n.Add(n)
	if h.p.headers.Add(n) > h.p.opts.Bounds.Headers {
		return errHeads
	}
	return nil
}

func (h *heads) free() { h.p.headers.Add(-h.n.Swap(0)) }

// headed counts the headers of requests, also while they wait.
func (p *Proxy) headed(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := &heads{p: p}
		defer h.free()
		if err := h.take(r.Header); err != nil {
			h.free()
			refused := badGateway(policy.Decision{Host: r.Host}, "%v", err)
			if r.Method == http.MethodConnect && r.ProtoMajor == 1 {
				p.refuseConnect(w, refused)
				return
			}
			p.refuseRequest(w, "", refused)
			return
		}
		next(w, r.WithContext(context.WithValue(r.Context(), headsKey{}, h)))
	}
}

// takeHeads counts the headers of an answer.
func takeHeads(resp *http.Response) error {
	if h, ok := resp.Request.Context().Value(headsKey{}).(*heads); ok {
		return h.take(resp.Header)
	}
	return nil
}
