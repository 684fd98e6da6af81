package cluster

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// counter counts requests to the API server.
type counter struct {
	http.RoundTripper
	mu     sync.Mutex
	counts map[string]int
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	verb := r.Method
	if r.URL.Query().Get("watch") != "" {
		verb = "WATCH"
	}
	c.mu.Lock()
	c.counts[verb]++
	c.mu.Unlock()
	return c.RoundTripper.RoundTrip(r)
}

// WrappedRoundTripper lets client-go close idle connections.
func (c *counter) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }

// fakeNodes runs kwok, which simulates nodes and reports the status of their Pods.
func (w *world) fakeNodes(t *testing.T, count int) {
	t.Helper()
	for i := range count {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("fake-%d", i), Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}}}
		node.Status.Capacity = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("110"),
		}
		node.Status.Allocatable = node.Status.Capacity
		require.NoError(t, w.admin.client.Post().Resource("nodes").Body(node).Do(t.Context()).Error())
		t.Cleanup(func() {
			assert.NoError(t, w.admin.client.Delete().Resource("nodes").Name(node.Name).Do(context.Background()).Error())
		})
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "kwok.log"))
	require.NoError(t, err)
	kwok := exec.Command(os.Getenv("WISBOX_KWOK"), "--kubeconfig", hosttest.Kubeconfig(t), "--manage-all-nodes=false", "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake") //nolint:gosec // the tester's own
	kwok.Stdout, kwok.Stderr = log, log
	require.NoError(t, kwok.Start())
	t.Cleanup(func() {
		_ = kwok.Process.Kill()
		_ = kwok.Wait()
		raw, _ := os.ReadFile(log.Name())
		if t.Failed() {
			t.Logf("%.4000s", raw)
		}
		_ = log.Close()
	})
	require.Eventually(t, func() bool {
		nodes := &corev1.NodeList{}
		ready := 0
		if w.admin.client.Get().Resource("nodes").Do(t.Context()).Into(nodes) != nil {
			return false
		}
		for _, node := range nodes.Items {
			for _, c := range node.Status.Conditions {
				if strings.HasPrefix(node.Name, "fake-") && c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0 {
					ready++
				}
			}
		}
		return ready == count
	}, time.Minute, 100*time.Millisecond)
}

var requestTotal = regexp.MustCompile(`^apiserver_request_total\{.*[,{]resource="([a-z]*)".*,subresource="([a-z]*)",verb="(?:POST|PUT|PATCH|APPLY|DELETE)".*\} ([0-9.e+]+)$`)

// writes counts the writes to Pods and to events about them that the API server has answered,
// for all clients.
func (w *world) writes(t *testing.T) map[string]float64 {
	t.Helper()
	raw, err := w.admin.client.Get().AbsPath("/metrics").Do(t.Context()).Raw()
	require.NoError(t, err)
	found := map[string]float64{}
	lines := bufio.NewScanner(strings.NewReader(string(raw)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m := requestTotal.FindStringSubmatch(lines.Text()); m != nil && (m[1] == "pods" || m[1] == "events") {
			n, err := strconv.ParseFloat(m[3], 64)
			require.NoError(t, err)
			found[strings.TrimSuffix(m[1]+"/"+m[2], "/")] += n
		}
	}
	return found
}

// heap returns the live heap of this process in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below
}

// TestAThousandSessions opens and ends a thousand sessions on nodes simulated by kwok. The
// client's memory must not grow with them. The test also counts the API server's writes per
// session.
func TestAThousandSessions(t *testing.T) {
	if os.Getenv("WISBOX_KWOK") == "" {
		t.Skip("make test-kwok does this")
	}
	config, err := clientcmd.LoadFromFile(hosttest.Kubeconfig(t))
	require.NoError(t, err)
	w := &world{config: *config}
	w.admin = w.place(t, config.CurrentContext, "default", Options{})
	w.Place = w.admin
	w.fakeNodes(t, 12)
	asked := &counter{RoundTripper: w.client.Client.Transport, counts: map[string]int{}}
	w.client.Client.Transport = asked

	const sessions, atOnce = 1000, 32
	name := func(i int) string { return fmt.Sprintf("kwok-%d", i) }
	each := func(do func(i int) error) time.Duration {
		t.Helper()
		var all errgroup.Group
		all.SetLimit(atOnce)
		began := time.Now()
		for i := range sessions {
			all.Go(func() error { return do(i) })
		}
		require.NoError(t, all.Wait())
		return time.Since(began)
	}
	open := func(i int) error {
		_, err := w.Create(t.Context(), session(name(i)))
		return err
	}
	require.NoError(t, open(sessions)) // warm
	require.NoError(t, w.Remove(t.Context(), name(sessions)))
	clear(asked.counts)
	before, first, goroutines := w.writes(t), heap(), runtime.NumGoroutine()

	took := each(open)
	opened := heap()
	assert.Equal(t, sessions, w.listed(t))
	ended := each(func(i int) error { return w.Remove(t.Context(), name(i)) })
	last := heap()
	assert.Zero(t, w.listed(t))

	total := 0.0
	var parts []string
	for resource, n := range w.writes(t) {
		if n -= before[resource]; n > 0 {
			total += n
			parts = append(parts, fmt.Sprintf("%s %.2f", resource, n/sessions))
		}
	}
	t.Logf("%d opened in %s (%.0f a second), ended in %s (%.0f a second)", sessions, took.Round(time.Second), sessions/took.Seconds(), ended.Round(time.Second), sessions/ended.Seconds())
	t.Logf("the client's heap: %.1f MiB before, %.1f with all open, %.1f after; goroutines %d before, %d after", float64(first)/(1<<20), float64(opened)/(1<<20), float64(last)/(1<<20), goroutines, runtime.NumGoroutine())
	t.Logf("the client asked, for each: %v; writes of all clients, for each: %.1f (%s)", perSession(asked.counts, sessions), total/sessions, strings.Join(parts, ", "))
	const flat = 8 << 20 // bytes; a Pod's object alone takes about 10 KB
	assert.Less(t, opened-first, int64(flat), "memory grows with sessions that are open")
	assert.Less(t, last-first, int64(flat), "memory stays of sessions that have ended")
	assert.Less(t, total/sessions, 12.0, "KUBERNETES.md §5 counts 12 with a real kubelet")
	assert.Equal(t, sessions, asked.counts[http.MethodPost])
	assert.Equal(t, sessions, asked.counts[http.MethodDelete])
}

// listed returns the number of sessions in a list.
func (w *world) listed(t *testing.T) int {
	t.Helper()
	all, err := w.List(t.Context())
	require.NoError(t, err)
	return len(all)
}

func perSession(counts map[string]int, n int) map[string]float64 {
	out := map[string]float64{}
	for verb, count := range counts {
		out[verb] = float64(count) / float64(n)
	}
	return out
}
