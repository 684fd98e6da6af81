// Package pods tests the client's side of sessions on a real Kubernetes cluster: the command line and the
// library, against Pods in a new namespace for each test.
package pods

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/wisbox/wisbox"
	_ "github.com/wisbox/wisbox/cluster/kubernetes"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// namespace is a namespace of a real cluster, deleted after the test.
type namespace struct {
	t       *testing.T
	api     *rest.RESTClient
	config  *clientcmdapi.Config
	name    string
	address string
	dir     string // the client's directory
}

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	path := hosttest.Kubeconfig(t)
	n := &namespace{t: t, dir: t.TempDir()}
	var err error
	n.config, err = clientcmd.LoadFromFile(path)
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, serializer.NewCodecFactory(scheme).WithoutConversion()
	n.api, err = rest.RESTClientFor(config)
	require.NoError(t, err)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "wisbox-test-"}}
	require.NoError(t, n.api.Post().Resource("namespaces").Body(ns).Do(t.Context()).Into(ns))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, n.api.Delete().Resource("namespaces").Name(ns.Name).Do(ctx).Error())
	})
	n.name, n.address = ns.Name, "kube:"+n.config.CurrentContext+"/"+ns.Name
	require.Eventually(t, func() bool { // Pods need the service account
		return n.api.Get().Namespace(n.name).Resource("serviceaccounts").Name("default").Do(t.Context()).Error() == nil
	}, 20*time.Second, 50*time.Millisecond)
	return n
}

// manager returns a Manager with its own kubeconfig.
func (n *namespace) manager(config *clientcmdapi.Config) *wisbox.Manager {
	n.t.Helper()
	path := filepath.Join(n.t.TempDir(), "kubeconfig")
	require.NoError(n.t, clientcmd.WriteToFile(*config, path))
	n.t.Setenv("KUBECONFIG", path)
	m, err := wisbox.NewManager(n.t.Context(), &wisbox.Options{Far: n.address, CacheDir: n.t.TempDir()})
	require.NoError(n.t, err)
	n.t.Cleanup(func() { require.NoError(n.t, m.Close()) })
	return m
}

// proxied returns a proxy in front of the API server, and a kubeconfig that uses it.
func (n *namespace) proxied() (*hosttest.Proxy, *clientcmdapi.Config) {
	n.t.Helper()
	config := n.config.DeepCopy()
	server := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	proxy := hosttest.NewProxy(n.t, strings.TrimPrefix(server.Server, "https://"))
	server.Server = "https://" + proxy.Address
	return proxy, config
}

// empty checks that the namespace has no Pod.
func (n *namespace) empty() {
	n.t.Helper()
	all := &corev1.PodList{}
	require.NoError(n.t, n.api.Get().Namespace(n.name).Resource("pods").Do(n.t.Context()).Into(all))
	assert.Empty(n.t, all.Items)
}

// run runs wisbox as a user who has selected the cluster.
func (n *namespace) run(args ...string) (stdout, stderr string, code int) {
	n.t.Helper()
	cmd := exec.CommandContext(n.t.Context(), hosttest.Binary(n.t), args...)
	cmd.Dir = n.dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+hosttest.Kubeconfig(n.t), "WISBOX_REMOTE="+n.address, "WISBOX_CACHE="+filepath.Join(n.dir, "cache"), "XDG_CONFIG_HOME="+n.dir)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// ok runs a command that must succeed, and returns its output.
func (n *namespace) ok(args ...string) string {
	n.t.Helper()
	stdout, stderr, code := n.run(args...)
	require.Zero(n.t, code, "wisbox %s: %s%s", strings.Join(args, " "), stdout, stderr)
	return stdout
}

func (n *namespace) write(name, content string) {
	n.t.Helper()
	path := filepath.Join(n.dir, name)
	require.NoError(n.t, os.MkdirAll(filepath.Dir(path), 0o755))     //nolint:gosec // a user's files
	require.NoError(n.t, os.WriteFile(path, []byte(content), 0o644)) //nolint:gosec // a user's files
}

// TestTheCommandLineOnKubernetes follows the steps of docs/cluster.md and checks the promises of far.md.
func TestTheCommandLineOnKubernetes(t *testing.T) {
	n := newNamespace(t)
	n.write("src/a", "one\n")
	assert.Equal(t, "box\n", n.ok("session", "create", "box", "--mount", "src", "--ttl", "1h"))
	_, stderr, code := n.run("session", "create", "box")
	assert.NotZero(t, code)
	assert.Contains(t, stderr, `exists: there is a session "box" already`)
	assert.Regexp(t, `box +(running|stopped) +kept`, n.ok("ls"))

	stdout, stderr, code := n.run("exec", "box", "--", "sh", "-c", "id -u; cat a; echo two >b; echo oops >&2; exit 7")
	assert.Equal(t, "1000\none\n", stdout)
	assert.Equal(t, "oops\n", stderr)
	assert.Equal(t, 7, code)
	assert.Equal(t, "two\n", n.ok("cp", "box:/b", "-"))
	n.ok("cp", "src/a", "box:/sub/c")
	assert.Contains(t, n.ok("diff", "box"), "A  b")
	n.ok("apply", "box", "b")
	assert.FileExists(t, filepath.Join(n.dir, "src", "b"))
	n.ok("undo", "box")
	assert.NotContains(t, n.ok("diff", "box"), "sub/c")

	id := strings.TrimSpace(n.ok("exec", "-d", "box", "--", "sh", "-c", "echo begun; sleep 1000"))
	require.Eventually(t, func() bool { return n.ok("logs", "box", id) == "begun\n" }, time.Minute, 100*time.Millisecond)
	assert.Contains(t, n.ok("ps", "box"), id)
	assert.Contains(t, n.ok("ps"), id, "of all sessions")
	n.ok("kill", "box", id)
	assert.Contains(t, n.ok("log", "box"), "diff")
	assert.Contains(t, n.ok("session", "inspect", "box"), "container  wisbox-box (running")

	n.ok("session", "save", "box", "box.tar")
	n.ok("session", "load", "box.tar", "twin")
	assert.Equal(t, "one\n", n.ok("exec", "twin", "--", "cat", "a"))
	for _, refused := range [][]string{{"session", "clone", "box", "third"}, {"rename", "box", "third"}, {"session", "create", "x", "--allow", "public"}, {"doctor"}} {
		_, stderr, code := n.run(refused...)
		assert.NotZero(t, code, "%v", refused)
		assert.Contains(t, stderr, "on Kubernetes", "%v", refused)
	}
	for _, rule := range []string{"allow", "deny"} {
		_, stderr, code := n.run("session", rule, "twin", "example.com")
		assert.NotZero(t, code)
		assert.Contains(t, stderr, rule+" isn't supported on Kubernetes yet; its programs share the Pod's network")
	}
	stdout, _, code = n.run("run", "--mount", "src", "--", "sh", "-c", "ls; exit 3")
	assert.Equal(t, "a\nb\n", stdout)
	assert.Equal(t, 3, code)
	n.ok("rm", "box", "twin")
	assert.Contains(t, n.ok("ls"), "there are no sessions")
	n.empty()
	_, stderr, code = n.run("exec", "box", "--", "true")
	assert.NotZero(t, code)
	assert.Contains(t, stderr, `session "box" not found`)
}

// TestAHomeInAPod checks that /home/user and /workspace are one directory, and that programs have a user
// name.
func TestAHomeInAPod(t *testing.T) {
	n := newNamespace(t)
	m := n.manager(n.config)
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: "home", Kept: true, UserHome: true})
	require.NoError(t, err)
	_, out := output(t, s, `cd; pwd; echo "$USER $(id -un) $(id -gn)"; echo one >a; cat /workspace/a; rm /workspace/a; ls -A ~; { echo x >>/etc/passwd; } 2>&1 | grep -c denied`)
	assert.Equal(t, "/home/user\nuser user user\none\n1\n", out)
	_, err = s.Call(t.Context(), "write_file", json.RawMessage(`{"file_path":"b","content":"of a tool"}`))
	require.NoError(t, err)
	_, out = output(t, s, "cat ~/b")
	assert.Equal(t, "of a tool", out)
	require.NoError(t, s.Reset(t.Context()))
	_, out = output(t, s, "ls -A ~; echo reset >~/c; cat /workspace/c")
	assert.Equal(t, "reset\n", out)
	again, err := n.manager(n.config).Attach(t.Context(), "home")
	require.NoError(t, err)
	_, out = output(t, again, "cat ~/c")
	assert.Equal(t, "reset\n", out)
	require.NoError(t, m.Remove(t.Context(), "home"))
}

// TestAnAPIServerThatRestartsInACall checks that the call reports that it may have begun, and that the
// session goes on.
func TestAnAPIServerThatRestartsInACall(t *testing.T) {
	n := newNamespace(t)
	proxy, through := n.proxied()
	m := n.manager(through)
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true})
	require.NoError(t, err)
	cut := running(t, s)
	proxy.Stop()
	proxy.Start()
	err = <-cut
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
	require.ErrorContains(t, err, "the connection to the other machine broke during the call: it may have begun there")
	res, out := output(t, s, "cat f; pgrep -c sleep")
	assert.Equal(t, "begun\n0\n", out, "the program of the call has ended, its files are there")
	assert.NotZero(t, res.ExitCode)

	proxy.Stop()
	waits := make(chan string, 1)
	go func() {
		_, out := output(t, s, "echo again")
		waits <- out
	}()
	proxy.Start()
	assert.Equal(t, "again\n", <-waits)
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, m.Remove(t.Context(), "box"))
}

// TestAPodThatIsLost checks that open handles report the loss, and never use a new Pod of the same name.
func TestAPodThatIsLost(t *testing.T) {
	n := newNamespace(t)
	mine, others := n.manager(n.config), n.manager(n.config)
	s, err := mine.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true})
	require.NoError(t, err)
	_, out := output(t, s, "echo here")
	assert.Equal(t, "here\n", out)
	before := n.pod("box")
	require.NoError(t, others.Remove(t.Context(), "box"))
	_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	assert.Equal(t, tool.Closed, tool.KindOf(err))
	require.ErrorContains(t, err, "the Pod of session box was deleted, and its files are lost")

	before.ObjectMeta = metav1.ObjectMeta{Name: before.Name, Namespace: before.Namespace, Labels: before.Labels}
	before.Spec.NodeName = ""
	require.NoError(t, n.api.Post().Namespace(n.name).Resource("pods").Body(before).Do(t.Context()).Error())
	_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	require.ErrorContains(t, err, "the Pod of session box isn't the one that it was opened with")
	require.Eventually(t, func() bool {
		_, err = others.Attach(t.Context(), "box")
		return tool.KindOf(err) == tool.Closed
	}, time.Minute, 200*time.Millisecond, "%v", err)
	require.ErrorContains(t, err, "the Pod of session box is there, but its session isn't")
	require.NoError(t, others.Remove(t.Context(), "box"))
	again, err := others.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true})
	require.NoError(t, err)
	_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	require.ErrorContains(t, err, "isn't the one that it was opened with")
	_, out = output(t, again, "echo new")
	assert.Equal(t, "new\n", out)
	attached, err := mine.Attach(t.Context(), "box")
	require.NoError(t, err, "the new session is open to all who attach to it now")
	_, out = output(t, attached, "echo new")
	assert.Equal(t, "new\n", out)
	for _, open := range []*wisbox.Session{s, again, attached} {
		_ = open.Close(t.Context())
	}
	require.NoError(t, mine.Remove(t.Context(), "box"))
}

// TestASessionThatEndsLeavesAnotherOneOfItsName checks clients of sessions that aren't kept or fail to
// open: they remove their own Pod, and not another client's newer Pod of the same name.
func TestASessionThatEndsLeavesAnotherOneOfItsName(t *testing.T) {
	n := newNamespace(t)
	mine, others := n.manager(n.config), n.manager(n.config)
	s, err := mine.Open(t.Context(), &wisbox.SessionOptions{Name: "box"})
	require.NoError(t, err)
	require.NoError(t, others.Remove(t.Context(), "box"))
	theirs, err := others.Open(t.Context(), &wisbox.SessionOptions{Name: "box"})
	require.NoError(t, err)
	_ = s.Close(t.Context()) // may report that its Pod is gone
	_, out := output(t, theirs, "echo here")
	assert.Equal(t, "here\n", out)
	require.NoError(t, theirs.Close(t.Context()))

	archive, w := io.Pipe()
	failed := make(chan error, 1)
	go func() {
		_, err := mine.Load(t.Context(), archive, &wisbox.LoadOptions{Name: "box", Kept: true})
		failed <- err
	}()
	_, err = w.Write([]byte("gar")) // read after the connection to its Pod
	require.NoError(t, err)
	require.NoError(t, others.Remove(t.Context(), "box"))
	theirs, err = others.Open(t.Context(), &wisbox.SessionOptions{Name: "box"})
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Error(t, <-failed)
	_, out = output(t, theirs, "echo here")
	assert.Equal(t, "here\n", out)
	require.NoError(t, theirs.Close(t.Context()))
	n.empty()
}

// TestWhatCanNotBeOpenedLeavesNoPod opens a session with options that the holder in the Pod refuses.
func TestWhatCanNotBeOpenedLeavesNoPod(t *testing.T) {
	n := newNamespace(t)
	m := n.manager(n.config)
	_, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true, Strict: true, Limits: sandbox.Limits{PIDs: 100}})
	if err == nil { // the first program reports the refusal
		s, err := m.Attach(t.Context(), "box")
		require.NoError(t, err)
		_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
		require.ErrorContains(t, err, "pids")
		require.NoError(t, s.Close(t.Context()))
		require.NoError(t, m.Remove(t.Context(), "box"))
	}
	_, err = m.Load(t.Context(), strings.NewReader("garbage"), &wisbox.LoadOptions{Name: "box", Kept: true})
	require.Error(t, err)
	n.empty()
}

// output runs a shell command.
func output(t *testing.T, s *wisbox.Session, line string) (sandbox.Result, string) {
	t.Helper()
	var out, errs bytes.Buffer
	res, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", line}, Stdout: &out, Stderr: &errs})
	if !assert.NoError(t, err, fmt.Sprint(line, errs.String())) {
		return sandbox.Result{}, ""
	}
	return res, out.String()
}

// signalled is a writer that signals a write on the channel, without blocking.
type signalled chan struct{}

func (s signalled) Write(p []byte) (int, error) {
	select {
	case s <- struct{}{}:
	default:
	}
	return len(p), nil
}
