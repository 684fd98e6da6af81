package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cluster"
	_ "github.com/wisbox/wisbox/cluster/kubernetes"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/serve"
)

const (
	sessions = 1000
	atOnce   = 32

	// memorySlack is how much the memory of a process may differ between two rounds of sessions, in
	// bytes. A Pod's object alone takes about 10 KB.
	memorySlack = 8 << 20
)

// fakeNodes runs kwok, which simulates nodes and reports the status of their Pods.
func (w *world) fakeNodes(count int) {
	t := w.t
	t.Helper()
	for i := range count {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("fake-%d", i), Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}}}
		node.Status.Capacity = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("110"),
		}
		node.Status.Allocatable = node.Status.Capacity
		require.NoError(t, w.api.Post().Resource("nodes").Body(node).Do(t.Context()).Error())
		t.Cleanup(func() {
			assert.NoError(t, w.api.Delete().Resource("nodes").Name(node.Name).Do(context.Background()).Error())
		})
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "kwok.log"))
	require.NoError(t, err)
	kwok := exec.Command(os.Getenv("WISBOX_KWOK"), "--kubeconfig", hosttest.Kubeconfig(t), "--manage-all-nodes=false", "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake", "--v=WARN") //nolint:gosec // the tester's own
	kwok.Stdout, kwok.Stderr = log, log
	require.NoError(t, kwok.Start())
	t.Cleanup(func() {
		_ = kwok.Process.Kill()
		_ = kwok.Wait()
		raw, _ := os.ReadFile(log.Name())
		if t.Failed() {
			t.Logf("the log of kwok:\n%.4000s", raw)
		}
		_ = log.Close()
	})
	require.Eventually(t, func() bool {
		nodes := &corev1.NodeList{}
		ready := 0
		if w.api.Get().Resource("nodes").Do(t.Context()).Into(nodes) != nil {
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
	}, guard, 100*time.Millisecond)
}

// kwok is a world with fake nodes, whose clients connect through a front.
type kwok struct {
	*world
	front string // its URL
}

func newKwok(t *testing.T) *kwok {
	t.Helper()
	if os.Getenv("WISBOX_KWOK") == "" {
		t.Skip("make test-kwok does this")
	}
	k := &kwok{world: newWorld(t)}
	k.fakeNodes(12)
	k.front = startFront(t, hosttest.Kubeconfig(t))
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: k.front}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{}
	config.Contexts["kwok"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	require.NoError(t, clientcmd.WriteToFile(*config, k.config))
	return k
}

// seen returns what the front has seen.
func (k *kwok) seen() (s seen) {
	k.t.Helper()
	res, err := http.Get(k.front + "/seen")
	require.NoError(k.t, err)
	defer res.Body.Close()
	require.NoError(k.t, json.NewDecoder(res.Body).Decode(&s))
	return s
}

// left returns the number of Pods, including those that are being deleted.
func (k *kwok) left() int {
	k.t.Helper()
	all := &corev1.PodList{}
	require.NoError(k.t, k.api.Get().Namespace(k.name).Resource("pods").Do(k.t.Context()).Into(all))
	return len(all.Items)
}

// asked returns the number of requests per session since before.
func (k *kwok) asked(before seen) (text string, per map[string]float64) {
	k.t.Helper()
	per, now := map[string]float64{}, k.seen()
	for _, verb := range slices.Sorted(maps.Keys(now.Asked)) {
		if n := now.Asked[verb] - before.Asked[verb]; n > 0 {
			per[verb] = float64(n) / sessions
			text += fmt.Sprintf(" %s %.3f", verb, per[verb])
		}
	}
	return text, per
}

var requestTotal = regexp.MustCompile(`^apiserver_request_total\{.*[,{]resource="([a-z]*)".*,subresource="([a-z]*)",verb="(?:POST|PUT|PATCH|APPLY|DELETE)".*\} ([0-9.e+]+)$`)

// writes counts the writes to Pods and to events about them that the API server has answered,
// for all clients.
func (k *kwok) writes() map[string]float64 {
	k.t.Helper()
	raw, err := k.api.Get().AbsPath("/metrics").Do(k.t.Context()).Raw()
	require.NoError(k.t, err)
	found := map[string]float64{}
	lines := bufio.NewScanner(strings.NewReader(string(raw)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m := requestTotal.FindStringSubmatch(lines.Text()); m != nil && (m[1] == "pods" || m[1] == "events") {
			n, err := strconv.ParseFloat(m[3], 64)
			require.NoError(k.t, err)
			found[strings.TrimSuffix(m[1]+"/"+m[2], "/")] += n
		}
	}
	return found
}

// written returns the number of writes per session since before.
func (k *kwok) written(before map[string]float64) (text string, total float64) {
	k.t.Helper()
	now := k.writes()
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if n := (now[name] - before[name]) / sessions; n > 0 {
			total += n
			text += fmt.Sprintf(" %s %.2f", name, n)
		}
	}
	return text, total
}

// memory returns the bytes of the live heap and of the stacks of this process.
func memory() int64 {
	for range 3 { // the first frees objects with finalizers, the next what these held
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse) //nolint:gosec // far below
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// each calls do for each session, for several at once.
func each(t *testing.T, what string, do func(i int) error) {
	t.Helper()
	var all errgroup.Group
	all.SetLimit(atOnce)
	began := time.Now()
	for i := range sessions {
		all.Go(func() error { return do(i) })
	}
	require.NoError(t, all.Wait())
	took := time.Since(began)
	t.Logf("%s: %d in %s (%.0f a second)", what, sessions, took.Round(time.Second), sessions/took.Seconds())
}

// TestAThousandSessionsOfAClient opens and ends a thousand sessions on nodes simulated by kwok,
// like a client with a kubeconfig. Its memory must not grow with them. The test also counts the
// API server's writes per session.
func TestAThousandSessionsOfAClient(t *testing.T) {
	k := newKwok(t)
	p, err := cluster.New("kwok", k.name, &cluster.Options{Kubeconfig: k.config})
	require.NoError(t, err)
	defer p.Close()
	name := func(i int) string { return fmt.Sprintf("kwok-%d", i) }
	open := func(i int) error {
		_, err := p.Create(t.Context(), cluster.PodOptions{Name: name(i), Image: "localhost/wisbox-pod:latest", Pull: cluster.PullNever})
		return err
	}
	listed := func() int {
		all, err := p.List(t.Context())
		require.NoError(t, err)
		return len(all)
	}
	require.NoError(t, open(sessions)) // warm
	_, err = p.Remove(t.Context(), name(sessions))
	require.NoError(t, err)
	asked, written, first := k.seen(), k.writes(), memory()

	each(t, "open", open)
	opened := memory()
	assert.Equal(t, sessions, listed())
	each(t, "end", func(i int) error { _, err := p.Remove(t.Context(), name(i)); return err })
	last := memory()
	assert.Zero(t, listed())

	text, per := k.asked(asked)
	t.Logf("the client's requests, for each:%s", text)
	text, total := k.written(written)
	t.Logf("writes of all, for each: %.2f (%s)", total, text)
	t.Logf("the client's memory: %s before, %s with all open, %s after", mib(first), mib(opened), mib(last))
	assert.Less(t, opened-first, int64(memorySlack), "memory grows with sessions that are open")
	assert.Less(t, last-first, int64(memorySlack), "memory stays of sessions that have ended")
	assert.InDelta(t, 1, per[http.MethodPost], 0)
	assert.InDelta(t, 1, per[http.MethodDelete], 0)
	assert.Zero(t, per[http.MethodPatch])
	assert.Less(t, total, 12.0, "docs/cluster.md counts 12 with a real kubelet")
}

// replica is a server in this process.
type replica struct {
	k   *kwok
	url string
	key string
}

// replicas starts servers of one namespace. Their key may have limit sandboxes.
func (k *kwok) replicas(count, limit int) []*replica {
	t := k.t
	t.Helper()
	dir := t.TempDir()
	keys, err := serve.KeysOf(dir)
	require.NoError(t, err)
	key, _, err := keys.Create(t.Context(), serve.KeyOptions{Sandboxes: limit, Creations: 1 << 20})
	require.NoError(t, err)
	t.Setenv("KUBECONFIG", k.config)
	all := make([]*replica, count)
	for i := range all {
		all[i] = k.replica(key, filepath.Join(dir, "keys.json"))
	}
	return all
}

func (k *kwok) replica(key, keys string) *replica {
	t := k.t
	t.Helper()
	kept := &safe{}
	log := slog.New(slog.NewTextHandler(kept, &slog.HandlerOptions{Level: slog.LevelWarn}))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of a server:\n%.4000s", kept)
		}
	})
	m, err := wisbox.NewManager(t.Context(), &wisbox.Options{Far: "kube:kwok/" + k.name, CacheDir: t.TempDir(), ClusterError: serve.HideCluster(log)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	s, err := serve.New(t.Context(), &serve.Options{
		Manager: m, Dir: t.TempDir(), KeysFile: keys, Secret: []byte(k.secret), Log: log,
		Session: wisbox.SessionOptions{Limits: sandbox.Limits{Memory: 512 << 20, Disk: 64 << 20}},
	})
	require.NoError(t, err)
	l, err := s.Listen("127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
		assert.NoError(t, s.Close())
	})
	return &replica{k, "http://" + l.Addr().String(), key}
}

// ask sends a request to the control API. The error is for another status than want.
func (r *replica) ask(method, path, body string, want int) (http.Header, []byte, error) {
	ctx, cancel := context.WithTimeout(r.k.t.Context(), guard)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("X-API-KEY", r.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != want {
		err = fmt.Errorf("%s %s: %s: %s", method, path, res.Status, raw)
	}
	return res.Header, raw, err
}

// ids returns the IDs of all sandboxes that a server lists, sorted.
func (r *replica) ids() (ids []string) {
	r.k.t.Helper()
	for next := ""; ; {
		head, raw, err := r.ask("GET", "/v2/sandboxes?nextToken="+next, "", http.StatusOK)
		require.NoError(r.k.t, err)
		var page []struct{ SandboxID string }
		require.NoError(r.k.t, json.Unmarshal(raw, &page))
		for _, one := range page {
			ids = append(ids, one.SandboxID)
		}
		if next = head.Get("X-Next-Token"); next == "" {
			slices.Sort(ids)
			return ids
		}
	}
}

// TestAThousandSessionsOfTheGateway opens and ends a thousand sandboxes with two servers of one
// namespace, twice. Each sandbox is created, extended and killed by different servers, and each
// server sees all of them. The nodes are simulated by kwok, and a stand-in answers in the Pods;
// everything else is what wisbox serve does. The servers' memory must not grow from one thousand
// to the next.
func TestAThousandSessionsOfTheGateway(t *testing.T) {
	k := newKwok(t)
	servers := k.replicas(2, sessions)
	at := func(i int) *replica { return servers[i%len(servers)] }
	ids := make([]string, sessions)
	open := func(i int) error {
		_, raw, err := at(i).ask("POST", "/v2/sandboxes", `{"timeout":3000}`, http.StatusCreated)
		if err != nil {
			return err
		}
		var made struct{ SandboxID string }
		err = json.Unmarshal(raw, &made)
		ids[i] = made.SandboxID
		return err
	}
	extend := func(i int) error {
		_, _, err := at(i+1).ask("POST", "/sandboxes/"+ids[i]+"/timeout", `{"timeout":6000}`, http.StatusNoContent)
		return err
	}
	end := func(i int) error {
		_, _, err := at(i+1).ask("DELETE", "/sandboxes/"+ids[i], "", http.StatusNoContent)
		return err
	}
	// over waits until both servers have let go of all sandboxes, and their Pods are gone.
	over := func() {
		require.Eventually(t, func() bool { return k.left() == 0 && k.seen().Relays == 0 }, guard, 100*time.Millisecond)
		for _, s := range servers {
			require.Eventually(t, func() bool { return len(s.ids()) == 0 }, guard, 100*time.Millisecond)
		}
		http.DefaultClient.CloseIdleConnections()
	}
	require.NoError(t, open(0)) // warm
	require.NoError(t, end(0))
	over()

	var opened, ended [2]int64
	for round := range opened {
		asked, written, first, goroutines := k.seen(), k.writes(), memory(), runtime.NumGoroutine()
		each(t, "open", open)
		for _, s := range servers {
			want := slices.Sorted(slices.Values(ids))
			require.Eventually(t, func() bool { return slices.Equal(want, s.ids()) }, guard, 100*time.Millisecond, "each server sees all")
			_, _, err := s.ask("POST", "/v2/sandboxes", `{"timeout":3000}`, http.StatusTooManyRequests)
			require.NoError(t, err, "the quota is full at each server")
		}
		assert.Len(t, k.pods(), sessions)
		opened[round] = memory()
		each(t, "extend", extend)
		each(t, "end", end)
		over()
		ended[round] = memory()

		text, per := k.asked(asked)
		t.Logf("the servers' requests, for each:%s", text)
		text, total := k.written(written)
		t.Logf("writes of all, for each: %.2f (%s)", total, text)
		t.Logf("the servers' memory: %s before, %s with all open, %s after; goroutines %d before, %d after", mib(first), mib(opened[round]), mib(ended[round]), goroutines, runtime.NumGoroutine())
		assert.InDelta(t, 1, per[http.MethodPost], 0)
		assert.InDelta(t, 2, per[http.MethodPatch], 0, "that it runs, and its new end")
		assert.InDelta(t, 1, per[http.MethodDelete], 0)
		assert.InDelta(t, 1, per["EXEC"], 0)
		assert.InDelta(t, 5, per[http.MethodGet], 0.5, "docs/adr/0038")
		assert.Less(t, total, 12.0, "docs/cluster.md counts 9")
		assert.Less(t, (opened[round]-first)/sessions, int64(512<<10), "docs/cluster.md: half a MiB for each connected sandbox")
	}
	assert.Less(t, ended[1]-ended[0], int64(memorySlack), "memory stays of sandboxes that have ended")
	assert.Less(t, opened[1]-opened[0], int64(memorySlack), "memory grows with sandboxes that have ended")
}
