package kubernetes

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/wisbox/wisbox/cluster"
	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/tool"
)

// brief returns the cause of an error in one line.
func brief(err error) string {
	if of, ok := errors.AsType[*url.Error](err); ok {
		err = of.Err
	}
	return oneLine(err.Error())
}

// oneLine returns the beginning of a text from the cluster, without control characters.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsSpace(r) && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			return -1
		}
		return r
	}, text)
	return clip.Text(strings.Join(strings.Fields(text), " "))
}

// unreachable reports whether no API server answered, for example during a restart.
func unreachable(err error) bool {
	var status apierrors.APIStatus
	answered := errors.As(err, &status)
	return err != nil && !answered && !noCredentials(err) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// noCredentials reports whether the kubeconfig's plugin returned no credentials. client-go has
// no error type for that.
func noCredentials(err error) bool {
	var status apierrors.APIStatus
	return err != nil && !errors.As(err, &status) && strings.Contains(err.Error(), "getting credentials: ")
}

// unanswered reports whether a request may have reached the API server without an answer.
func unanswered(err error) bool {
	var status apierrors.APIStatus
	var known *tool.Error // from this package, so the API server has answered
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	switch {
	case err == nil, errors.As(err, &status), errors.As(err, &known), errors.As(err, &certificate), noCredentials(err):
		return false
	case errors.As(err, &dial) && dial.Op == "dial":
		return false
	}
	return true
}

// explain returns an error for users from an error of the API server, or nil. It returns an
// error of this package unchanged.
func (p *Place) explain(ctx context.Context, verb, resource string, err error) error {
	var known *tool.Error
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case apierrors.IsUnauthorized(err), noCredentials(err):
		return tool.Errorf(tool.Permission, "the cluster of context %s doesn't accept its credentials, which may have expired: log in again, then try: kubectl --context %s auth whoami", p.context, p.context).Because(err)
	case apierrors.IsForbidden(err):
		return p.errForbidden(verb, resource, err)
	case apierrors.IsNotFound(err) && strings.Contains(err.Error(), "namespaces"):
		return tool.Errorf(tool.NotFound, "there is no namespace %s in the cluster of context %s; create it with: kubectl --context %s create namespace %s", p.namespace, p.context, p.context, p.namespace).Because(errors.Join(cluster.ErrNoNamespace, err))
	case unreachable(err):
		return tool.Errorf(tool.Unavailable, "the API server of context %s can't be reached: %s; try: kubectl --context %s version", p.context, brief(err), p.context).Because(err)
	}
	return tool.Errorf(tool.Unavailable, "the API server of context %s refuses to %s %s: %s", p.context, verb, resource, brief(err)).Because(err)
}

func (p *Place) errForbidden(verb, resource string, err error) error {
	text := err.Error()
	_, quota, full := strings.Cut(text, "exceeded quota: ")
	switch {
	case full:
		return tool.Errorf(tool.Limit, "the quota of the namespace %s is full: %s; remove sessions, or ask for a larger quota", p.namespace, oneLine(quota)).Because(err)
	case strings.Contains(text, "violates PodSecurity"):
		return tool.Errorf(tool.Permission, "the namespace %s enforces a Pod security standard that sessions don't meet; baseline is the strictest one that they meet: kubectl --context %s label --overwrite namespace %s pod-security.kubernetes.io/enforce=baseline",
			p.namespace, p.context, p.namespace).Because(err)
	case strings.Contains(text, "cannot "+verb+" resource"):
		return tool.Errorf(tool.Permission, "you may not %s %s in the namespace %s of context %s; an administrator can grant it with deploy/users.yaml, or deploy/role.yaml for wisbox serve; try: kubectl --context %s -n %s auth can-i %s %s",
			verb, resource, p.namespace, p.context, p.context, p.namespace, verb, resource).Because(err)
	}
	return tool.Errorf(tool.Permission, "a policy of the cluster of context %s forbids you to %s %s in the namespace %s: %s", p.context, verb, resource, p.namespace, oneLine(text)).Because(err)
}

// over reports whether a session has ended by itself, at its TTL or after its idle time.
func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "DeadlineExceeded"
}

// ended returns the reason that a Pod can no longer be used, or nil.
func ended(pod *corev1.Pod) error {
	name := pod.Labels[sessionLabel]
	said := cmp.Or(pod.Status.Message, disruption(pod), "the cluster gives no reason")
	switch {
	case over(pod):
		return tool.Errorf(tool.Closed, "the session %s has ended, at its TTL or after its idle time, and its files are gone; open it again", name)
	case pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "Evicted":
		return tool.Errorf(tool.Closed, "Kubernetes evicted the Pod of session %s, and its files are lost: %s; remove the session, and open it again", name, oneLine(said))
	case pod.DeletionTimestamp != nil: // its containers may already have been killed, which counts as a failure too
		return tool.Errorf(tool.Closed, "the Pod of session %s is being deleted, and its files are lost: %s; open it again", name, oneLine(said))
	case pod.Status.Phase == corev1.PodFailed:
		return tool.Errorf(tool.Closed, "the Pod of session %s has failed (%s), and its files are lost: %s; remove the session, and open it again", name, cmp.Or(oneLine(pod.Status.Reason), "no reason"), oneLine(said))
	case nodeGone(pod):
		return tool.Errorf(tool.Unavailable, "the node %s of session %s doesn't answer: if it comes back the session goes on, else Kubernetes deletes the Pod after some minutes, and its files are lost", pod.Spec.NodeName, name)
	}
	return nil
}

// disruption returns the reason that the cluster removes a Pod.
func disruption(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return cmp.Or(c.Message, c.Reason)
		}
	}
	return ""
}

// nodeGone reports whether the control plane marked a Pod as not ready on behalf of its node,
// although the node last reported its containers as ready.
func nodeGone(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodUnknown {
		return true
	}
	for _, c := range pod.Status.ContainerStatuses {
		if !c.Ready {
			return false
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue {
			return pod.Status.Phase == corev1.PodRunning && len(pod.Status.ContainerStatuses) > 0
		}
	}
	return false
}

func errGone(pod *corev1.Pod) error {
	return tool.Errorf(tool.Closed, "the Pod of session %s was deleted, and its files are lost; open it again", pod.Labels[sessionLabel])
}

func errAnother(name string) error {
	return tool.Errorf(tool.Closed, "the Pod of session %s isn't the one that it was opened with: that was deleted, and something made another one of its name, which is empty; the files, processes and interpreters of the session are lost; remove the session, and open it again", name)
}

// stuck returns the reason that a starting Pod can't run, or nil.
func (p *Place) stuck(pod *corev1.Pod) error {
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			if err := p.errWaiting(pod, c, *w); err != nil {
				return err
			}
		}
		for _, t := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if t != nil {
				return p.errTerminated(pod, c, *t)
			}
		}
	}
	return nil
}

func (p *Place) errWaiting(pod *corev1.Pod, c corev1.ContainerStatus, w corev1.ContainerStateWaiting) error {
	switch w.Reason {
	case "", "PodInitializing", "ContainerCreating":
		return nil
	case "ErrImageNeverPull":
		return tool.Errorf(tool.Unavailable, "the image %s isn't on the node %s, and is never pulled; load it there, as with: kind load docker-image %s", oneLine(c.Image), pod.Spec.NodeName, oneLine(c.Image))
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ImageInspectError", "RegistryUnavailable":
		return tool.Errorf(tool.Unavailable, "the node %s can't fetch the image %s: %s", pod.Spec.NodeName, oneLine(c.Image), oneLine(w.Message))
	case "CrashLoopBackOff":
		if t := c.LastTerminationState.Terminated; t != nil {
			return p.errTerminated(pod, c, *t)
		}
	}
	if strings.Contains(w.Message, binary) {
		return errNoBinary(c.Image, w.Message)
	}
	return tool.Errorf(tool.Unavailable, "the node %s can't start the container %s of session %s (%s): %s", pod.Spec.NodeName, c.Name, pod.Labels[sessionLabel], oneLine(w.Reason), oneLine(w.Message))
}

func (p *Place) errTerminated(pod *corev1.Pod, c corev1.ContainerStatus, t corev1.ContainerStateTerminated) error {
	if strings.Contains(t.Message, binary) {
		return errNoBinary(c.Image, t.Message)
	}
	return tool.Errorf(tool.Unavailable, "the container %s of session %s ended as it started (%s, exit code %d): %s; the image must have this version of wisbox", c.Name, pod.Labels[sessionLabel], oneLine(t.Reason), t.ExitCode, cmp.Or(oneLine(t.Message), "it gave no reason"))
}

func errNoBinary(image, said string) error {
	return tool.Errorf(tool.Unavailable, "the image %s has no wisbox at %s that runs; build it as docs/cluster.md says: %s", oneLine(image), binary, oneLine(said))
}

// errSlow is the cause of the error for a Pod that takes too long to start.
var errSlow = errors.New("the Pod takes too long")

func (p *Place) errSlow(pod *corev1.Pod) error {
	name := pod.Labels[sessionLabel]
	if pod.Spec.NodeName != "" {
		return tool.Errorf(tool.Unavailable, "the node %s didn't start the Pod of session %s within %s, so it was deleted; see the node's events: kubectl --context %s -n %s get events", pod.Spec.NodeName, name, p.opts.Starting, p.context, p.namespace)
	}
	why := "the scheduler gives no reason"
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			why = "the scheduler says: " + c.Message
		}
	}
	return tool.Errorf(tool.Unavailable, "no node took the Pod of session %s within %s, so it was deleted; %s", name, p.opts.Placing, oneLine(why))
}

// Now returns the current state of the Pod. It returns an error if the Pod has ended or another
// Pod has its name.
func (p *Place) Now(ctx context.Context, of *Pod) (*Pod, error) {
	pod, err := p.read(ctx, of.Session)
	switch {
	case tool.KindOf(err) == tool.NotFound:
		return nil, errGone(object(of))
	case err != nil:
		return nil, err
	case string(pod.UID) != of.UID:
		return nil, errAnother(of.Session)
	}
	if err := ended(pod); err != nil {
		return nil, err
	}
	return seen(pod), verify(shapeOf(pod).generate(p.namespace), pod)
}

// clockSkew bounds the difference between the clocks of a node and of this machine, and the
// rounding of Kubernetes's times.
const clockSkew = 5 * time.Second

// Lost implements [cluster.Place]. It returns the reason that programs ended unexpectedly, if the node has ended their
// container since the given time or the container doesn't run. Otherwise it returns nil.
func (*Place) Lost(of *Pod, since time.Time) error {
	is := programsOf(of)
	last := cmp.Or(is.State.Terminated, is.LastTerminationState.Terminated)
	if last == nil || is.State.Running != nil && last.FinishedAt.Time.Before(since.Add(-clockSkew)) {
		return nil
	}
	if last.Reason == "OOMKilled" {
		return tool.Errorf(tool.Unavailable, "the programs of session %s took all of its memory, and the node killed all of them together; kept interpreters and background processes are lost, files are not; use less memory, or open a session with more", of.Session).Because(cluster.ErrMemory)
	}
	return tool.Errorf(tool.Unavailable, "the container with the programs of session %s ended (%s, exit code %d), and Kubernetes starts it again; kept interpreters and background processes are lost, files are not; call again", of.Session, oneLine(last.Reason), last.ExitCode)
}

// programsOf returns the status of the container of that name.
func programsOf(pod *Pod) corev1.ContainerStatus {
	for _, c := range object(pod).Status.ContainerStatuses {
		if c.Name == programs {
			return c
		}
	}
	return corev1.ContainerStatus{}
}
