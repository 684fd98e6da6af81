package kubernetes

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/wisbox/wisbox/tool"
)

// TestAListIsReadInPages: the pages form one list, which keeps little of each Pod.
func TestAListIsReadInPages(t *testing.T) {
	s := newStore(t)
	var selectors []string
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		query := r.URL.Query()
		assert.Equal(t, "500", query.Get("limit"))
		selectors = append(selectors, query.Get("labelSelector"))
		page := &corev1.PodList{}
		name := "b"
		if query.Get("continue") == "" {
			page.Continue = "more"
		} else {
			name = "a"
		}
		page.Items = []corev1.Pod{*shapeFor(withNotes(name, "record")).generate("agents")}
		answer(w, http.StatusOK, page)
		return true
	}
	all, err := s.List(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2)
	assert.Equal(t, []string{"a", "b"}, []string{all[0].Session, all[1].Session})
	assert.Empty(t, object(all[0]).Spec.Containers)
	assert.Empty(t, all[0].Notes)
	const every = "wisbox.dev/session,app.kubernetes.io/managed-by=wisbox"
	assert.Equal(t, []string{every, every}, selectors)

	all, err = s.ListOf(t.Context(), "somebody")
	require.NoError(t, err)
	assert.Len(t, all, 2)
	assert.Equal(t, every+",wisbox.dev/owner=somebody", selectors[2])
	_, err = s.ListOf(t.Context(), "")
	says(t, err, tool.Invalid, "need an owner")
}

// TestAListRemovesFinishedPodsTogether: one slow deletion doesn't delay the others.
func TestAListRemovesFinishedPodsTogether(t *testing.T) {
	s := newStore(t)
	for _, name := range []string{"a", "b"} {
		pod := shapeFor(session(name)).generate("agents")
		s.put(pod, name)
		pod.Status.Phase = corev1.PodSucceeded
	}
	meet := make(chan struct{})
	s.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete {
			return false
		}
		s.mu.Unlock()
		defer s.mu.Lock()
		select { // each waits for the other
		case meet <- struct{}{}:
		case <-meet:
		case <-r.Context().Done():
		}
		return false
	}
	s.patience = 10 * time.Second
	all, err := s.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, all)
	assert.Empty(t, s.names())
	assert.Len(t, slices.DeleteFunc(s.asked, func(asked string) bool { return !strings.HasPrefix(asked, http.MethodDelete) }), 2)
}

// TestAListOfASilentAPIServerEnds: the time of each request is bounded.
func TestAListOfASilentAPIServerEnds(t *testing.T) {
	s := newStore(t)
	s.silence()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := s.List(ctx)
	says(t, err, tool.Unavailable, "the API server of context prod doesn't answer; try: kubectl --context prod version")
}
