package pods

// This table lists the faults of sessions in Pods and their tests. "Played" means that the test writes the
// node's status itself; all other faults are real. docs/cluster.md has the errors that users see.
//
//	kubeconfig missing, unusable      cluster: TestAKubeconfigThatCanNotBeUsed, TestCredentialsThatAnExecPluginDoesNotGive
//	a right is missing                cluster: TestRights
//	quota full, security standard     cluster: TestWhatANamespaceRefuses
//	image not there, or without wisbox  cluster: TestImagesThatCanNotRun
//	Pending                           cluster: TestNoNodeTakesIt
//	the cluster weakens the Pod       cluster: TestAMutatingWebhook
//	evicted by the node               TestAnEvictionByTheNode (nightly); played: cluster: TestAPodThatTheClusterEnds
//	drained                           TestADrain
//	shut down with its node           played: cluster: TestAPodThatTheClusterEnds
//	memory of the container used up   cluster: TestMemoryThatIsUsedUp
//	node gone                         TestANodeThatIsSilent (nightly); played: cluster: TestAPodThatTheClusterEnds
//	API server away, restarted        TestAnAPIServerThatRestartsInACall, cluster: TestAnAPIServerThatGoesAway
//	relay cut at any byte             TestARelayThatIsCut; each byte, without a cluster: TestAConnectionThatIsCutLosesNothing
//	Pod made again under its name     TestAPodThatIsLost, cluster: TestAPodThatAnotherOneMadeAnew
//	answer to a creation lost         fake: cluster: TestACreationWithoutAnAnswerLeavesNoPod
//	kill -9 of API server, kubelet    TestProgramsOfTheClusterThatAreKilled
//	kill -9 of holder                 integration/cluster: TestAHolderThatIsKilledLosesProgramsAndNoFiles
//	kill -9 of the holder's first process   integration/cluster: TestAHolderContainerThatIsKilledIsStartedAgain
//	kill -9 of the programs' first process  integration/cluster: TestProgramsContainerThatIsKilledIsALostSandbox
//	holder's container not running    cluster: TestAHolderThatDoesNotRun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// patience bounds waits for the cluster to notice a fault.
const patience = 2 * time.Minute

const nightlyVariable = "WISBOX_NIGHTLY"

// nightly skips tests that are too slow for each change.
func nightly(t *testing.T) {
	t.Helper()
	if os.Getenv(nightlyVariable) == "" {
		t.Skip("make nightly does this: a node takes its time for it")
	}
}

// signal sends a signal to a program of the cluster, which restarts it if it ends.
func signal(t *testing.T, program, sig string) {
	t.Helper()
	script := os.Getenv("WISBOX_CLUSTER")
	if script == "" {
		t.Skip("only the cluster of make test-cluster has programs that may be killed")
	}
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), script, "signal", program, sig).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// ready waits until the API server and the node are ready.
func (n *namespace) ready() {
	n.t.Helper()
	require.Eventually(n.t, func() bool {
		nodes := &corev1.NodeList{}
		if n.api.Get().Resource("nodes").Do(n.t.Context()).Into(nodes) != nil {
			return false
		}
		for _, node := range nodes.Items {
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
					return false
				}
			}
		}
		return true
	}, patience, 200*time.Millisecond)
}

// works calls until a call succeeds. Errors until then must be of kind unavailable.
func works(t *testing.T, s *wisbox.Session) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
		if err != nil {
			assert.Equal(t, tool.Unavailable, tool.KindOf(err), "%v", err)
		}
		return err == nil
	}, patience, 200*time.Millisecond)
}

// pod returns the Pod of a session.
func (n *namespace) pod(session string) *corev1.Pod {
	n.t.Helper()
	pod := &corev1.Pod{}
	require.NoError(n.t, n.api.Get().Namespace(n.name).Resource("pods").Name("wisbox-"+session).Do(n.t.Context()).Into(pod))
	return pod
}

// running starts a program and returns a channel for its end.
func running(t *testing.T, s *wisbox.Session) <-chan error {
	t.Helper()
	said, end := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		_, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo begun >f; echo begun; sleep 1000"}, Stdout: signalled(said)})
		end <- err
	}()
	<-said
	return end
}

// TestProgramsOfTheClusterThatAreKilled kills programs of the cluster with SIGKILL. The running call
// reports that it may have begun; the session keeps its files, processes and interpreters in the same Pod.
func TestProgramsOfTheClusterThatAreKilled(t *testing.T) {
	for _, program := range []string{"kubelet", "kube-apiserver"} {
		t.Run(program, func(t *testing.T) {
			n := newNamespace(t)
			m := n.manager(n.config)
			s, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true})
			require.NoError(t, err)
			process, err := s.StartProcess(t.Context(), sandbox.Cmd{Argv: []string{"sleep", "900"}}, nil)
			require.NoError(t, err)
			before := n.pod("box")
			end := running(t, s)
			signal(t, program, "KILL")
			n.ready()
			err = <-end
			assert.Equal(t, tool.Unavailable, tool.KindOf(err))
			require.ErrorContains(t, err, "it may have begun there")
			works(t, s)
			_, out := output(t, s, "cat f; pgrep -c -f '^sleep 900'")
			assert.Equal(t, "begun\n1\n", out)
			all, err := s.Processes(t.Context())
			require.NoError(t, err)
			require.Len(t, all, 1)
			assert.Equal(t, process.ProcessID, all[0].ProcessID)
			after := n.pod("box")
			assert.Equal(t, before.UID, after.UID)
			for _, c := range after.Status.ContainerStatuses {
				assert.Zero(t, c.RestartCount, c.Name)
			}
			require.NoError(t, s.Close(t.Context()))
			require.NoError(t, m.Remove(t.Context(), "box"))
		})
	}
}

// TestARelayThatIsCut cuts the relay's TLS stream at arbitrary bytes. A program runs at most once, and the
// client learns whether it ran. TestAConnectionThatIsCutLosesNothing does the same at each byte, without a
// cluster.
func TestARelayThatIsCut(t *testing.T) {
	n := newNamespace(t)
	proxy, through := n.proxied()
	whole := n.manager(n.config)
	s, err := whole.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true})
	require.NoError(t, err)
	m := n.manager(through)
	ran, outcomes := map[string]bool{}, map[string]int{}
	const cuts, step = 40, 113 // bytes
	for i := range cuts {
		if i%4 == 0 { // otherwise cut the last connection, or one that the call dials
			proxy.CutAfter(int64(1 + 10*i*step))
			if far, err := m.Attach(t.Context(), "box"); err != nil {
				assert.Equal(t, tool.Unavailable, tool.KindOf(err), "%v", err)
				outcomes["not attached"]++
			} else {
				_ = far.Close(t.Context()) // the session remains
			}
			proxy.CutAfter(0)
		}
		far, err := m.Attach(t.Context(), "box")
		require.NoError(t, err)
		proxy.CutAfter(int64(1 + i*step))
		line := fmt.Sprintf("line %d", i)
		res, err := far.Run(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo " + line + " >>f"}})
		if err == nil {
			assert.Zero(t, res.ExitCode)
			ran[line] = true
			outcomes["done"]++
		} else {
			assert.Equal(t, tool.Unavailable, tool.KindOf(err), "%v", err)
			require.ErrorContains(t, err, "it may have begun there")
			outcomes["unknown"]++
		}
		proxy.CutAfter(0)
		_ = far.Close(t.Context())
	}
	t.Log(outcomes)
	for _, name := range []string{"not attached", "unknown", "done"} {
		assert.NotZero(t, outcomes[name], name)
	}
	_, out := output(t, s, "cat f")
	times := map[string]int{}
	for line := range strings.Lines(out) {
		times[strings.TrimSpace(line)]++
	}
	for line, count := range times {
		assert.Equal(t, 1, count, "%q ran twice", line)
	}
	for line := range ran {
		assert.Contains(t, times, line)
	}
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, whole.Remove(t.Context(), "box"))
}

// TestADrain evicts the Pod through the eviction API. The session's disk limit is smaller than its own
// agent, which must start all the same.
func TestADrain(t *testing.T) {
	n := newNamespace(t)
	m := n.manager(n.config)
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true, Limits: sandbox.Limits{Disk: 1 << 20}})
	require.NoError(t, err)
	end := running(t, s)
	eviction := []byte(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"wisbox-box"}}`)
	require.NoError(t, n.api.Post().Namespace(n.name).Resource("pods").Name("wisbox-box").SubResource("eviction").Body(eviction).Do(t.Context()).Error())
	err = <-end
	assert.Equal(t, tool.Closed, tool.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "its files are lost")
	_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	assert.Equal(t, tool.Closed, tool.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "of session box")
	_ = s.Close(t.Context())
	err = m.Remove(t.Context(), "box")
	assert.True(t, err == nil || tool.KindOf(err) == tool.NotFound, "%v", err)
}

// TestAnEvictionByTheNode fills a volume beyond the kubelet's limit. The session's watcher stops programs
// before that, so the test does it as the node's administrator.
func TestAnEvictionByTheNode(t *testing.T) {
	nightly(t)
	n := newNamespace(t)
	m := n.manager(n.config)
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true, SnapshotSpace: 1 << 20, Limits: sandbox.Limits{Disk: 1 << 20}})
	require.NoError(t, err)
	pod := n.pod("box")
	volumes := filepath.Join(filepath.Dir(hosttest.Kubeconfig(t)), "kubelet", "pods", string(pod.UID), "volumes", "kubernetes.io~empty-dir")
	if _, err := os.Stat(volumes); err != nil {
		t.Skip("only the node of make test-cluster has its files on this machine")
	}
	at := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "state" })
	over := pod.Spec.Volumes[at].EmptyDir.SizeLimit.Value() + 1<<20
	require.NoError(t, os.WriteFile(filepath.Join(volumes, "state", "filler"), make([]byte, over), 0o600))
	var lost error
	require.Eventually(t, func() bool {
		_, lost = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
		return tool.KindOf(lost) == tool.Closed
	}, 2*patience, time.Second)
	require.ErrorContains(t, lost, "Kubernetes evicted the Pod of session box, and its files are lost: ")
	require.ErrorContains(t, lost, "remove the session, and open it again")
	stdout, _, _ := n.run("ls")
	assert.Regexp(t, `box +lost`, stdout)
	_ = s.Close(t.Context())
	require.NoError(t, m.Remove(t.Context(), "box"))
}

// TestANodeThatIsSilent stops the kubelet until the control plane notices, and then resumes it.
func TestANodeThatIsSilent(t *testing.T) {
	nightly(t)
	n := newNamespace(t)
	m := n.manager(n.config)
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true})
	require.NoError(t, err)
	_, out := output(t, s, "echo kept >f; cat f")
	require.Equal(t, "kept\n", out)
	signal(t, "kubelet", "STOP")
	defer signal(t, "kubelet", "CONT")
	var silent error
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, silent = n.manager(n.config).Attach(ctx, "box")
		return silent != nil && strings.Contains(silent.Error(), "the node ")
	}, patience, time.Second)
	require.ErrorContains(t, silent, "the node node1 of session box doesn't answer: if it comes back the session goes on, else Kubernetes deletes the Pod after some minutes, and its files are lost")
	signal(t, "kubelet", "CONT")
	n.ready()
	works(t, s)
	_, out = output(t, s, "cat f")
	assert.Equal(t, "kept\n", out)
	require.NoError(t, errors.Join(s.Close(t.Context()), m.Remove(t.Context(), "box")))
}
