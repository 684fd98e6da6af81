package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
)

// watch calls enough with each state of the Pod until it returns true. A nil Pod means that the
// Pod is gone or has another UID. It returns the last state.
func (p *Place) watch(ctx context.Context, pod *corev1.Pod, enough func(*corev1.Pod) (bool, error)) (*corev1.Pod, error) {
	last := pod
	for ctx.Err() == nil { // the API server may end a watch at any time
		now := &corev1.Pod{}
		err := reachable.Do(ctx, unreachable, func() error {
			return p.client.Get().Namespace(p.namespace).Resource("pods").Name(pod.Name).Do(ctx).Into(now)
		})
		switch {
		case apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID:
			_, err := enough(nil)
			return last, err
		case err != nil:
			return last, p.explain(ctx, "get", "pods", err)
		}
		last = now
		if done, err := enough(now); done || err != nil {
			return now, err
		}
		if done, err := p.follow(ctx, now, &last, enough); done || err != nil {
			return last, err
		}
	}
	return last, context.Cause(ctx)
}

// follow runs one watch. It returns false if the watch ended.
func (p *Place) follow(ctx context.Context, from *corev1.Pod, last **corev1.Pod, enough func(*corev1.Pod) (bool, error)) (bool, error) {
	w, err := p.client.Get().Namespace(p.namespace).Resource("pods").VersionedParams(&metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", from.Name).String(), ResourceVersion: from.ResourceVersion, Watch: true,
	}, parameters).Watch(ctx)
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return false, p.explain(ctx, "watch", "pods", err)
	case err != nil:
		pause(ctx) // the next read returns the error, or starts another watch
		return false, nil
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		now, ok := event.Object.(*corev1.Pod)
		switch {
		case !ok: // an error: the version is too old
			pause(ctx)
			return false, nil
		case now.UID != from.UID:
			continue
		case event.Type == watch.Deleted:
			_, err := enough(nil)
			return true, err
		}
		*last = now
		if done, err := enough(now); done || err != nil {
			return done, err
		}
	}
	return false, nil
}

// pause waits before the next watch, to spare an API server that refuses watches.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(reachable.Pause):
	}
}

// started waits until both containers run.
func (p *Place) started(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var last *corev1.Pod
	limit := time.AfterFunc(p.opts.Placing, func() { cancel(errSlow) })
	defer limit.Stop()
	placed := false
	pod, err := p.watch(ctx, pod, func(now *corev1.Pod) (bool, error) {
		last = now
		if now == nil {
			return true, errGone(pod)
		}
		if now.Spec.NodeName != "" && !placed {
			placed = true
			limit.Reset(p.opts.Starting)
		}
		if err := ended(now); err != nil {
			return false, err
		}
		if err := p.stuck(now); err != nil {
			return false, err
		}
		return running(now), nil
	})
	if errors.Is(context.Cause(ctx), errSlow) && outer.Err() == nil {
		return pod, p.errSlow(cmp.Or(last, pod))
	}
	return pod, err
}

// running reports whether both containers run.
func running(pod *corev1.Pod) bool {
	count := 0
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running != nil {
			count++
		}
	}
	return count == len(pod.Spec.Containers)
}
