package pods

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// digest is the placeholder in deploy/.
const digest = "registry.example.com/wisbox-pod@sha256:0000000000000000000000000000000000000000000000000000000000000000"

// podImage is the image on the node.
const podImage = "localhost/wisbox-pod:latest"

// overlay adapts deploy/ to the test cluster. Pods have no network there, so the gateways use the node's,
// which the namespace's security standard forbids. On the node's network each gateway needs its own port,
// so the second is a separate Deployment, outside the Service.
const overlay = `
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [all.yaml, second]
components: [gvisor]
replicas: [{name: wisbox-gateway, count: 1}, {name: wisbox-gateway-second, count: 1}]
patches:
- target: {kind: Namespace, name: wisbox-gateway}
  patch: |
    - {op: replace, path: /metadata/labels/pod-security.kubernetes.io~1enforce, value: privileged}
- target: {kind: Deployment}
  patch: |
    - {op: add, path: /spec/template/spec/hostNetwork, value: true}
    - {op: add, path: /spec/template/spec/containers/0/imagePullPolicy, value: Never}
    - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: KUBERNETES_SERVICE_HOST, value: "ADDRESS"}}
    - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: KUBERNETES_SERVICE_PORT, value: "NUMBER"}}
`

// second is a kustomization for a second copy of the Deployment.
const second = `
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [deployment.yaml]
nameSuffix: -second
labels:
- {pairs: {app.kubernetes.io/name: wisbox-gateway-second}, includeSelectors: true}
`

// render writes the overlay with the gateways' ports, and returns its directory.
func (n *namespace) render(ports [2]string) string {
	n.t.Helper()
	all := n.kubectl("kustomize", "../../deploy")
	assert.Equal(n.t, 2, strings.Count(all, digest), "of the gateway and of sessions")
	all = strings.ReplaceAll(all, digest, podImage)
	host, port, err := net.SplitHostPort(strings.TrimPrefix(n.config.Clusters[n.config.Contexts[n.config.CurrentContext].Cluster].Server, "https://"))
	require.NoError(n.t, err)
	n.write("overlay/kustomization.yaml", strings.NewReplacer("ADDRESS", host, "NUMBER", port).Replace(overlay))
	n.write("overlay/all.yaml", strings.ReplaceAll(all, "3000", ports[0]))
	for document := range strings.SplitSeq(all, "\n---\n") {
		if strings.Contains(document, "\nkind: Deployment\n") {
			n.write("overlay/second/deployment.yaml", strings.ReplaceAll(document, "3000", ports[1]))
		}
	}
	n.write("overlay/second/kustomization.yaml", second)
	for _, name := range []string{"kustomization.yaml", "runtimeclass.yaml"} {
		raw, err := os.ReadFile("../../deploy/gvisor/" + name)
		require.NoError(n.t, err)
		n.write("overlay/gvisor/"+name, string(raw))
	}
	return filepath.Join(n.dir, "overlay")
}

// TestDeploy applies deploy/. A session must open in its namespace within the quota, and two gateways with a
// common Secret, created as in docs/cluster.md, must serve the same sandbox. Users of the group wisbox-users have
// no rights there before users.yaml is applied.
func TestDeploy(t *testing.T) {
	n := newNamespace(t)
	n.address = "kube:" + n.config.CurrentContext + "/wisbox"
	ports := [2]string{strconv.Itoa(hosttest.FreePort(t)), strconv.Itoa(hosttest.FreePort(t))}
	require.NotEqual(t, ports[0], ports[1])
	dir := n.render(ports)
	t.Cleanup(func() { n.kubectl("delete", "-k", dir, "--ignore-not-found", "--wait=true", "--timeout=120s") })
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(n.kubectl("describe", "pods", "-n", "wisbox-gateway"))
			t.Log(n.kubectl("logs", "-n", "wisbox-gateway", "--prefix", "--ignore-errors", "-l", "app.kubernetes.io/name"))
		}
	})
	require.NotContains(t, n.kubectl("apply", "-k", dir), "Warning")
	key := n.gatewaySecret()
	n.kubectl("wait", "--for=create", "serviceaccount/default", "-n", "wisbox", "--timeout=30s")
	assert.Equal(t, "of a user\n", n.ok("run", "--", "echo", "of a user"))
	assert.Contains(t, n.kubectl("describe", "quota", "-n", "wisbox"), "limits.memory")

	gateway := []string{"create pods", "patch pods", "get pods/exec"}
	n.can("--as=system:serviceaccount:wisbox-gateway:wisbox-gateway", gateway, []string{"get secrets", "get configmaps", "update pods"})
	n.can("--as=a --as-group=wisbox-users", nil, []string{"create pods", "get pods", "get pods/exec", "patch pods", "get secrets"})
	n.can("--as=a --as-group=wisbox-servers", gateway, []string{"get secrets", "update pods"})

	n.kubectl("wait", "--for=condition=Available", "deployment", "--all", "-n", "wisbox-gateway", "--timeout=60s")
	a, b := n.gateway("wisbox-gateway", ports[0], key), n.gateway("wisbox-gateway-second", ports[1], key)
	n.serveTogether(a, b)

	n.kubectl("apply", "-f", "../../deploy/users.yaml")
	n.can("--as=a --as-group=wisbox-users", []string{"create pods", "get pods/exec"}, []string{"patch pods", "get secrets"})
}

// may reports whether an account has a right in the namespace of sessions.
func (n *namespace) may(as, verb string) bool {
	n.t.Helper()
	args := append([]string{"auth", "can-i", "-n", "wisbox"}, strings.Fields(as+" "+verb)...)
	out, _ := n.kubectlCmd(args...).Output() // kubectl fails if the answer is no
	answer := strings.TrimSpace(string(out))
	assert.Contains(n.t, []string{"yes", "no"}, answer, "%s %s", as, verb)
	return answer == "yes"
}

// can checks an account's rights in the namespace of sessions. The API server applies new ones after a moment.
func (n *namespace) can(as string, yes, no []string) {
	n.t.Helper()
	for _, verb := range yes {
		require.Eventually(n.t, func() bool { return n.may(as, verb) }, time.Minute, 100*time.Millisecond, "%s %s", as, verb)
	}
	for _, verb := range no {
		assert.False(n.t, n.may(as, verb), "%s %s", as, verb)
	}
}

// gatewaySecret creates the keys and the secret as in docs/cluster.md, and returns the key.
func (n *namespace) gatewaySecret() string {
	n.t.Helper()
	cmd := exec.Command(hosttest.Binary(n.t), "serve", "key", "create", "--name", "team")
	cmd.Env = append(os.Environ(), "WISBOX_CACHE="+filepath.Join(n.dir, "gateway"))
	key, err := cmd.Output()
	require.NoError(n.t, err)
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	n.kubectl("-n", "wisbox-gateway", "create", "secret", "generic", "wisbox-gateway",
		"--from-file="+filepath.Join(n.dir, "gateway", "serve", "keys.json"), "--from-literal=secret="+base64.StdEncoding.EncodeToString(secret))
	return strings.TrimSpace(string(key))
}

// gateway is a gateway in its own Pod.
type gateway struct {
	n              *namespace
	name, url, key string
}

func (n *namespace) gateway(name, port, key string) gateway {
	n.t.Helper()
	g := gateway{n: n, name: name, key: key}
	g.url = "http://" + net.JoinHostPort(g.pod("{.items[0].status.hostIP}"), port)
	return g
}

// pod returns the value at a JSON path in the list of the gateway's Pods.
func (g gateway) pod(path string) string {
	g.n.t.Helper()
	return g.n.kubectl("get", "pods", "-n", "wisbox-gateway", "-l", "app.kubernetes.io/name="+g.name, "-o", "jsonpath="+path)
}

// ask sends a request of E2B's API, to the sandbox itself if sandbox isn't empty.
func (g gateway) ask(method, path, sandbox, token, body string) (int, string) {
	t := g.n.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, g.url+path, strings.NewReader(body))
	require.NoError(t, err)
	if sandbox == "" {
		r.Header.Set("X-API-KEY", g.key)
	} else {
		r.Header.Set("E2b-Sandbox-Id", sandbox)
		r.Header.Set("E2b-Sandbox-Port", "49983")
		r.Header.Set("X-Access-Token", token)
		r.Header.Set("Content-Type", "application/octet-stream")
	}
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(text)
}

// serveTogether creates a sandbox at a, uses it at b while a's Pod is deleted, and kills it at b.
func (n *namespace) serveTogether(a, b gateway) {
	t := n.t
	t.Helper()
	for _, g := range []gateway{a, b} { // the process must have the manifest's restrictions
		status := n.kubectl("exec", "-n", "wisbox-gateway", "deploy/"+g.name, "--", "sh", "-c", "exec 2>&1; id -u; id -G; touch /root-is-written; cat /proc/1/status")
		assert.Regexp(t, `(?s)^1000\n1000\n.*Read-only file system.*CapEff:\s+0000000000000000.*NoNewPrivs:\s+1.*Seccomp:\s+2`, status)
	}
	code, body := a.ask("POST", "/v2/sandboxes", "", "", `{"timeout":300}`)
	require.Equal(t, http.StatusCreated, code, body)
	var made struct{ SandboxID, EnvdAccessToken string }
	require.NoError(t, json.Unmarshal([]byte(body), &made))
	assert.Contains(t, n.kubectl("get", "pods", "-n", "wisbox"), "Running")
	write := func(g gateway, text string) {
		code, body := g.ask("POST", "/files?path=/home/user/note&username=user", made.SandboxID, made.EnvdAccessToken, text)
		require.Equal(t, http.StatusOK, code, body)
	}
	read := func(g gateway) string {
		code, body := g.ask("GET", "/files?path=/home/user/note&username=user", made.SandboxID, made.EnvdAccessToken, "")
		require.Equal(t, http.StatusOK, code, body)
		return body
	}
	write(a, "of the first")
	assert.Equal(t, "of the first", read(b))

	before := a.pod("{.items[0].metadata.uid}")
	n.kubectl("delete", "pod", "-n", "wisbox-gateway", "-l", "app.kubernetes.io/name="+a.name, "--wait=true", "--timeout=60s")
	write(b, "of the second")
	n.kubectl("rollout", "status", "deployment/"+a.name, "-n", "wisbox-gateway", "--timeout=60s")
	require.NotEqual(t, before, a.pod("{.items[0].metadata.uid}"))
	assert.Equal(t, "of the second", read(a), "the new Pod of the first")

	code, body = b.ask("DELETE", "/sandboxes/"+made.SandboxID, "", "", "")
	require.Equal(t, http.StatusNoContent, code, body)
	require.Eventually(t, func() bool { // a learns this from the API server
		code, _ := a.ask("GET", "/sandboxes/"+made.SandboxID, "", "", "")
		return code == http.StatusNotFound
	}, time.Minute, 20*time.Millisecond)
	require.Eventually(t, func() bool { return n.kubectl("get", "pods", "-n", "wisbox", "-o", "name") == "" }, time.Minute, 100*time.Millisecond)
}

func (n *namespace) kubectlCmd(args ...string) *exec.Cmd {
	script := os.Getenv("WISBOX_CLUSTER")
	if script == "" {
		n.t.Skip("make test-cluster does this: WISBOX_CLUSTER names no script with kubectl")
	}
	return exec.Command(script, append([]string{"kubectl", "--kubeconfig", hosttest.Kubeconfig(n.t)}, args...)...) //nolint:gosec // the tester's own
}

// kubectl runs kubectl and returns its output.
func (n *namespace) kubectl(args ...string) string {
	n.t.Helper()
	out, err := n.kubectlCmd(args...).CombinedOutput()
	require.NoError(n.t, err, "kubectl %v: %s", args, out)
	return string(out)
}
