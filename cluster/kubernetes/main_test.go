package kubernetes

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/wisbox/wisbox/internal/hosttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	fakeImage = "localhost/wisbox-fake:test"
	bareImage = "localhost/wisbox-bare:test" // without wisbox
)

// load loads the images of these tests into the cluster, once.
var load = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "wisbox-cluster-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "wisbox")
	build := exec.Command("go", "build", "-o", bin, "./testdata/fakewisbox")
	if out, err := build.CombinedOutput(); err != nil {
		return &exec.Error{Name: string(out), Err: err}
	}
	for image, path := range map[string]string{fakeImage: binary, bareImage: "/else"} {
		archive := filepath.Join(dir, "image.tar")
		if err := writeImage(archive, image, bin, path); err != nil {
			return err
		}
		if err := hosttest.LoadImage(archive); err != nil {
			return err
		}
	}
	return nil
})

// writeImage writes an image with a single program.
func writeImage(archive, image, bin, path string) error {
	raw, err := os.ReadFile(bin)
	if err != nil {
		return err
	}
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	if err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(path, "/"), Mode: 0o755, Size: int64(len(raw))}); err != nil {
		return err
	}
	if _, err := w.Write(raw); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil })
	if err != nil {
		return err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	config.OS, config.Architecture = "linux", "amd64"
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return err
	}
	tag, err := name.NewTag(image)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(archive, tag, img)
}

// world is a namespace of a real cluster. It is removed at the end of the test.
type world struct {
	*Place        // with the test user's rights
	admin  *Place // with all rights
	config clientcmdapi.Config
}

func newWorld(t *testing.T, opts Options) *world {
	t.Helper()
	path := hosttest.Kubeconfig(t)
	require.NoError(t, load())
	config, err := clientcmd.LoadFromFile(path)
	require.NoError(t, err)
	w := &world{config: *config}
	w.admin = w.place(t, config.CurrentContext, "default", Options{})
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "wisbox-test-"}}
	require.NoError(t, w.admin.client.Post().Resource("namespaces").Body(ns).Do(t.Context()).Into(ns))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, w.admin.client.Delete().Resource("namespaces").Name(ns.Name).Do(ctx).Error())
	})
	w.admin = w.place(t, config.CurrentContext, ns.Name, Options{})
	w.Place = w.place(t, config.CurrentContext, ns.Name, opts)
	require.Eventually(t, func() bool { // otherwise its service account may be missing
		return w.admin.client.Get().Namespace(ns.Name).Resource("serviceaccounts").Name("default").Do(t.Context()).Error() == nil
	}, waitTime, tickTime)
	return w
}

// place returns a Place with its own kubeconfig.
func (w *world) place(t *testing.T, kubeContext, namespace string, opts Options) *Place {
	t.Helper()
	opts.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(w.config, opts.Kubeconfig))
	p, err := New(kubeContext, namespace, &opts)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// user returns a Place of a user without rights, whom the administrator impersonates.
func (w *world) user(t *testing.T, name string) *Place {
	t.Helper()
	config := *w.config.DeepCopy()
	config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].Impersonate = name
	return (&world{config: config}).place(t, config.CurrentContext, w.namespace, Options{})
}

// grant grants a user verbs on pods, and waits until the API server applies them: it decides by its caches.
func (w *world) grant(t *testing.T, user string, verbs ...string) {
	t.Helper()
	role := map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": map[string]any{"name": user},
		"rules": []any{map[string]any{"apiGroups": []string{""}, "resources": []string{"pods"}, "verbs": verbs}},
	}
	binding := map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": map[string]any{"name": user},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
		"subjects": []any{map[string]any{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}},
	}
	for kind, object := range map[string]any{"roles": role, "rolebindings": binding} {
		raw, err := json.Marshal(object)
		require.NoError(t, err)
		at := "/apis/rbac.authorization.k8s.io/v1/namespaces/" + w.namespace + "/" + kind + "/" + user
		require.NoError(t, w.admin.client.Patch(types.ApplyPatchType).AbsPath(at).Param("fieldManager", "test").Param("force", "true").Body(raw).Do(t.Context()).Error())
	}
	for _, verb := range verbs {
		raw, err := json.Marshal(&authorizationv1.SubjectAccessReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"},
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: w.namespace, Resource: "pods", Verb: verb,
			}},
		})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			answer, err := w.admin.client.Post().AbsPath("/apis/authorization.k8s.io/v1/subjectaccessreviews").Body(raw).Do(t.Context()).Raw()
			review := &authorizationv1.SubjectAccessReview{}
			return err == nil && json.Unmarshal(answer, review) == nil && review.Status.Allowed
		}, waitTime, tickTime, "%s may not %s pods", user, verb)
	}
}

// cordon keeps new Pods off all nodes until the test ends.
func (w *world) cordon(t *testing.T, yes bool) {
	t.Helper()
	nodes := &corev1.NodeList{}
	require.NoError(t, w.admin.client.Get().Resource("nodes").Do(t.Context()).Into(nodes))
	for _, n := range nodes.Items {
		set := func(ctx context.Context, yes bool) error {
			return w.admin.client.Patch(types.MergePatchType).Resource("nodes").Name(n.Name).Body(fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, yes)).Do(ctx).Error()
		}
		require.NoError(t, set(t.Context(), yes))
		t.Cleanup(func() { require.NoError(t, set(context.Background(), false)) })
	}
}

// The timeout and the interval of waits for the cluster's controllers.
const (
	waitTime = 20 * time.Second
	tickTime = 50 * time.Millisecond
)

// apply creates an object from YAML in the test's namespace.
func (w *world) apply(t *testing.T, text string) {
	t.Helper()
	var object struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Rest       map[string]any `json:"-"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(text), &object))
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &object.Rest))
	at := "/apis/" + object.APIVersion
	if object.APIVersion == "v1" {
		at = "/api/v1"
	}
	if object.Kind == "Namespace" {
		object.Metadata["name"] = w.namespace
	} else {
		object.Metadata["namespace"] = w.namespace
		at += "/namespaces/" + w.namespace
	}
	plural := strings.TrimSuffix(strings.ToLower(object.Kind), "y")
	if plural != strings.ToLower(object.Kind) {
		plural += "ie"
	}
	object.Rest["metadata"] = object.Metadata
	raw, err := json.Marshal(object.Rest)
	require.NoError(t, err)
	require.NoError(t, w.admin.client.Patch(types.ApplyPatchType).AbsPath(at, plural+"s", object.Metadata["name"].(string)).
		Param("fieldManager", "test").Param("force", "true").Body(raw).Do(t.Context()).Error(), text)
}
