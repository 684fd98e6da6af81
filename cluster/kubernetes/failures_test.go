package kubernetes

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/wisbox/wisbox/cluster"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/tool"
)

// says requires an error of a kind that contains the words.
func says(t *testing.T, err error, kind tool.Kind, words ...string) {
	t.Helper()
	require.Error(t, err)
	assert.Equal(t, kind, tool.KindOf(err), "%v", err)
	for _, w := range words {
		assert.ErrorContains(t, err, w)
	}
}

// none requires that no Pod is left.
func (w *world) none(t *testing.T) {
	t.Helper()
	all := &corev1.PodList{}
	require.NoError(t, w.admin.client.Get().Namespace(w.namespace).Resource("pods").Do(t.Context()).Into(all))
	assert.Empty(t, all.Items)
}

func TestAKubeconfigThatCanNotBeUsed(t *testing.T) {
	dir := t.TempDir()
	at := func(content string) *Options {
		path := filepath.Join(dir, "config")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return &Options{Kubeconfig: path}
	}
	_, err := New("prod", "agents", &Options{Kubeconfig: filepath.Join(dir, "none")})
	says(t, err, tool.Unavailable, "there is no kubeconfig on this machine with a context; set KUBECONFIG to its path")
	_, err = New("prod", "agents", at(""))
	says(t, err, tool.Unavailable, "there is no kubeconfig on this machine with a context")
	_, err = New("prod", "agents", at("{garbage"))
	says(t, err, tool.Unavailable, `the kubeconfig can't be used with the context "prod"`)
	const some = `{"contexts":[{"name":"kind-a","context":{"cluster":"a"}},{"name":"b","context":{"cluster":"a"}}],"clusters":[{"name":"a","cluster":{"server":"https://127.0.0.1:1"}}]}`
	_, err = New("prod", "agents", at(some))
	says(t, err, tool.NotFound, `the kubeconfig has no context "prod"; it has: b, kind-a`)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err = New(cluster.InCluster, "agents", at(some))
	says(t, err, tool.Unavailable, "kube:in-cluster is for a process in a Pod", "name a context of a kubeconfig instead")
	_, err = New(cluster.InCluster, "agents", at(strings.NewReplacer("kind-a", cluster.InCluster, `"cluster":"a"`, `"cluster":"none"`).Replace(some)))
	says(t, err, tool.Unavailable, "the kubeconfig can't be used") // the context exists, but its cluster doesn't
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none"))
	_, err = New("prod", "agents", nil)
	says(t, err, tool.Unavailable, "there is no kubeconfig")
	p, err := New("b", "agents", at(some))
	require.NoError(t, err)
	_, err = p.List(t.Context())
	says(t, err, tool.Unavailable, "the API server of context b can't be reached: ", "connection refused; try: kubectl --context b version")
}

// TestRights: the error names the missing right.
func TestRights(t *testing.T) {
	w := newWorld(t, Options{})
	_, err := w.Create(t.Context(), session("box"))
	require.NoError(t, err)
	pod, err := w.Find(t.Context(), "box")
	require.NoError(t, err)

	user := w.user(t, "nobody")
	for _, c := range []struct {
		do   func() error
		says string
	}{
		{func() error { _, err := user.Create(t.Context(), session("other")); return err }, "you may not create pods in the namespace"},
		{func() error { _, err := user.Find(t.Context(), "box"); return err }, "you may not get pods in the namespace"},
		{func() error { _, err := user.List(t.Context()); return err }, "you may not list pods in the namespace"},
		{func() error { _, err := user.Remove(t.Context(), "box"); return err }, "you may not get pods in the namespace"},
	} {
		says(t, c.do(), tool.Permission, c.says, "deploy/role.yaml", "auth can-i")
	}
	w.grant(t, "nobody", "get", "list")
	_, err = user.Relay(t.Context(), pod)
	says(t, err, tool.Permission, "you may not", "pods/exec")
	_, err = user.Remove(t.Context(), "box")
	says(t, err, tool.Permission, "you may not delete pods in the namespace")
	w.grant(t, "nobody", "get", "list", "create", "delete")
	_, err = user.Create(t.Context(), session("other"))
	says(t, err, tool.Permission, "you may not watch pods in the namespace")

	expired := w.config.DeepCopy()
	expired.AuthInfos = map[string]*clientcmdapi.AuthInfo{w.config.Contexts[w.config.CurrentContext].AuthInfo: {Token: "old"}}
	_, err = (&world{config: *expired}).place(t, w.config.CurrentContext, w.namespace, Options{}).List(t.Context())
	says(t, err, tool.Permission, "doesn't accept its credentials", "log in again")
}

// TestWhatANamespaceRefuses: a namespace's quota, its Pod security standard, and a missing
// namespace.
func TestWhatANamespaceRefuses(t *testing.T) {
	w := newWorld(t, Options{})
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"limits.memory": resource.MustParse("1Gi")}}}
	require.NoError(t, w.admin.client.Post().Namespace(w.namespace).Resource("resourcequotas").Body(quota).Do(t.Context()).Error())
	require.Eventually(t, func() bool { // the controller counts first
		return w.admin.client.Get().Namespace(w.namespace).Resource("resourcequotas").Name("small").Do(t.Context()).Into(quota) == nil && len(quota.Status.Hard) > 0
	}, waitTime, tickTime)
	_, err := w.Create(t.Context(), session("box"))
	says(t, err, tool.Limit, "the quota of the namespace "+w.namespace+" is full: small, requested: limits.memory=2Gi, used: limits.memory=0, limited: limits.memory=1Gi; remove sessions")
	require.NoError(t, w.admin.client.Delete().Namespace(w.namespace).Resource("resourcequotas").Name("small").Do(t.Context()).Error())

	standard := func(level string) {
		require.NoError(t, w.admin.client.Patch(types.MergePatchType).Resource("namespaces").Name(w.namespace).
			Body([]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"`+level+`"}}}`)).Do(t.Context()).Error())
	}
	standard("restricted")
	_, err = w.Create(t.Context(), session("box"))
	says(t, err, tool.Permission, "enforces a Pod security standard", "baseline")
	standard("baseline")
	require.Eventually(t, func() bool { // its cache is updated
		_, err = w.Create(t.Context(), session("box"))
		return err == nil
	}, waitTime, tickTime)
	_, err = w.Remove(t.Context(), "box")
	require.NoError(t, err)

	nowhere := w.place(t, w.config.CurrentContext, "no-such-namespace", Options{})
	_, err = nowhere.Create(t.Context(), session("box"))
	says(t, err, tool.NotFound, "there is no namespace no-such-namespace in the cluster of context", "create namespace no-such-namespace")
	_, err = w.Create(t.Context(), session("ends-with-"))
	says(t, err, tool.Invalid, "on Kubernetes it is a label too")
	w.none(t)
}

// TestImagesThatCanNotRun: such images are reported and leave no Pod.
func TestImagesThatCanNotRun(t *testing.T) {
	w := newWorld(t, Options{})
	_, err := w.Create(t.Context(), PodOptions{Name: "box", Image: "localhost/nosuch:1", Pull: cluster.PullNever})
	says(t, err, tool.Unavailable, "the image localhost/nosuch:1 isn't on the node node1, and is never pulled; load it there")
	_, err = w.Create(t.Context(), PodOptions{Name: "box", Image: "127.0.0.1:1/nosuch:1"})
	says(t, err, tool.Unavailable, "the node node1 can't fetch the image 127.0.0.1:1/nosuch:1: ", "connection refused")
	_, err = w.Create(t.Context(), PodOptions{Name: "box", Image: "Not/An Image"})
	says(t, err, tool.Unavailable, "can't fetch the image Not/An Image")
	_, err = w.Create(t.Context(), PodOptions{Name: "box", Image: bareImage, Pull: cluster.PullNever})
	says(t, err, tool.Unavailable, "the image "+bareImage+" has no wisbox at /usr/local/bin/wisbox")
	_, err = w.Create(t.Context(), PodOptions{Name: "box", Image: fakeImage, Pull: cluster.PullNever, RuntimeClass: "nosuch"})
	says(t, err, tool.Permission, `RuntimeClass "nosuch" not found`)
	w.none(t)
}

// TestNoNodeTakesIt: the error includes the scheduler's message, and no Pod is left.
func TestNoNodeTakesIt(t *testing.T) {
	w := newWorld(t, Options{Placing: time.Second})
	large := session("box")
	large.Limits.CPUs = 1
	large.RuntimeClass = ""
	w.cordon(t, true)
	_, err := w.Create(t.Context(), large)
	says(t, err, tool.Unavailable, "no node took the Pod of session box within 1s, so it was deleted; the scheduler says: 0/", "unschedulable")
	w.none(t)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	_, err = w.Create(ctx, large)
	require.ErrorIs(t, err, context.Canceled)
	w.none(t)
}

// TestAPodThatAnotherOneMadeAnew: a new Pod of the same name is never mistaken for the original.
func TestAPodThatAnotherOneMadeAnew(t *testing.T) {
	w := newWorld(t, Options{})
	pod, err := w.Create(t.Context(), session("box"))
	require.NoError(t, err)
	_, err = w.Remove(t.Context(), "box")
	require.NoError(t, err)
	again := object(pod).DeepCopy() // as a controller that maintains a Pod of this name would do
	again.ObjectMeta = metav1.ObjectMeta{Name: object(pod).Name, Namespace: object(pod).Namespace, Labels: object(pod).Labels}
	again.Spec.NodeName = ""
	require.NoError(t, w.admin.client.Post().Namespace(w.namespace).Resource("pods").Body(again).Do(t.Context()).Error())
	_, err = w.Relay(t.Context(), pod)
	says(t, err, tool.Closed, "the Pod of session box isn't the one that it was opened with", "are lost")
	_, err = w.Remove(t.Context(), "box")
	require.NoError(t, err)
}

// TestMemoryThatIsUsedUp causes a real OOM kill of the container with the programs. The relay
// keeps running.
func TestMemoryThatIsUsedUp(t *testing.T) {
	w := newWorld(t, Options{})
	s := session("box")
	s.Limits.Memory = 32 << 20
	before, err := w.Create(t.Context(), s)
	require.NoError(t, err)
	stream, err := w.Relay(t.Context(), before)
	require.NoError(t, err)
	defer stream.Close()
	began := time.Now()
	require.NoError(t, w.Lost(before, began))
	_, err = io.WriteString(stream, "eat\n")
	require.NoError(t, err)
	var now *Pod
	_, err = w.watch(t.Context(), object(before), func(pod *corev1.Pod) (bool, error) {
		now = seen(pod)
		return programsOf(now).LastTerminationState.Terminated != nil || programsOf(now).State.Terminated != nil, nil
	})
	require.NoError(t, err)
	says(t, w.Lost(now, began), tool.Unavailable, "the programs of session box took all of its memory, and the node killed all of them together", "files are not")
	now, err = w.Now(t.Context(), before)
	require.NoError(t, err, "the session goes on")
	assert.Equal(t, before.UID, now.UID)
}

// TestARelayThatEndsAtOnce: the error includes the relay's output, or reports a broken
// connection.
func TestARelayThatEndsAtOnce(t *testing.T) {
	w := newWorld(t, Options{})
	pod, err := w.Create(t.Context(), session("box"))
	require.NoError(t, err)
	stream, err := w.Relay(t.Context(), pod)
	require.NoError(t, err)
	_, err = io.WriteString(stream, "fail\n")
	require.NoError(t, err)
	rest, err := io.ReadAll(stream)
	require.NoError(t, err)
	assert.Equal(t, "hello of wisbox-box --pod\n", string(rest))
	says(t, w.Explain(pod, stream, io.EOF), tool.Unavailable, "the relay in the Pod of session box ended at once, so its image may have another version of wisbox: the reason")

	none, err := w.exec(t.Context(), pod, holder, []string{"/nosuch"})
	if err == nil { // depends on whether the runtime reports the failure before the upgrade
		_, err = io.ReadAll(none)
		err = w.Explain(pod, none, err)
	}
	says(t, err, tool.Unavailable, "/nosuch")
}

// TestAHolderThatDoesNotRun: the error doesn't blame the version of the image.
func TestAHolderThatDoesNotRun(t *testing.T) {
	w := newWorld(t, Options{})
	pod, err := w.Create(t.Context(), session("box"))
	require.NoError(t, err)
	stream, err := w.Relay(t.Context(), pod)
	require.NoError(t, err)
	_, err = io.WriteString(stream, "end\n")
	require.NoError(t, err)
	_, _ = io.ReadAll(stream)
	_, err = w.watch(t.Context(), object(pod), func(now *corev1.Pod) (bool, error) {
		for _, c := range now.Status.ContainerStatuses {
			if c.Name == holder && c.State.Terminated != nil {
				return true, nil
			}
		}
		return false, nil
	})
	require.NoError(t, err)
	again, err := w.Relay(t.Context(), pod)
	if err == nil {
		_, err = io.ReadAll(again)
		err = w.Explain(pod, again, err)
	}
	says(t, err, tool.Unavailable, "the container with the holder of session box doesn't run; if it ended by itself, Kubernetes starts it again within seconds")
}

// TestAnAPIServerThatGoesAway: streams break, and requests wait until the server is back.
func TestAnAPIServerThatGoesAway(t *testing.T) {
	w := newWorld(t, Options{})
	_, err := w.Create(t.Context(), session("box"))
	require.NoError(t, err)
	proxy := hosttest.NewProxy(t, strings.TrimPrefix(w.config.Clusters[w.config.Contexts[w.config.CurrentContext].Cluster].Server, "https://"))
	through := world{config: *w.config.DeepCopy()}
	through.config.Clusters[w.config.Contexts[w.config.CurrentContext].Cluster].Server = "https://" + proxy.Address
	p := through.place(t, w.config.CurrentContext, w.namespace, Options{})
	pod, err := p.Find(t.Context(), "box")
	require.NoError(t, err)
	stream, err := p.Relay(t.Context(), pod)
	require.NoError(t, err)
	lines := bufio.NewReader(stream)
	_, err = lines.ReadString('\n')
	require.NoError(t, err)

	proxy.Stop()
	_, err = lines.ReadString('\n')
	require.Error(t, err)
	says(t, p.Explain(pod, stream, err), tool.Unavailable, "the connection to the Pod of session box broke")
	_, err = p.List(t.Context())
	says(t, err, tool.Unavailable, "the API server of context", "can't be reached")
	again := make(chan error, 1)
	go func() {
		s, err := p.Relay(t.Context(), pod)
		if err == nil {
			err = s.Close()
		}
		again <- err
	}()
	proxy.Start()
	require.NoError(t, <-again)
}
