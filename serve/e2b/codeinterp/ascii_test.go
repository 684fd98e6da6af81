package codeinterp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/tool"
)

// TestAnAnswerIsEscapedInPieces: escaped, a text takes up to three times its bytes.
func TestAnAnswerIsEscapedInPieces(t *testing.T) {
	for _, text := range []string{"", "plain", "é€😀\u2028", strings.Repeat("a€😀", 30_000)} {
		raw, err := json.Marshal(text)
		require.NoError(t, err)
		var out bytes.Buffer
		writeASCII(&out, raw)
		assert.Equal(t, -1, bytes.IndexFunc(out.Bytes(), func(r rune) bool { return r >= 0x80 }))
		var back string
		require.NoError(t, json.Unmarshal(out.Bytes(), &back))
		assert.Equal(t, text, back)
	}
	raw := []byte(strings.Repeat("é", 4<<20))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	writeASCII(io.Discard, raw)
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

// idle is a session in which code runs until it is ended.
type idle struct {
	Session
	began, end chan struct{}
}

func (i idle) Contexts(context.Context) ([]evaltool.Context, error) {
	return []evaltool.Context{{Name: defaultPrefix + evaltool.LanguagePython}}, nil
}

func (i idle) Evaluate(context.Context, evaltool.Run, func(evaltool.Part)) (*tool.Result, error) {
	i.began <- struct{}{}
	<-i.end
	return &tool.Result{}, nil
}

// TestCodeCountsForItsClientWithItsCopies while it runs: the code, with other line ends, and in the message to the session.
func TestCodeCountsForItsClientWithItsCopies(t *testing.T) {
	session := idle{began: make(chan struct{}), end: make(chan struct{})}
	guard, err := httpguard.New(&httpguard.Options{OwnKeys: true, MaxBytes: 10 << 20})
	require.NoError(t, err)
	s := httptest.NewServer(guard.Handler(New(Options{Session: session, Pass: func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		if assert.NoError(t, httpguard.LetIn(r, httpguard.Client{Name: "a"})) {
			next(w, r)
		}
	}})))
	defer s.Close()
	body := `{"code":"` + strings.Repeat("x", 1<<20) + `"}`
	send := func() int {
		res, err := http.Post(s.URL+"/execute", "application/json", strings.NewReader(body))
		if !assert.NoError(t, err) {
			return 0
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	first := make(chan int, 1)
	go func() { first <- send() }()
	<-session.began
	second := make(chan int, 1)
	go func() { second <- send() }()
	select {
	case <-session.began:
		session.end <- struct{}{}
		assert.Fail(t, "the second one has no room")
	case status := <-second:
		assert.Equal(t, http.StatusTooManyRequests, status)
	}
	session.end <- struct{}{}
	assert.Equal(t, http.StatusOK, <-first)
}
