package gateway

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestIdleConnectionsOfAKeyLeaveTheGatewayHealthy: more than a server takes in all, each admitted once and then kept; some
// as strangers that have only looked at /health.
func TestIdleConnectionsOfAKeyLeaveTheGatewayHealthy(t *testing.T) {
	w := newWorld(t)
	s := w.serve()
	addr := strings.TrimPrefix(s.url, "http://")
	const connections, workers = 4_400, 16
	var mu sync.Mutex
	var held []net.Conn
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	var all sync.WaitGroup
	for n := range workers {
		all.Go(func() {
			for i := range connections / workers {
				c, err := net.Dial("tcp", addr)
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				held = append(held, c)
				mu.Unlock()
				request := "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
				if (n+i)%2 == 0 {
					request = fmt.Sprintf("GET /sandboxes/none HTTP/1.1\r\nHost: localhost\r\nX-API-KEY: %s\r\n\r\n", w.keys[0])
				}
				if _, err := c.Write([]byte(request)); err == nil {
					if res, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil { // it may be turned away
						_ = res.Body.Close()
					}
				}
			}
		})
	}
	all.Wait()
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: guard}
	for range 20 {
		res, err := fresh.Get(s.url + "/health")
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		assert.Equal(t, http.StatusNoContent, res.StatusCode)
	}
	res, body := s.ask(w.keys[1], "GET", "/v2/sandboxes", "")
	assert.Equal(t, http.StatusOK, res.StatusCode, body)
}
