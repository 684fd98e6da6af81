package integration

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// registry is a registry on the loopback interface with faults, for Podman's pulls.
type registry struct {
	t      *testing.T
	server *httptest.Server
	store  http.Handler
	addr   string

	mu    sync.Mutex
	fault func(w http.ResponseWriter, r *http.Request) bool // returns true if it has answered; may be nil
	asked []string
}

// newRegistry starts a registry without TLS, or with an unknown certificate if secure is set.
func newRegistry(t *testing.T, secure bool) *registry {
	t.Helper()
	r := &registry{t: t, store: ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)))}
	r.server = httptest.NewUnstartedServer(http.HandlerFunc(r.serve))
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if secure {
		r.server.StartTLS()
	} else {
		r.server.Start()
	}
	t.Cleanup(r.server.Close)
	r.addr = r.server.Listener.Addr().(*net.TCPAddr).String()
	return r
}

func (r *registry) serve(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.asked = append(r.asked, req.Method+" "+req.URL.Path)
	fault := r.fault
	r.mu.Unlock()
	if fault != nil && fault(w, req) {
		return
	}
	r.store.ServeHTTP(w, req)
}

func (r *registry) failWith(fault func(w http.ResponseWriter, r *http.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = fault
}

// manifests returns the number of requests for manifests.
func (r *registry) manifests() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, asked := range r.asked {
		if strings.HasPrefix(asked, "GET ") && strings.Contains(asked, "/manifests/") {
			n++
		}
	}
	return n
}

// push adds an image of busybox; arch is the architecture in its configuration. Pulled images are removed at the test's
// end.
func (r *registry) push(name, arch string) (ref string) {
	r.t.Helper()
	layer, diff := busyboxLayer(r.t)
	config := toJSON(r.t, map[string]any{
		"os": "linux", "architecture": arch, "config": map[string]any{"Env": []string{"PATH=/bin"}, "Cmd": []string{"sh"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{diff}},
	})
	manifest := toJSON(r.t, map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": r.blob(config, "application/vnd.oci.image.config.v1+json"),
		"layers": []any{r.blob(layer, "application/vnd.oci.image.layer.v1.tar+gzip")},
	})
	repo, tag, _ := strings.Cut(name, ":")
	r.send(http.MethodPut, "/v2/"+repo+"/manifests/"+tag, "application/vnd.oci.image.manifest.v1+json", manifest)
	ref = r.addr + "/" + name
	removeImageLater(r.t, ref)
	return ref
}

func (r *registry) blob(data []byte, kind string) map[string]any {
	r.t.Helper()
	digest := digestOf(data)
	r.send(http.MethodPost, "/v2/any/blobs/uploads/?digest="+digest, "application/octet-stream", data)
	return map[string]any{"mediaType": kind, "digest": digest, "size": len(data)}
}

func (r *registry) send(method, path, kind string, data []byte) {
	r.t.Helper()
	req := httptest.NewRequestWithContext(r.t.Context(), method, path, bytes.NewReader(data))
	req.Header.Set("Content-Type", kind)
	answer := httptest.NewRecorder()
	r.store.ServeHTTP(answer, req)
	require.Equal(r.t, http.StatusCreated, answer.Code, "%s %s: %s", method, path, answer.Body)
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func toJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return data
}

// busyboxLayer returns the only layer of an image: Debian's static busybox under some names.
func busyboxLayer(t *testing.T) (compressed []byte, diff string) {
	t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		hosttest.Lacks(t, "the Debian package busybox-static is missing; see: make setup")
	}
	var layer, zipped bytes.Buffer
	tw := tar.NewWriter(&layer)
	add := func(h tar.Header, data []byte) {
		h.Mode, h.Size = 0o755, int64(len(data))
		require.NoError(t, tw.WriteHeader(&h))
		_, err := tw.Write(data)
		require.NoError(t, err)
	}
	add(tar.Header{Name: "bin/", Typeflag: tar.TypeDir}, nil)
	add(tar.Header{Name: "tmp/", Typeflag: tar.TypeDir}, nil)
	add(tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg}, program)
	for _, name := range []string{"sh", "sleep", "cat", "echo", "stat", "kill", "id", "true"} {
		add(tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
	}
	require.NoError(t, tw.Close())
	zw := gzip.NewWriter(&zipped)
	_, err = zw.Write(layer.Bytes())
	require.NoError(t, err)
	require.NoError(t, zw.Close())
	return zipped.Bytes(), digestOf(layer.Bytes())
}

// insecure writes a registries.conf that allows Podman to use the registry without TLS.
func (r *registry) insecure() string {
	return fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", r.addr)
}
