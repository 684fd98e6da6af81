package podbook_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wisbox/wisbox/cluster"
	_ "github.com/wisbox/wisbox/cluster/kubernetes"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/internal/podbook"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/tool"
)

const secret = "a secret of more than thirty-two characters"

// api is a fake API server with Pods. Like a real server it answers 422 to a patch whose test
// fails; integration/gateway has two servers that work on one Pod.
type api struct {
	mu     sync.Mutex
	pods   map[string]*corev1.Pod
	before func(method string) // called before each request
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.before != nil {
		a.before(r.Method)
	}
	if strings.HasSuffix(r.URL.Path, "/pods") {
		list := &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
		for _, pod := range a.pods {
			if strings.Contains(r.URL.Query().Get("labelSelector"), "wisbox.dev/owner="+pod.Labels["wisbox.dev/owner"]) {
				list.Items = append(list.Items, *pod)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
		return
	}
	pod := a.pods[r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]]
	switch {
	case pod == nil:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	case r.Method == http.MethodPatch:
		var ops []struct{ Op, Path, Value string }
		_ = json.NewDecoder(r.Body).Decode(&ops)
		for _, op := range ops {
			switch {
			case op.Path == "/metadata/uid" && op.Value != string(pod.UID), op.Op == "test" && op.Path != "/metadata/uid" && op.Value != pod.Annotations["wisbox.dev/record"]:
				refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
				return
			case op.Op == "replace", op.Op == "add":
				pod.Annotations["wisbox.dev/record"] = op.Value
			}
		}
	case r.Method == http.MethodDelete:
		delete(a.pods, pod.Name)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(pod)
}

func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(&metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: code, Reason: reason})
}

func (a *api) place(t *testing.T) cluster.Place {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	p, err := cluster.New("prod", "agents", &cluster.Options{Kubeconfig: hosttest.KubeconfigOf(t, server.URL)})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func bookOf(t *testing.T, p cluster.Place, secret string) *podbook.Book {
	t.Helper()
	b, err := podbook.New(p, []byte(secret), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return b
}

func (a *api) put(session string, n cluster.Notes) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pod := &corev1.Pod{}
	pod.Name, pod.UID, pod.ResourceVersion = "wisbox-"+session, types.UID("uid-"+session), "1"
	pod.Labels = map[string]string{"wisbox.dev/session": session, "wisbox.dev/owner": n.Owner}
	pod.Annotations = map[string]string{"wisbox.dev/record": n.Record}
	a.pods[pod.Name] = pod
}

const id = "abcdefghij0123456789"

func record() registry.Record {
	return registry.Record{ID: id, Owner: "key_1", State: registry.Running, Env: map[string]string{"TOKEN": "hunter2"}, End: time.Unix(100, 0).UTC()}
}

func noted(t *testing.T, a *api, b *podbook.Book) cluster.Notes {
	t.Helper()
	n, err := b.Notes(record())
	require.NoError(t, err)
	a.put(b.Session(id), n)
	return n
}

// TestTheRecordsOfAnOwner: the record decides, because any user who may edit Pods can change a
// label.
func TestTheRecordsOfAnOwner(t *testing.T) {
	a := &api{pods: map[string]*corev1.Pod{}}
	b := bookOf(t, a.place(t), secret)
	noted(t, a, b)
	other := record()
	other.ID, other.Owner = "bbbbbbbbbbbbbbbbbbbb", "key_2"
	n, err := b.Notes(other)
	require.NoError(t, err)
	a.put(b.Session(other.ID), n)
	swapped := record()
	swapped.ID, swapped.Owner = "cccccccccccccccccccc", "key_2"
	if n, err = b.Notes(swapped); assert.NoError(t, err) {
		n.Owner = podbook.Owner("key_1")
		a.put(b.Session(swapped.ID), n)
	}
	all, err := b.Owned(t.Context(), "key_1")
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, record(), all[0].Record)
	all, err = b.Owned(t.Context(), "key_3")
	require.NoError(t, err)
	assert.Empty(t, all)
}

func TestARecordIsSealedForItsPod(t *testing.T) {
	a := &api{pods: map[string]*corev1.Pod{}}
	p := a.place(t)
	b := bookOf(t, p, secret)
	n := noted(t, a, b)
	e, err := b.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, record(), e.Record)
	for _, text := range []string{n.Owner, n.Record, b.Session(id)} {
		assert.NotContains(t, text, "hunter2")
		assert.NotContains(t, text, id)
	}
	again, err := b.Notes(record())
	require.NoError(t, err)
	assert.NotEqual(t, n.Record, again.Record, "two of the same aren't seen to be")

	same := bookOf(t, p, secret)
	_, err = same.Get(t.Context(), id)
	require.NoError(t, err)
	other := bookOf(t, p, "another "+secret)
	assert.NotEqual(t, b.Session(id), other.Session(id))
	const another = "00000000000000000000"
	for _, record := range []string{n.Record, n.Record[:40], "no base64!", ""} {
		a.put(b.Session(another), cluster.Notes{Owner: n.Owner, Record: record})
		_, err = b.Get(t.Context(), another)
		assert.Equal(t, tool.NotFound, tool.KindOf(err), "one of another Pod, or of nobody")
	}
	large := record()
	large.Env["X"] = strings.Repeat("x", 200<<10)
	_, err = b.Notes(large)
	assert.Equal(t, tool.TooLarge, tool.KindOf(err))
}

// TestAChangeThatOthersAreQuickerWith: it is retried with the new record, up to a limit.
func TestAChangeThatOthersAreQuickerWith(t *testing.T) {
	a := &api{pods: map[string]*corev1.Pod{}}
	b := bookOf(t, a.place(t), secret)
	noted(t, a, b)
	left := 2
	a.before = func(method string) {
		if method != http.MethodPatch || left == 0 {
			return
		}
		left--
		other := record()
		other.Version, other.AutoPause = int64(10-left), true
		n, err := b.Notes(other)
		assert.NoError(t, err)
		a.pods["wisbox-"+b.Session(id)].Annotations["wisbox.dev/record"] = n.Record
	}
	rec, err := b.Change(t.Context(), id, func(r *registry.Record) bool { r.End = time.Unix(200, 0).UTC(); return true })
	require.NoError(t, err)
	assert.True(t, rec.AutoPause, "theirs is kept")
	assert.EqualValues(t, 11, rec.Version)
	e, err := b.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, rec, e.Record)
	same, err := b.Change(t.Context(), id, func(*registry.Record) bool { return false })
	require.NoError(t, err)
	assert.Equal(t, rec, same)
	left = 1 << 30
	_, err = b.Change(t.Context(), id, func(*registry.Record) bool { return true })
	assert.Equal(t, tool.Busy, tool.KindOf(err))
	_, err = b.Change(t.Context(), "11111111111111111111", func(*registry.Record) bool { return true })
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
}

func TestTheEndAsksTheRecordAsItIs(t *testing.T) {
	a := &api{pods: map[string]*corev1.Pod{}}
	b := bookOf(t, a.place(t), secret)
	noted(t, a, b)
	ended, rec, err := b.End(t.Context(), id, func(registry.Record) bool { return false })
	require.NoError(t, err)
	assert.False(t, ended)
	assert.Equal(t, record(), rec)
	ended, rec, err = b.End(t.Context(), id, func(r registry.Record) bool { return r.End.Equal(time.Unix(100, 0)) })
	require.NoError(t, err)
	assert.True(t, ended)
	assert.Equal(t, id, rec.ID)
	assert.Empty(t, a.pods)
	ended, rec, err = b.End(t.Context(), id, nil)
	require.NoError(t, err)
	assert.True(t, ended)
	assert.Empty(t, rec.ID, "it was gone")
}

func TestErrorsOfTheClusterAreNotTheClients(t *testing.T) {
	for of, want := range map[tool.Kind]tool.Kind{tool.Limit: tool.NoSpace, tool.Permission: tool.Unavailable, tool.Closed: tool.Unavailable, tool.NotFound: tool.NotFound, tool.Unavailable: tool.Unavailable} {
		assert.Equal(t, want, tool.KindOf(podbook.Explain(tool.Errorf(of, "x"))))
	}
	assert.NoError(t, podbook.Explain(nil))
	none := tool.Errorf(tool.NotFound, "there is no namespace").Because(cluster.ErrNoNamespace)
	assert.Equal(t, tool.Unavailable, tool.KindOf(podbook.Explain(none)), "or clients would see its name")
	require.NoError(t, podbook.Hide(nil))
	for of, want := range map[tool.Kind]tool.Kind{tool.Permission: tool.Unavailable, tool.Closed: tool.Closed, tool.Unavailable: tool.Unavailable, tool.Unsupported: tool.Unavailable} {
		for _, cause := range []error{nil, cluster.ErrMemory} {
			hidden := podbook.Hide(tool.Errorf(of, "the API server of context c").Because(cause))
			assert.NotContains(t, tool.AsError(hidden).Message, "context")
			if cause == nil {
				assert.Equal(t, want, tool.KindOf(hidden))
			}
		}
	}
}

// TestANodeThatIsSilentEndsNothing: the node may come back with its sandboxes.
func TestANodeThatIsSilentEndsNothing(t *testing.T) {
	a := &api{pods: map[string]*corev1.Pod{}}
	b := bookOf(t, a.place(t), secret)
	noted(t, a, b)
	pod := a.pods["wisbox-"+b.Session(id)]
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "programs", Ready: true}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	e, err := b.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Empty(t, e.Problem)
	_, err = b.Change(t.Context(), id, func(*registry.Record) bool { return true })
	require.NoError(t, err)
	pod.Status.Phase = corev1.PodFailed
	e, err = b.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Contains(t, e.Problem, "has failed")
}

// TestARecordThatSomebodySpoils: it is written again, and the Pod can be ended, because its name
// is derived from this gateway's secret.
func TestARecordThatSomebodySpoils(t *testing.T) {
	for _, spoiled := range []string{"", "garbage"} {
		a := &api{pods: map[string]*corev1.Pod{}}
		b := bookOf(t, a.place(t), secret)
		noted(t, a, b)
		notes := a.pods["wisbox-"+b.Session(id)].Annotations
		notes["wisbox.dev/record"] = spoiled
		_, err := b.Get(t.Context(), id)
		assert.Equal(t, tool.NotFound, tool.KindOf(err))
		_, err = b.Change(t.Context(), id, func(r *registry.Record) bool {
			assert.Zero(t, *r)
			return false
		})
		assert.Equal(t, tool.NotFound, tool.KindOf(err), "nobody knows the record")
		rec, err := b.Change(t.Context(), id, func(r *registry.Record) bool { *r = record(); return true })
		require.NoError(t, err)
		e, err := b.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, rec, e.Record)

		notes["wisbox.dev/record"] = spoiled
		ended, _, err := b.End(t.Context(), id, func(r registry.Record) bool { return r.ID != "" })
		require.NoError(t, err)
		assert.False(t, ended)
		assert.Len(t, a.pods, 1)
		ended, rec, err = b.End(t.Context(), id, nil)
		require.NoError(t, err)
		assert.True(t, ended)
		assert.Equal(t, id, rec.ID, "it was there")
		assert.Empty(t, a.pods)
	}
}
