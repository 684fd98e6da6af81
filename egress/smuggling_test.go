package egress

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNoSecondRequestHidesInOne sends requests that servers interpret differently. The server must get a single
// unambiguous request.
func TestNoSecondRequestHidesInOne(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	var got []string
	w.name("example.com", address)
	w.raw("80", func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			var raw strings.Builder
			n := int64(0)
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				raw.WriteString(line)
				_, _ = fmt.Sscanf(line, "Content-Length: %d\r\n", &n)
				if line == "\r\n" {
					break
				}
			}
			if strings.Contains(raw.String(), "Transfer-Encoding: chunked") {
				for { // Go's own form
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					raw.WriteString(line)
					if line == "0\r\n" {
						line, _ = r.ReadString('\n')
						raw.WriteString(line)
						break
					}
				}
			}
			_, _ = io.CopyN(&raw, r, n)
			mu.Lock()
			got = append(got, raw.String())
			mu.Unlock()
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	b := w.box(allow("example.com"))
	inner := "GET http://example.com/evil HTTP/1.1\r\nHost: internal\r\n\r\n"
	cases := map[string]string{
		"CL and TE":        "POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"TE and CL":        "POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"two CL":           "POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
		"odd TE":           "POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"two TE":           "POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
		"TE with a space":  "POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"TE of a tab":      "POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n",
		"two Host":         "GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nHost: internal\r\n\r\n",
		"another Host":     "GET http://example.com/ HTTP/1.1\r\nHost: internal\r\n\r\n",
		"a fold":           "GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nX-A: 1\r\n Host: internal\r\n\r\n",
		"a bare LF":        "GET http://example.com/ HTTP/1.1\nHost: example.com\nX-A: 1\n\n",
		"a bare CR":        "GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nX-A: 1\rHost: internal\r\n\r\n",
		"a NUL":            "GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nX-A: 1\x002\r\n\r\n",
		"CRLF in the path": "GET http://example.com/%0d%0aHost:%20internal HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"a space inside":   "GET http://example.com/ HTTP/1.1\r\nX-A: /evil HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"a body of GET":    "GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: " + fmt.Sprint(len(inner)) + "\r\n\r\n" + inner,
		"an odd chunk":     "POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
		"a chunk of -1":    "POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nhello\r\n0\r\n\r\n",
		"HTTP/1.0 and TE":  "POST http://example.com/ HTTP/1.0\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"CL of +4":         "POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nContent-Length: +4\r\n\r\nabcd",
		"a trailer":        "POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length, Host\r\n\r\n0\r\nContent-Length: 9\r\nHost: internal\r\n\r\n",
	}
	names := slices.Sorted(maps.Keys(cases))
	for i, what := range names {
		c := b.dialBox()
		_, err := io.WriteString(c, strings.Replace(cases[what], "http://example.com/", fmt.Sprintf("http://example.com/case%d/", i), 1))
		require.NoError(t, err)
		_ = c.CloseWrite()
		_, err = http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err, what)
	}
	require.NoError(t, b.Close())
	mu.Lock()
	defer mu.Unlock()
	assert.NotEmpty(t, got)
	for i, what := range names {
		n := 0
		for _, g := range got {
			if strings.Contains(g, fmt.Sprintf(" /case%d/", i)) {
				n++
			}
		}
		assert.LessOrEqual(t, n, 1, what)
	}
	for _, g := range got {
		head, _, _ := strings.Cut(g, "\r\n\r\n")
		assert.Regexp(t, `^(GET|POST) /case\d+/\S* HTTP/1.1\r\n`, head)
		assert.Equal(t, 1, strings.Count("\r\n"+head, "\r\nHost: "), g)
		assert.Contains(t, head, "\r\nHost: example.com", g)
		framing := strings.Count(head, "\r\nContent-Length: ") + strings.Count(head, "\r\nTransfer-Encoding: ")
		assert.LessOrEqual(t, framing, 1, g)
		assert.NotContains(t, strings.ReplaceAll(head, "\r\n", ""), "\r", g)
	}
}

func TestHeadersOfProxiesStayHere(t *testing.T) {
	w := newWorld(t)
	got := make(chan http.Header, 1)
	w.web("example.com", func(rw http.ResponseWriter, r *http.Request) {
		r.Header.Set("Was-Host", r.Host)
		got <- r.Header
		rw.Header().Set("X-Wisbox-Denied", "not so")
	})
	b := w.box(allow("example.com"))
	a := b.get("http://EXAMPLE.com:80/?a;b&c=%zz", "Proxy-Authorization", "secret", "Proxy-Anything", "x", "X-Forwarded-For", "1.2.3.4", "X-Forwarded-Anything", "x",
		"Forwarded", "for=x", "Via", "1.1 x", "Connection", "X-Hop", "X-Hop", "1", "X-Mine", "2", "User-Agent", "")
	assert.Equal(t, 200, a.status)
	assert.Empty(t, a.header.Get("X-Wisbox-Denied"), "only we say so")
	h := <-got
	for _, gone := range []string{"Proxy-Authorization", "Proxy-Anything", "X-Forwarded-For", "X-Forwarded-Anything", "Forwarded", "X-Hop", "User-Agent"} {
		assert.Empty(t, h.Get(gone), gone)
	}
	assert.Equal(t, "2", h.Get("X-Mine"))
	assert.Equal(t, "example.com", h.Get("Was-Host"))
}

func TestAnAnswerThatWasCutIsNoAnswer(t *testing.T) {
	w := newWorld(t)
	w.name("example.com", address)
	w.raw("80", func(c net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\n"+strings.Repeat("x", 100_000))
		buf := make([]byte, 1)
		_, _ = c.Read(buf) // until the other end is gone
	})
	b := w.box(allow("example.com"))
	c := b.dialBox()
	_, err := io.WriteString(c, "GET http://example.com/ HTTP/1.0\r\n\r\n")
	require.NoError(t, err)
	r := bufio.NewReader(c)
	_, err = io.CopyN(io.Discard, r, 90_000)
	require.NoError(t, err)
	require.NoError(t, b.SetPolicy(nil))
	_, err = io.Copy(io.Discard, r)
	assert.ErrorContains(t, err, "reset", "an end would look like the answer's")
	eventually(t, func() bool { return len(w.journal.all("close")) == 1 }, "the end is in the log")
	assert.Equal(t, "the rules changed", w.journal.all("close")[0].Reason)
}
