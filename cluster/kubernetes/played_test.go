package kubernetes

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wisbox/wisbox/tool"
)

// onNoNode creates a Pod bound to a node without a kubelet. The test plays the kubelet.
func (w *world) onNoNode(t *testing.T, name string) *Pod {
	t.Helper()
	w.cordon(t, true)
	type made struct {
		pod *Pod
		err error
	}
	done := make(chan made, 1)
	go func() {
		pod, err := w.Create(t.Context(), session(name))
		done <- made{pod, err}
	}()
	pod := &corev1.Pod{}
	for { // until it exists
		if err := w.admin.client.Get().Namespace(w.namespace).Resource("pods").Name(podPrefix + name).Do(t.Context()).Into(pod); err == nil {
			break
		}
		require.NoError(t, t.Context().Err())
	}
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "ghost"}}
	binding.Name = pod.Name
	require.NoError(t, w.admin.client.Post().Namespace(w.namespace).Resource("pods").Name(pod.Name).SubResource("binding").Body(binding).Do(t.Context()).Error())
	w.status(t, name, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodRunning
		for _, c := range pod.Spec.Containers {
			s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
		}
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	})
	m := <-done
	require.NoError(t, m.err)
	return m.pod
}

// status writes the status of a Pod, as its kubelet would.
func (w *world) status(t *testing.T, name string, change func(*corev1.PodStatus)) {
	t.Helper()
	pod := &corev1.Pod{}
	require.NoError(t, w.admin.client.Get().Namespace(w.namespace).Resource("pods").Name(podPrefix+name).Do(t.Context()).Into(pod))
	change(&pod.Status)
	raw, err := json.Marshal(map[string]any{"status": pod.Status})
	require.NoError(t, err)
	require.NoError(t, w.admin.client.Patch(types.MergePatchType).Namespace(w.namespace).Resource("pods").Name(pod.Name).SubResource("status").Body(raw).Do(t.Context()).Error())
}

// TestAPodThatTheClusterEnds: the error names the reason, for open sessions and for Find and
// List.
func TestAPodThatTheClusterEnds(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.PodStatus)
		kind   tool.Kind
		says   string
		over   bool
	}{
		"evicted": {func(s *corev1.PodStatus) {
			s.Phase, s.Reason, s.Message = corev1.PodFailed, "Evicted", `Usage of EmptyDir volume "state" exceeds the limit "8Gi".`
		}, tool.Closed, `Kubernetes evicted the Pod of session evicted, and its files are lost: Usage of EmptyDir volume "state" exceeds the limit "8Gi".; remove the session`, false},
		"shutdown": {func(s *corev1.PodStatus) {
			s.Phase, s.Reason, s.Message = corev1.PodFailed, "Terminated", "Pod was terminated in response to imminent node shutdown."
		}, tool.Closed, "the Pod of session shutdown has failed (Terminated), and its files are lost: Pod was terminated in response to imminent node shutdown.", false},
		"silent": {func(s *corev1.PodStatus) {
			for i := range s.Conditions {
				if s.Conditions[i].Type == corev1.PodReady {
					s.Conditions[i].Status = corev1.ConditionFalse
				}
			}
		}, tool.Unavailable, "the node ghost of session silent doesn't answer: if it comes back the session goes on", false},
		"ttl": {func(s *corev1.PodStatus) {
			s.Phase, s.Reason, s.Message = corev1.PodFailed, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
		}, tool.Closed, "the session ttl has ended, at its TTL or after its idle time", true},
		"idle": {func(s *corev1.PodStatus) { s.Phase = corev1.PodSucceeded }, tool.Closed, "the session idle has ended, at its TTL or after its idle time", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{})
			pod := w.onNoNode(t, name)
			w.status(t, name, c.change)
			_, err := w.Relay(t.Context(), pod)
			says(t, err, c.kind, c.says)
			_, err = w.Find(t.Context(), name)
			says(t, err, c.kind, c.says)
			all, err := w.List(t.Context())
			require.NoError(t, err)
			if c.over {
				assert.Empty(t, all)
				w.none(t) // the list has removed it: an ended Pod is deleted at once
				return
			}
			if assert.Len(t, all, 1) {
				assert.Contains(t, all[0].Problem, c.says)
			}
			w.forceAway(t, pod)
		})
	}
}

// forceAway deletes a Pod whose node can't.
func (w *world) forceAway(t *testing.T, pod *Pod) {
	t.Helper()
	require.NoError(t, w.admin.client.Delete().Namespace(w.namespace).Resource("pods").Name(object(pod).Name).
		Body([]byte(`{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0}`)).Do(t.Context()).Error())
}

// TestAMutatingWebhook: the session isn't opened if a webhook weakens its Pod.
func TestAMutatingWebhook(t *testing.T) {
	w := newWorld(t, Options{})
	patch := `[{"op":"add","path":"/spec/hostNetwork","value":true}]`
	server := httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		var review struct {
			Request struct {
				UID string `json:"uid"`
			} `json:"request"`
		}
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&review))
		_, _ = fmt.Fprintf(out, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true,"patchType":"JSONPatch","patch":%q}}`,
			review.Request.UID, base64.StdEncoding.EncodeToString([]byte(patch)))
	}))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	hook := fmt.Appendf(nil, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingWebhookConfiguration","metadata":{"name":%q},"webhooks":[{
		"name":"weaken.wisbox.dev","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":%q,"caBundle":%q},
		"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%q}},
		"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"],"operations":["CREATE"]}]}]}`,
		w.namespace, server.URL, base64.StdEncoding.EncodeToString(ca), w.namespace)
	const hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
	require.NoError(t, w.admin.client.Post().AbsPath(hooks).Body(hook).Do(t.Context()).Error())
	defer func() {
		require.NoError(t, w.admin.client.Delete().AbsPath(hooks, w.namespace).Do(t.Context()).Error())
	}()
	w.cordon(t, true)                   // its programs must not run
	require.Eventually(t, func() bool { // the API server takes a moment to load the webhook
		probe := shapeFor(session("probe")).generate(w.namespace)
		defer func() { require.NoError(t, w.delete(t.Context(), probe)) }()
		require.NoError(t, w.client.Post().Namespace(w.namespace).Resource("pods").Body(probe).Do(t.Context()).Into(probe))
		return probe.Spec.HostNetwork
	}, waitTime, tickTime)
	_, err := w.Create(t.Context(), session("box"))
	says(t, err, tool.Unavailable, "the Pod of session box isn't as wisbox made it: the cluster changed spec.hostNetwork; a mutating webhook or a policy does that")
	w.none(t)
}
