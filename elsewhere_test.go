package wisbox_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	_ "github.com/wisbox/wisbox/cluster/kubernetes"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/internal/podbook"
	"github.com/wisbox/wisbox/tool"
)

func TestAnotherSystemHasSessionsOnLinuxMachinesOnly(t *testing.T) {
	_, near, _ := heldBy(t, time.Minute, wisbox.SessionOptions{}, wisbox.Options{})
	wisbox.SetSystem(t, "darwin")
	root := filepath.Join(t.TempDir(), "cache")
	_, err := wisbox.NewManager(t.Context(), &wisbox.Options{CacheDir: root})
	assert.Equal(t, tool.Unsupported, tool.KindOf(err))
	assert.ErrorContains(t, err, "need Linux")
	assert.NoDirExists(t, root, "nothing was made")

	m := farFrom(t, near, wisbox.Options{}, nil)
	s, err := m.Attach(t.Context(), "box")
	require.NoError(t, err)
	_, err = s.Call(t.Context(), "write_file", []byte(`{"file_path": "f", "content": "x"}`))
	require.NoError(t, err)
	assert.FileExists(t, filepath.Join(workspace(s), "f"))
}

// TestAPodThatCanNotBeUsedIsRemoved: this process fails after it has created the Pod.
func TestAPodThatCanNotBeUsedIsRemoved(t *testing.T) {
	var mu sync.Mutex
	var pod map[string]any
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.Method)
		switch r.Method {
		case http.MethodPost:
			assert.NoError(t, json.NewDecoder(r.Body).Decode(&pod))
			pod["metadata"].(map[string]any)["uid"] = "uid"
			running := map[string]any{"state": map[string]any{"running": map[string]any{}}}
			pod["status"] = map[string]any{"phase": "Running", "containerStatuses": []any{running, running}}
		case http.MethodDelete:
			pod = nil
		}
		w.Header().Set("Content-Type", "application/json")
		if pod == nil {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
			return
		}
		assert.NoError(t, json.NewEncoder(w).Encode(pod))
	}))
	defer server.Close()
	t.Setenv("KUBECONFIG", hosttest.KubeconfigOf(t, server.URL))
	m, err := wisbox.NewManager(t.Context(), &wisbox.Options{Far: "kube:prod/agents"})
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	for _, name := range []string{"HOME", "XDG_CACHE_HOME", "WISBOX_CACHE"} {
		t.Setenv(name, "")
	}
	_, err = m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Image: "localhost/wisbox"})
	require.ErrorContains(t, err, "HOME")
	assert.Nil(t, pod)
	assert.Contains(t, asked, http.MethodDelete)
}

// TestATenantsListAsksForItsPodsOnly: the API server selects them, however many Pods others have.
func TestATenantsListAsksForItsPodsOnly(t *testing.T) {
	selectors := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		selectors <- r.URL.Query().Get("labelSelector")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","items":[]}`)
	}))
	defer server.Close()
	t.Setenv("KUBECONFIG", hosttest.KubeconfigOf(t, server.URL))
	m, err := wisbox.NewManager(t.Context(), &wisbox.Options{Far: "kube:prod/agents"})
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	require.NoError(t, wisbox.GuestDo(t.Context(), m, &landlord{owner: "a"}, hold.Request{Op: "list", Args: []byte(`{}`)}))
	assert.Contains(t, <-selectors, "wisbox.dev/owner="+podbook.Owner("a"))
}
