// Package gateway tests `wisbox serve` on a real Kubernetes cluster: several servers that share a
// namespace, and E2B's published SDK. make test-cluster runs the tests.
package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/wisbox/wisbox/internal/hosttest"
)

const guard = 60 * time.Second // avoids hanging forever

// world is a namespace and the settings that its servers share.
type world struct {
	t      *testing.T
	api    *rest.RESTClient
	proxy  *hosttest.Proxy // between the servers and the API server
	config string
	name   string
	place  string
	secret string
	keys   []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	path := hosttest.Kubeconfig(t)
	raw, err := clientcmd.LoadFromFile(path)
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, serializer.NewCodecFactory(scheme).WithoutConversion()
	w := &world{t: t, config: filepath.Join(t.TempDir(), "kubeconfig"), secret: random(), keys: []string{"e2b_" + random(), "e2b_" + random()}}
	w.api, err = rest.RESTClientFor(config)
	require.NoError(t, err)
	server := raw.Clusters[raw.Contexts[raw.CurrentContext].Cluster]
	w.proxy = hosttest.NewProxy(t, strings.TrimPrefix(server.Server, "https://"))
	server.Server = "https://" + w.proxy.Address
	require.NoError(t, clientcmd.WriteToFile(*raw, w.config))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "wisbox-test-"}}
	require.NoError(t, w.api.Post().Resource("namespaces").Body(ns).Do(t.Context()).Into(ns))
	w.name, w.place = ns.Name, "kube:"+raw.CurrentContext+"/"+ns.Name
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), guard)
		defer cancel()
		require.NoError(t, w.api.Delete().Resource("namespaces").Name(ns.Name).Do(ctx).Error())
	})
	require.Eventually(t, func() bool { // Pods need the service account
		return w.api.Get().Namespace(w.name).Resource("serviceaccounts").Name("default").Do(t.Context()).Error() == nil
	}, guard, 50*time.Millisecond)
	return w
}

func random() string {
	raw := make([]byte, 20)
	_, _ = rand.Read(raw)
	return hex.EncodeToString(raw)
}

func (w *world) pods() []corev1.Pod {
	w.t.Helper()
	all := &corev1.PodList{}
	require.NoError(w.t, w.api.Get().Namespace(w.name).Resource("pods").Do(w.t.Context()).Into(all))
	return slices.DeleteFunc(all.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// server is a running `wisbox serve`.
type server struct {
	w    *world
	url  string
	cmd  *exec.Cmd
	log  *safe
	read chan struct{}
}

// safe is a log that may be read while it is written.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (w *world) command(cache string, args ...string) *exec.Cmd {
	cmd := exec.Command(hosttest.Binary(w.t), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.config, "WISBOX_CACHE="+cache, "WISBOX_SERVE_SECRET="+w.secret, "WISBOX_SERVE_KEYS="+strings.Join(w.keys, ","))
	return cmd
}

// serve starts a server, and waits until it logs its address.
func (w *world) serve(flags ...string) *server {
	w.t.Helper()
	s := &server{w: w, log: &safe{}, read: make(chan struct{})}
	s.cmd = w.command(w.t.TempDir(), append([]string{"serve", "--remote", w.place, "--listen", "127.0.0.1:0"}, flags...)...)
	pipe, err := s.cmd.StderrPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, s.cmd.Start())
	lines := bufio.NewReader(io.TeeReader(pipe, s.log))
	for s.url == "" {
		line, err := lines.ReadString('\n')
		require.NoError(w.t, err, "%s", s.log)
		_, after, found := strings.Cut(line, "serving on ")
		if found {
			s.url = strings.TrimSpace(after)
		}
	}
	go func() {
		defer close(s.read)
		_, _ = io.Copy(io.Discard, lines)
	}()
	w.t.Cleanup(func() {
		s.kill()
		if w.t.Failed() {
			w.t.Logf("the log of %s:\n%s", s.url, s.log)
		}
	})
	return s
}

func (s *server) kill() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Kill()
		<-s.read
		_ = s.cmd.Wait()
	}
}

// ask sends a request to the control API.
func (s *server) ask(key, method, path, body string) (*http.Response, string) {
	t := s.w.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("X-API-KEY", key)
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, string(text)
}

func (s *server) create(key string) (id, token string) {
	s.w.t.Helper()
	res, body := s.ask(key, "POST", "/v2/sandboxes", `{"timeout":300}`)
	require.Equal(s.w.t, http.StatusCreated, res.StatusCode, body)
	var made struct{ SandboxID, EnvdAccessToken string }
	require.NoError(s.w.t, json.Unmarshal([]byte(body), &made))
	return made.SandboxID, made.EnvdAccessToken
}

// status returns the HTTP status of a request for a sandbox.
func (s *server) status(key, id string) int {
	s.w.t.Helper()
	res, _ := s.ask(key, "GET", "/sandboxes/"+id, "")
	return res.StatusCode
}

// envd sends a request to a sandbox's own API.
func (s *server) envd(ctx context.Context, id, token, path, body string) (*http.Response, error) {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("E2b-Sandbox-Id", id)
	r.Header.Set("E2b-Sandbox-Port", "49983")
	r.Header.Set("X-Access-Token", token)
	r.Header.Set("Content-Type", "application/connect+json")
	return http.DefaultClient.Do(r)
}

func (s *server) health(id string) int {
	s.w.t.Helper()
	res, err := s.envd(s.w.t.Context(), id, "", "/health", "")
	require.NoError(s.w.t, err)
	defer res.Body.Close()
	return res.StatusCode
}

// start starts a program. The response's body streams its messages.
func (s *server) start(id, token, command string) *http.Response {
	t := s.w.t
	t.Helper()
	text := fmt.Sprintf(`{"process":{"cmd":"/bin/bash","args":["-c",%q]}}`, command)
	envelope := string([]byte{0, 0, 0, byte(len(text) >> 8), byte(len(text))}) + text
	res, err := s.envd(t.Context(), id, token, "/process.Process/Start", envelope)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode)
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// TestTheSDKWithTwoServers checks that each server sees the other's sandboxes, and that killing one loses
// nothing.
func TestTheSDKWithTwoServers(t *testing.T) {
	w := newWorld(t)
	a, b := w.serve(), w.serve()
	dir := filepath.Dir(hosttest.NodePackages(t, "../serve/testdata/package.json"))
	text, err := os.ReadFile("testdata/gateway.mjs")
	require.NoError(t, err)
	beside := filepath.Join(dir, random()[:8]+"-gateway.mjs") // node looks for packages here
	require.NoError(t, os.WriteFile(beside, text, 0o600))
	defer os.Remove(beside)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "node_modules/node/bin/node"), beside, a.url, b.url, w.keys[1], fmt.Sprint(a.cmd.Process.Pid))
	cmd.Env = append(os.Environ(), "E2B_API_KEY="+w.keys[0], "E2B_DOMAIN=localhost")
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "done")
	t.Logf("%s", out)
	require.Eventually(t, func() bool { return len(w.pods()) == 0 }, guard, 20*time.Millisecond, "what was killed is gone")
	assert.NotContains(t, a.log.String()+b.log.String(), w.keys[0])
}

// TestThePodsOfAServer checks that labels find a key's Pods, and that nothing on them reveals a sandbox or
// gives access to it.
func TestThePodsOfAServer(t *testing.T) {
	w := newWorld(t)
	a, b := w.serve(), w.serve()
	res, body := a.ask(w.keys[0], "POST", "/v2/sandboxes", `{"timeout":300,"envVars":{"TOKEN":"verysecret"},"metadata":{"of":"verysecret"}}`)
	require.Equal(t, http.StatusCreated, res.StatusCode, body)
	var made struct{ SandboxID, EnvdAccessToken string }
	require.NoError(t, json.Unmarshal([]byte(body), &made))
	pods := w.pods()
	require.Len(t, pods, 1)
	raw, err := json.Marshal(pods[0])
	require.NoError(t, err)
	assert.NotEmpty(t, pods[0].Labels["wisbox.dev/owner"])
	for _, word := range []string{"verysecret", made.SandboxID, made.EnvdAccessToken, w.secret} {
		assert.NotContains(t, string(raw), word)
	}
	assert.EqualValues(t, 24*3600+60, *pods[0].Spec.ActiveDeadlineSeconds, "the cluster ends it without any server")

	// Deleting the Pod disconnects its clients at both servers.
	streams := []*http.Response{a.start(made.SandboxID, made.EnvdAccessToken, "sleep 600"), b.start(made.SandboxID, made.EnvdAccessToken, "sleep 600")}
	require.NoError(t, w.api.Delete().Namespace(w.name).Resource("pods").Name(pods[0].Name).Do(t.Context()).Error())
	for _, s := range streams {
		_, err := io.ReadAll(s.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "no end of its own")
	}
	for _, s := range []*server{a, b} {
		assert.Equal(t, http.StatusBadGateway, s.health(made.SandboxID))
		assert.Equal(t, http.StatusNotFound, s.status(w.keys[0], made.SandboxID))
	}
}

// TestAQuotaIsTheKeysAtAllServersTogether checks eight concurrent creations against a quota of two.
func TestAQuotaIsTheKeysAtAllServersTogether(t *testing.T) {
	w := newWorld(t)
	cache := t.TempDir()
	out, err := w.command(cache, "serve", "key", "create", "--sandboxes", "2").Output()
	require.NoError(t, err)
	key, file := strings.TrimSpace(string(out)), filepath.Join(cache, "serve", "keys.json")
	a, b := w.serve("--keys", file), w.serve("--keys", file)
	codes := make([]int, 8)
	var all sync.WaitGroup
	for i := range codes {
		all.Go(func() {
			res, _ := []*server{a, b}[i%2].ask(key, "POST", "/v2/sandboxes", `{"timeout":300}`)
			codes[i] = res.StatusCode
		})
	}
	all.Wait()
	slices.Sort(codes)
	assert.Equal(t, []int{201, 201, 429, 429, 429, 429, 429, 429}, codes)
	require.Eventually(t, func() bool { return len(w.pods()) == 2 }, guard, 20*time.Millisecond, "the others are gone")
	for _, s := range []*server{a, b} {
		_, body := s.ask(key, "GET", "/v2/sandboxes", "")
		assert.Equal(t, 2, strings.Count(body, `"sandboxID"`), body)
	}
}

// TestAnAPIServerThatIsAway checks that an outage leaves nothing half created, and that work continues
// after it.
func TestAnAPIServerThatIsAway(t *testing.T) {
	w := newWorld(t)
	a, b := w.serve(), w.serve()
	id, token := a.create(w.keys[0])
	require.Equal(t, http.StatusNoContent, b.health(id))
	running := b.start(id, token, "sleep 600; echo ended")
	first := make([]byte, 5)
	_, err := io.ReadFull(running.Body, first)
	require.NoError(t, err)

	w.proxy.Stop()
	for path, body := range map[string]string{"/v2/sandboxes": `{"timeout":300}`, "/sandboxes/" + id + "/timeout": `{"timeout":900}`} {
		res, text := a.ask(w.keys[0], "POST", path, body)
		assert.Equal(t, http.StatusServiceUnavailable, res.StatusCode, text)
		assert.NotEmpty(t, res.Header.Get("Retry-After"))
		assert.NotContains(t, text, "127.0.0.1")
	}
	res, text := b.ask(w.keys[0], "DELETE", "/sandboxes/"+id, "")
	assert.Equal(t, http.StatusServiceUnavailable, res.StatusCode, text)
	res, err = a.envd(t.Context(), id, token, "/files?path=/etc/hostname&username=user", "")
	require.NoError(t, err)
	said, err := io.ReadAll(res.Body)
	require.NoError(t, errors.Join(err, res.Body.Close()))
	assert.NotEqual(t, http.StatusOK, res.StatusCode)
	for _, secret := range []string{"127.0.0.1", "kubectl", w.name, "wisbox-", "Pod", "context", "API server"} {
		assert.NotContains(t, string(said), secret)
	}
	w.proxy.Start()

	for _, s := range []*server{a, b} {
		require.Eventually(t, func() bool { return s.status(w.keys[0], id) == http.StatusOK && s.health(id) == http.StatusNoContent }, guard, 50*time.Millisecond)
		require.Eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), guard)
			defer cancel()
			res, err := s.envd(ctx, id, token, "/files?path=/etc/hostname&username=user", "")
			require.NoError(t, err)
			defer res.Body.Close()
			return res.StatusCode == http.StatusOK
		}, guard, 50*time.Millisecond)
	}
	assert.Len(t, w.pods(), 1)
	another, _ := b.create(w.keys[0]) // the watches work again
	require.Eventually(t, func() bool {
		_, body := a.ask(w.keys[0], "GET", "/v2/sandboxes", "")
		return strings.Contains(body, another)
	}, guard, 50*time.Millisecond)
}

// TestAServerThatIsKilledWhileItMakesASandbox checks that the record is on the Pod from its creation.
func TestAServerThatIsKilledWhileItMakesASandbox(t *testing.T) {
	w := newWorld(t)
	a := w.serve()
	over := make(chan struct{})
	go func() {
		defer close(over)
		r, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, a.url+"/v2/sandboxes", strings.NewReader(`{"timeout":300}`))
		r.Header.Set("X-API-KEY", w.keys[0])
		if res, err := http.DefaultClient.Do(r); err == nil {
			_ = res.Body.Close()
		}
	}()
	require.Eventually(t, func() bool { return len(w.pods()) == 1 }, guard, time.Millisecond)
	a.kill()
	<-over
	pods := w.pods()
	require.Len(t, pods, 1)
	assert.NotEmpty(t, pods[0].Annotations["wisbox.dev/record"])
	_, body := w.serve().ask(w.keys[0], "GET", "/v2/sandboxes", "")
	assert.Equal(t, "[]", strings.TrimSpace(body), "nobody has got it")
}

// TestWhatServersOfAClusterRefuse checks that each error names an alternative.
func TestWhatServersOfAClusterRefuse(t *testing.T) {
	w := newWorld(t)
	for flag, word := range map[string]string{
		"--ready=1": "takes a second", "--allow-builds": "--image", "--allow-internet": "NetworkPolicy",
		"--total-disk=1g": "ResourceQuota", "--ui-listen=127.0.0.1:0": "wisbox ls",
	} {
		out, err := w.command(t.TempDir(), "serve", "--remote", w.place, flag).CombinedOutput()
		require.Error(t, err)
		assert.Contains(t, string(out), word)
	}
	w.secret = "short"
	out, err := w.command(t.TempDir(), "serve", "--remote", w.place).CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "head -c 32 /dev/urandom")
}
