package kubernetes

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/wisbox/wisbox/tool"
)

// store is an API server with Pods. A test can spoil its answers, to cause failures that are
// rare with a real API server.
type store struct {
	*Place
	mu     sync.Mutex
	pods   map[string]*corev1.Pod // by name
	asked  []string               // methods and paths
	before func(w http.ResponseWriter, r *http.Request) (answered bool)
	after  func(w http.ResponseWriter, r *http.Request) (answered bool) // after a creation
}

func newStore(t *testing.T) *store {
	t.Helper()
	s := &store{pods: map[string]*corev1.Pod{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.Place = placeAt(t, server.URL, &clientcmdapi.AuthInfo{})
	return s
}

func placeAt(t *testing.T, url string, user *clientcmdapi.AuthInfo) *Place {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: url}
	config.AuthInfos["u"] = user
	config.Contexts["prod"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	p, err := New("prod", "agents", &Options{Kubeconfig: path})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// silence makes the API server answer no request.
func (s *store) silence() {
	s.patience = 10 * time.Millisecond
	s.before = func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		return true
	}
}

// put stores a running Pod.
func (s *store) put(pod *corev1.Pod, uid string) {
	pod.UID = types.UID(uid)
	pod.Status.Phase = corev1.PodRunning
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
	}
	s.pods[pod.Name] = pod
}

// ServeHTTP implements http.Handler.
func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	if s.before != nil && s.before(w, r) {
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/agents/pods")
	pod := s.pods[strings.TrimPrefix(name, "/")]
	switch {
	case r.Method == http.MethodPost:
		pod := &corev1.Pod{}
		_ = json.NewDecoder(r.Body).Decode(pod)
		if s.pods[pod.Name] != nil {
			fail(w, http.StatusConflict, metav1.StatusReasonAlreadyExists)
			return
		}
		s.put(pod, "made")
		if s.after == nil || !s.after(w, r) {
			answer(w, http.StatusCreated, pod)
		}
	case name == "":
		all := &corev1.PodList{}
		for _, pod := range s.pods {
			all.Items = append(all.Items, *pod)
		}
		answer(w, http.StatusOK, all)
	case pod == nil:
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodDelete:
		options := &metav1.DeleteOptions{}
		_ = json.NewDecoder(r.Body).Decode(options)
		if options.Preconditions != nil && *options.Preconditions.UID != pod.UID {
			fail(w, http.StatusConflict, metav1.StatusReasonConflict)
			return
		}
		delete(s.pods, pod.Name)
		answer(w, http.StatusOK, pod)
	default:
		answer(w, http.StatusOK, pod)
	}
}

func answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	answer(w, code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "refused", //nolint:gosec // an HTTP status
	})
}

// names returns the names of the existing Pods.
func (s *store) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []string{}
	for name := range s.pods {
		found = append(found, name)
	}
	slices.Sort(found)
	return found
}

// TestWithdrawLeavesAnotherPodOfTheName: Withdraw removes only its own Pod.
func TestWithdrawLeavesAnotherPodOfTheName(t *testing.T) {
	s := newStore(t)
	pod, err := s.Create(t.Context(), session("box"))
	require.NoError(t, err)
	require.NoError(t, s.Withdraw(t.Context(), pod))
	assert.Empty(t, s.names())
	s.put(shapeFor(session("box")).generate("agents"), "theirs")
	require.NoError(t, s.Withdraw(t.Context(), pod))
	assert.Equal(t, []string{"wisbox-box"}, s.names())
}

// TestACreationWithoutAnAnswerLeavesNoPod: the API server received the request, but its answer
// was lost or the caller left.
func TestACreationWithoutAnAnswerLeavesNoPod(t *testing.T) {
	lost := func(w http.ResponseWriter, _ *http.Request) bool {
		conn, _, err := w.(http.Hijacker).Hijack()
		assert.NoError(t, err)
		return assert.NoError(t, conn.Close())
	}
	s := newStore(t)
	s.after = lost
	_, err := s.Create(t.Context(), session("box"))
	says(t, err, tool.Unavailable, "the API server of context prod can't be reached: EOF")
	assert.Empty(t, s.names())

	ctx, cancel := context.WithCancel(t.Context())
	s.after = func(_ http.ResponseWriter, r *http.Request) bool {
		cancel()
		<-r.Context().Done()
		return true
	}
	_, err = s.Create(ctx, session("box"))
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, s.names())

	s.before = func(w http.ResponseWriter, r *http.Request) bool { // another client was faster
		if r.Method == http.MethodPost {
			s.put(shapeFor(session("box")).generate("agents"), "theirs")
			return lost(w, r)
		}
		return false
	}
	_, err = s.Create(t.Context(), session("box"))
	says(t, err, tool.Unavailable, "can't be reached")
	assert.Equal(t, []string{"wisbox-box"}, s.names())
}

// TestANameThatIsTakenTwice: the session of the Pod has ended, and another client reuses the
// name first.
func TestANameThatIsTakenTwice(t *testing.T) {
	s := newStore(t)
	pod := shapeFor(session("box")).generate("agents")
	s.put(pod, "ended")
	pod.Status.Phase = corev1.PodSucceeded
	posts := 0
	s.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			posts++
		}
		if posts == 2 {
			s.put(shapeFor(session("box")).generate("agents"), "theirs")
		}
		return false
	}
	_, err := s.Create(t.Context(), session("box"))
	says(t, err, tool.Exists, `there is a session "box" already`)
	assert.Equal(t, []string{"wisbox-box"}, s.names())
}

// TestAListLeavesPodsOfOthers: a Pod without the name of a session's Pod isn't listed, whatever
// its labels are.
func TestAListLeavesPodsOfOthers(t *testing.T) {
	s := newStore(t)
	theirs := shapeFor(session("box")).generate("agents")
	theirs.Name = "theirs"
	s.put(theirs, "theirs")
	theirs.Status.Phase = corev1.PodSucceeded
	mine := shapeFor(session("mine")).generate("agents")
	s.put(mine, "mine")
	all, err := s.List(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, "mine", all[0].Session)
	assert.False(t, all[0].Starting)
	mine.Status.Phase = corev1.PodPending
	all, err = s.List(t.Context())
	require.NoError(t, err)
	assert.True(t, all[0].Starting)
	assert.Equal(t, []string{"theirs", "wisbox-mine"}, s.names())
}

// TestCredentialsThatAnExecPluginDoesNotGive: the error is the same as for credentials that the
// cluster rejects, and the plugin isn't run repeatedly.
func TestCredentialsThatAnExecPluginDoesNotGive(t *testing.T) {
	dir := t.TempDir()
	plugin, runs := filepath.Join(dir, "plugin"), filepath.Join(dir, "runs")
	require.NoError(t, os.WriteFile(plugin, []byte("#!/bin/sh\necho run >>"+runs+"\nexit 1\n"), 0o755)) //nolint:gosec // a program
	p := placeAt(t, "https://127.0.0.1:1", &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: plugin, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}})
	pod := seen(shapeFor(session("box")).generate("agents"))
	_, err := p.Now(t.Context(), pod)
	says(t, err, tool.Permission, "the cluster of context prod doesn't accept its credentials", "log in again")
	assert.NotContains(t, tool.AsError(err).Message, plugin)
	_, err = p.Create(t.Context(), session("box"))
	says(t, err, tool.Permission, "log in again")
	raw, err := os.ReadFile(runs)
	require.NoError(t, err)
	assert.Equal(t, "run\nrun\n", string(raw))
}

// TestTextsOfTheClusterHaveNoControlCharacters: control characters would reach a terminal.
func TestTextsOfTheClusterHaveNoControlCharacters(t *testing.T) {
	pod := shapeFor(session("box")).generate("agents")
	pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Bad\x1b[2J", Message: "the\n\x1b[31mred\x07 \u202enode\u009b"}
	says(t, ended(pod), tool.Closed, "failed (Bad[2J)", "the [31mred node;")
}

// inMemory makes s answer without a network, for tests with synctest's clock.
type inMemory struct{ s *store }

// RoundTrip implements http.RoundTripper.
func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	m.s.ServeHTTP(w, r)
	if w.Code == http.StatusTeapot {
		return nil, syscall.ECONNREFUSED
	}
	return w.Result(), nil
}

// CloseIdleConnections is for [Place.Close].
func (inMemory) CloseIdleConnections() {}

// TestFindWaitsForTheAPIServer: Find and Now retry for ten seconds while the API server restarts.
func TestFindWaitsForTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{pods: map[string]*corev1.Pod{}, Place: placeAt(t, "http://127.0.0.1:1", &clientcmdapi.AuthInfo{})}
		s.client.Client = &http.Client{Transport: inMemory{s}}
		s.put(shapeFor(session("box")).generate("agents"), "uid")
		refused := 3
		s.before = func(w http.ResponseWriter, _ *http.Request) bool {
			refused--
			if refused >= 0 {
				w.WriteHeader(http.StatusTeapot)
			}
			return refused >= 0
		}
		pod, err := s.Find(t.Context(), "box")
		require.NoError(t, err)
		refused = 3
		_, err = s.Now(t.Context(), pod)
		require.NoError(t, err)

		refused = 1000
		began := time.Now()
		_, err = s.Find(t.Context(), "box")
		says(t, err, tool.Unavailable, "the API server of context prod can't be reached")
		assert.Equal(t, 9500*time.Millisecond, time.Since(began))
		refused = 0
		began = time.Now()
		_, err = s.Find(t.Context(), "other")
		says(t, err, tool.NotFound, "not found")
		assert.Zero(t, time.Since(began))
	})
}
