package images

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProbeTakesOnlyARegistrysAnswers(t *testing.T) {
	for code, ok := range map[int]bool{200: true, 401: true, 403: false, 404: false, 407: false, 502: false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		err := probeURL(t.Context(), server.URL)
		server.Close()
		require.Equal(t, ok, err == nil, "%d: %v", code, err)
	}
}

func TestProbeOfARefusedConnectionSaysSo(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	require.EqualError(t, probeURL(t.Context(), server.URL), "no registry answers")
}

func TestProbeEndsWithItsContextWhenNothingAnswers(t *testing.T) {
	arrived, over := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-over
	}))
	defer server.Close()
	defer close(over)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	go func() { <-arrived; cancel() }()
	require.Error(t, probeURL(ctx, server.URL))
}
