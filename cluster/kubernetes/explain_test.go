package kubernetes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wisbox/wisbox/tool"
)

func TestATracebackForWantOfProcessesIsKnown(t *testing.T) {
	for said, want := range map[string]bool{
		"runtime: failed to create new OS thread (have 3 already; errno=11)\nruntime: may need to increase max user processes\n\truntime/asm_amd64.s:1771 +0x1 fp=0x391f": true,
		"runtime/cgo: pthread_create failed: Resource temporarily unavailable":                                                                                            true,
		"goroutine 1 [running]:\nmain.main()":                   true,
		"exec /usr/local/bin/wisbox: no such file or directory": false,
		"": false,
	} {
		assert.Equal(t, want, noProcesses([]byte(said)), said)
	}
}

// TestAPodThatIsDeletedHasNotFailed: the Pod's status first reports that its containers were
// killed.
func TestAPodThatIsDeletedHasNotFailed(t *testing.T) {
	pod := shapeFor(session("box")).generate("agents")
	pod.Status.Phase = corev1.PodFailed
	says(t, ended(pod), tool.Closed, "the Pod of session box has failed (no reason), and its files are lost: the cluster gives no reason; remove the session")
	pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
	says(t, ended(pod), tool.Closed, "the Pod of session box is being deleted, and its files are lost: the cluster gives no reason; open it again")
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Message: "Taint manager: deleting due to NoExecute taint"}}
	says(t, ended(pod), tool.Closed, "is being deleted, and its files are lost: Taint manager: deleting due to NoExecute taint; open it again")
	pod.Status.Reason = "Evicted"
	says(t, ended(pod), tool.Closed, "Kubernetes evicted the Pod of session box")
}

// TestALossCountsForTheOperationsThatItEnded: a restart before an operation began doesn't explain
// its end, and one restart explains the ends of all operations that ran.
func TestALossCountsForTheOperationsThatItEnded(t *testing.T) {
	at := time.Unix(1000, 0)
	pod := shapeFor(session("box")).generate("agents")
	is := corev1.ContainerStatus{Name: programs, RestartCount: 1, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	is.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled", FinishedAt: metav1.Time{Time: at}}
	status := func() *Pod {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{is}
		return seen(pod)
	}
	for range 2 {
		says(t, (*Place)(nil).Lost(status(), at.Add(-time.Minute)), tool.Unavailable, "took all of its memory")
	}
	says(t, (*Place)(nil).Lost(status(), at.Add(time.Second)), tool.Unavailable, "took all of its memory") // the clocks differ
	require.NoError(t, (*Place)(nil).Lost(status(), at.Add(time.Minute)))
	is.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	says(t, (*Place)(nil).Lost(status(), at.Add(time.Minute)), tool.Unavailable, "took all of its memory")
	is.LastTerminationState, is.State = corev1.ContainerState{}, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 2}}
	says(t, (*Place)(nil).Lost(status(), at), tool.Unavailable, "ended (Error, exit code 2)")
	is.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	require.NoError(t, (*Place)(nil).Lost(status(), time.Time{}))
}
