package serve

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	_ "github.com/wisbox/wisbox/cluster/kubernetes"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/internal/podbook"
	"github.com/wisbox/wisbox/tool"
)

// TestAPodThatCantBeOpenedHidesTheCluster: agents see the error over MCP; its cause is for the log.
func TestAPodThatCantBeOpenedHidesTheCluster(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusUnauthorized, http.StatusInternalServerError} {
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "node-7", code) }))
		t.Cleanup(api.Close)
		t.Setenv("KUBECONFIG", hosttest.KubeconfigOf(t, api.URL))
		m, err := wisbox.NewManager(t.Context(), &wisbox.Options{Far: "kube:prod/agents", CacheDir: t.TempDir()})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, m.Close()) })
		book, err := podbook.New(m.Cluster(), []byte("a secret of thirty-two characters"), slog.New(slog.DiscardHandler))
		require.NoError(t, err)

		_, err = (&podEngine{engine: &engine{m: m}, book: book}).Open(t.Context(), "abcdefghij0123456789")
		require.Error(t, err)
		shown := tool.AsError(err)
		assert.Equal(t, tool.Unavailable, shown.Kind)
		for _, secret := range []string{"prod", "agents", "node-7", "127.0.0.1", "kubectl"} {
			assert.NotContains(t, shown.Message, secret)
		}
		assert.ErrorContains(t, shown.Unwrap(), "prod")
	}
}
