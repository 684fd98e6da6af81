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

	"github.com/wisbox/wisbox/cluster"
	"github.com/wisbox/wisbox/tool"
)

func session(name string) PodOptions {
	return PodOptions{Name: name, Image: fakeImage, Pull: cluster.PullNever}
}

// TestTheLifeOfAPod creates, finds, lists, uses and removes a Pod.
func TestTheLifeOfAPod(t *testing.T) {
	w := newWorld(t, Options{})
	began := time.Now()
	pod, err := w.Create(t.Context(), session("box"))
	require.NoError(t, err)
	t.Logf("created and running after %s", time.Since(began).Round(time.Millisecond))
	assert.Equal(t, "box", pod.Session)
	assert.NotEmpty(t, pod.UID)
	_, err = w.Create(t.Context(), session("box"))
	assert.Equal(t, tool.Exists, tool.KindOf(err))
	require.ErrorContains(t, err, `there is a session "box" already`)

	found, err := w.Find(t.Context(), "box")
	require.NoError(t, err)
	assert.Equal(t, pod.UID, found.UID)
	all, err := w.List(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, pod.UID, all[0].UID)
	assert.Empty(t, all[0].Problem)

	began = time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := w.Relay(ctx, pod)
	require.NoError(t, err)
	cancel() // the stream outlives ctx
	lines := bufio.NewReader(stream)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	t.Logf("hello after %s", time.Since(began).Round(time.Millisecond))
	assert.Equal(t, "hello of wisbox-box --pod\n", line)
	long := strings.Repeat("x", 1<<20) + "\n"
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(stream, long)
		sent <- err
	}()
	line, err = lines.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, long, line)
	require.NoError(t, <-sent)
	require.NoError(t, stream.Close())
	_, err = lines.ReadString('\n')
	require.Error(t, err)

	began = time.Now()
	_, err = w.Remove(t.Context(), "box")
	require.NoError(t, err)
	t.Logf("removed after %s", time.Since(began).Round(time.Millisecond))
	_, err = w.Find(t.Context(), "box")
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
	_, err = w.Remove(t.Context(), "box")
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
	_, err = w.Relay(t.Context(), pod)
	require.ErrorContains(t, err, "the Pod of session box was deleted, and its files are lost")
}

// TestTheFilesOfDeployAreEnough: a user with the rights of deploy/users.yaml can do everything in
// a namespace like that of deploy/namespace.yaml.
func TestTheFilesOfDeployAreEnough(t *testing.T) {
	w := newWorld(t, Options{})
	for _, file := range []string{"namespace.yaml", "users.yaml"} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "deploy", file))
		require.NoError(t, err)
		for part := range strings.SplitSeq(string(raw), "\n---\n") {
			w.apply(t, part)
		}
	}
	config := *w.config.DeepCopy()
	user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	user.Impersonate, user.ImpersonateGroups = "somebody", []string{"wisbox-users"}
	p := (&world{config: config}).place(t, config.CurrentContext, w.namespace, Options{})
	var pod *Pod
	require.Eventually(t, func() (ok bool) { // the quota is counted first
		var err error
		pod, err = p.Create(t.Context(), session("box"))
		return err == nil
	}, waitTime, tickTime)
	stream, err := p.Relay(t.Context(), pod)
	require.NoError(t, err)
	require.NoError(t, stream.Close())
	all, err := p.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, all, 1)
	_, err = p.Remove(t.Context(), "box")
	require.NoError(t, err)
}
