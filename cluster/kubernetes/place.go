package kubernetes

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/wisbox/wisbox/cluster"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/retry"
	"github.com/wisbox/wisbox/tool"
	"sync"
)

// The types that [cluster.Place] is about.
type (
	Options    = cluster.Options
	Pod        = cluster.Pod
	PodOptions = cluster.PodOptions
	Notes      = cluster.Notes
	Follower   = cluster.Follower
)

func init() {
	cluster.Register(func(kubeContext, namespace string, opts *Options) (cluster.Place, error) {
		return New(kubeContext, namespace, opts)
	})
}

var (
	placing  = patience.For(time.Minute)
	starting = patience.For(5 * time.Minute)
)

// Place is a namespace of a cluster, in which sessions live. It is a [cluster.Place].
type Place struct {
	context, namespace string
	opts               Options
	client             *rest.RESTClient
	upgrades           *http.Client  // for requests that become WebSockets
	patience           time.Duration // how long to wait for the answer to a list
}

// The API types in use, and their encoding.
var (
	scheme = func() *runtime.Scheme {
		s := runtime.NewScheme()
		if err := corev1.AddToScheme(s); err != nil {
			panic(err) // can only fail because of a bug
		}
		return s
	}()
	codecs     = serializer.NewCodecFactory(scheme)
	parameters = runtime.NewParameterCodec(scheme)
)

// New reads the kubeconfig, which must have the context. If it has no context named [InCluster],
// that name means the cluster that this process runs in, accessed with the Pod's service
// account. The namespace may then be "", which means the Pod's own. New doesn't connect.
func New(kubeContext, namespace string, opts *Options) (*Place, error) {
	p := &Place{context: kubeContext, namespace: namespace, patience: listTime}
	if opts != nil {
		p.opts = *opts
	}
	if p.opts.Placing == 0 {
		p.opts.Placing = placing
	}
	if p.opts.Starting == 0 {
		p.opts.Starting = starting
	}
	if p.opts.Logger == nil {
		p.opts.Logger = slog.New(slog.DiscardHandler)
	}
	config, err := p.config()
	if err != nil {
		return nil, err
	}
	if p.client, err = rest.RESTClientFor(config); err != nil {
		return nil, p.errConfig(err)
	}
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrade
	if p.upgrades, err = rest.HTTPClientFor(config); err != nil {
		return nil, p.errConfig(err)
	}
	return p, nil
}

func (p *Place) config() (*rest.Config, error) {
	config, err := p.access()
	if err != nil {
		return nil, err
	}
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = codecs.WithoutConversion()
	config.QPS = -1                           // a session makes few calls, and waits for each
	config.WarningHandler = rest.NoWarnings{} // the default writes to stderr
	if config.ExecProvider != nil {
		config.ExecProvider.StdinUnavailable = true // stdin belongs to the session's program
	}
	return config, nil
}

// access returns the configuration and credentials for the API server.
func (p *Place) access() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath, rules.WarnIfAllMissing = p.opts.Kubeconfig, false
	raw, err := rules.Load()
	switch {
	case p.context == cluster.InCluster && (errors.Is(err, os.ErrNotExist) || err == nil && raw.Contexts[cluster.InCluster] == nil):
		return p.inCluster()
	case errors.Is(err, os.ErrNotExist), err == nil && len(raw.Contexts) == 0:
		return nil, tool.Errorf(tool.Unavailable, "there is no kubeconfig on this machine with a context; set KUBECONFIG to its path, and see: kubectl config get-contexts").Because(err)
	case err != nil:
		return nil, p.errConfig(err)
	case raw.Contexts[p.context] == nil:
		return nil, tool.Errorf(tool.NotFound, "the kubeconfig has no context %q; it has: %s", p.context, names(raw.Contexts)).In("address")
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: p.context}
	config, err := clientcmd.NewNonInteractiveClientConfig(*raw, p.context, overrides, rules).ClientConfig()
	if err != nil {
		return nil, p.errConfig(err)
	}
	return config, nil
}

// names returns the names of contexts, up to a maximum.
func names[T any](all map[string]T) string {
	const most = 8
	var found []string
	for name := range all {
		found = append(found, name)
	}
	slices.Sort(found)
	if len(found) > most {
		found = append(found[:most], "…")
	}
	return strings.Join(found, ", ")
}

func (p *Place) errConfig(err error) error {
	return tool.Errorf(tool.Unavailable, "the kubeconfig can't be used with the context %q: %s", p.context, brief(err)).Because(err)
}

// Close closes idle connections. Pods and their streams stay.
func (p *Place) Close() {
	utilnet.CloseIdleConnectionsFor(p.client.Client.Transport)
	utilnet.CloseIdleConnectionsFor(p.upgrades.Transport)
}

// String returns the address of the place.
func (p *Place) String() string { return "kube:" + p.context + "/" + p.namespace }

// object returns the Pod as the API server last sent it.
func object(of *Pod) *corev1.Pod { return of.Object.(*corev1.Pod) }

func seen(pod *corev1.Pod) *Pod {
	out := &Pod{Session: pod.Labels[sessionLabel], UID: string(pod.UID), Created: pod.CreationTimestamp.Time, Deleting: pod.DeletionTimestamp != nil, Notes: notesOf(pod), Object: pod}
	out.Starting = pod.Status.Phase == corev1.PodPending
	if err := ended(pod); err != nil {
		out.Problem, out.Away = tool.AsError(err).Message, tool.KindOf(err) == tool.Unavailable
	}
	return out
}

// label matches the labels of Kubernetes that are valid names in wisbox.
var label = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`) })

// Create creates a Pod and returns once both of its containers run. The error for a name in use
// is exists. If Create fails or ctx ends, no Pod is left.
func (p *Place) Create(ctx context.Context, s PodOptions) (*Pod, error) {
	if !label().MatchString(s.Name) {
		return nil, tool.Errorf(tool.Invalid, "name %q must begin and end with a lower-case letter or a digit, and have only those and hyphens, at most 63 in all: on Kubernetes it is a label too", s.Name).In("name")
	}
	if err := check(s.Notes); err != nil {
		return nil, err
	}
	shape := shapeFor(s)
	shape.creation = rand.Text()
	want := shape.generate(p.namespace)
	got, err := p.post(ctx, want)
	if err != nil {
		return nil, errors.Join(p.explain(ctx, "create", "pods", err), p.undo(context.WithoutCancel(ctx), want, err))
	}
	if err = verify(want, got); err == nil {
		got, err = p.started(ctx, got)
	}
	if err != nil {
		return nil, errors.Join(err, p.delete(context.WithoutCancel(ctx), got))
	}
	return seen(got), nil
}

// post creates the Pod. It replaces a Pod whose session has ended by itself. The error may be an
// API error.
func (p *Place) post(ctx context.Context, want *corev1.Pod) (*corev1.Pod, error) {
	got := &corev1.Pod{}
	create := func() error {
		return p.client.Post().Namespace(p.namespace).Resource("pods").Body(want).Do(ctx).Into(got)
	}
	err := create()
	if apierrors.IsAlreadyExists(err) {
		name := want.Labels[sessionLabel]
		old, failed := p.get(ctx, name)
		switch {
		case failed != nil && tool.KindOf(failed) != tool.NotFound:
			return nil, failed
		case failed == nil && !over(old):
			return nil, errExists(name)
		case failed == nil:
			if err := p.delete(ctx, old); err != nil {
				return nil, err
			}
		}
		if err = create(); apierrors.IsAlreadyExists(err) { // another client was faster
			return nil, errExists(name)
		}
	}
	return got, err
}

func errExists(name string) error {
	return tool.Errorf(tool.Exists, "there is a session %q already; choose another name, or remove it: wisbox rm %s", name, name).In("name")
}

// undoTime bounds the search for a Pod whose creation wasn't answered.
var undoTime = patience.For(20 * time.Second)

// undo removes the Pod of a creation that the API server may have received but hasn't answered.
func (p *Place) undo(ctx context.Context, want *corev1.Pod, failed error) error {
	if !unanswered(failed) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, undoTime)
	defer cancel()
	got := &corev1.Pod{}
	late := 1 // an API server may still process the request of a caller that has left
	err := reachable.Do(ctx, func(err error) bool {
		if apierrors.IsNotFound(err) && late > 0 {
			late--
			return true
		}
		return unreachable(err)
	}, func() error {
		return p.client.Get().Namespace(p.namespace).Resource("pods").Name(want.Name).Do(ctx).Into(got)
	})
	switch {
	case apierrors.IsNotFound(err), err == nil && got.Annotations[creationNote] != want.Annotations[creationNote]:
		return nil
	case err == nil:
		err = p.delete(ctx, got)
	}
	if err == nil {
		return nil
	}
	name := want.Labels[sessionLabel]
	return tool.Errorf(tool.Unavailable, "the Pod of session %s may have been created all the same; look with wisbox ls, and remove it: wisbox rm %s", name, name).Because(err)
}

// Find returns the Pod of a session, and an error if it can't be used. The error for an unknown
// name is not_found.
func (p *Place) Find(ctx context.Context, name string) (*Pod, error) {
	pod, err := p.read(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := ended(pod); err != nil {
		return nil, err
	}
	return seen(pod), verify(shapeOf(pod).generate(p.namespace), pod)
}

// read is get, but it waits for an API server that restarts.
func (p *Place) read(ctx context.Context, name string) (pod *corev1.Pod, err error) {
	err = reachable.Do(ctx, func(err error) bool { return unreachable(errors.Unwrap(err)) }, func() (err error) {
		pod, err = p.get(ctx, name)
		return err
	})
	return pod, err
}

func (p *Place) get(ctx context.Context, name string) (*corev1.Pod, error) {
	if !label().MatchString(name) {
		return nil, errNotFound(name)
	}
	pod := &corev1.Pod{}
	err := p.client.Get().Namespace(p.namespace).Resource("pods").Name(podPrefix + name).Do(ctx).Into(pod)
	if apierrors.IsNotFound(err) || err == nil && pod.Labels[sessionLabel] != name {
		return nil, errNotFound(name)
	}
	return pod, p.explain(ctx, "get", "pods", err)
}

func errNotFound(name string) error {
	return tool.Errorf(tool.NotFound, "session %q not found; list the sessions to see their names", name).In("session")
}

// Remove ends a session with its programs and files, and returns the UID of its Pod when the Pod
// is gone. The error for an unknown name is not_found.
func (p *Place) Remove(ctx context.Context, name string) (uid string, err error) {
	pod, err := p.get(ctx, name)
	if err != nil {
		return "", err
	}
	return string(pod.UID), p.delete(ctx, pod)
}

// Withdraw ends the session of this Pod like Remove, but never another Pod of the same name. A
// missing Pod is not an error.
func (p *Place) Withdraw(ctx context.Context, of *Pod) error { return p.delete(ctx, object(of)) }

// deleteTime bounds the deletion of a Pod.
var deleteTime = patience.For(time.Minute)

// delete removes this Pod (by UID) and waits until the API server has removed the object.
// Without a grace period, the object would disappear before the Pod's processes.
func (p *Place) delete(ctx context.Context, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeoutCause(ctx, deleteTime, errStays(pod))
	defer cancel()
	if err := p.forget(ctx, pod, false); err != nil {
		return err
	}
	_, err := p.watch(ctx, pod, func(now *corev1.Pod) (bool, error) { return now == nil, nil })
	return err
}

func errStays(pod *corev1.Pod) error {
	return tool.Errorf(tool.Unavailable, "the Pod %s is deleted but doesn't go: its node may be gone; an administrator can end that with: kubectl delete pod %s --force, once the node is known to be off", pod.Name, pod.Name)
}

// forget requests the deletion of this Pod (by UID). With unchanged, it returns a conflict if the
// Pod has changed since it was read.
func (p *Place) forget(ctx context.Context, pod *corev1.Pod, unchanged bool) error {
	conditions := &metav1.Preconditions{UID: &pod.UID}
	if unchanged {
		conditions.ResourceVersion = &pod.ResourceVersion
	}
	options := &metav1.DeleteOptions{GracePeriodSeconds: new(int64(endGrace)), Preconditions: conditions}
	err := p.client.Delete().Namespace(p.namespace).Resource("pods").Name(pod.Name).Body(options).Do(ctx).Error()
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err) && !unchanged: // it is gone; another Pod may have its name
		return nil
	case apierrors.IsConflict(err):
		return errMeanwhile(pod.Labels[sessionLabel], err)
	}
	return p.explain(ctx, "delete", "pods", err)
}

// reachable bounds the retries of a read while the API server restarts.
var reachable = retry.Times{Count: 20, Pause: 500 * time.Millisecond}
