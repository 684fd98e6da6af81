package kubernetes

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wisbox/wisbox/tool"
)

// The label and the annotation of notes. A Pod has both or neither.
const (
	ownerLabel = "wisbox.dev/owner"
	recordNote = "wisbox.dev/record"
)

// put adds the notes to a Pod.
func put(n Notes, pod *corev1.Pod) {
	if n == (Notes{}) {
		return
	}
	pod.Labels[ownerLabel] = n.Owner
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[recordNote] = n.Record
}

func notesOf(pod *corev1.Pod) Notes {
	return Notes{Owner: pod.Labels[ownerLabel], Record: pod.Annotations[recordNote]}
}

// check returns an error for notes that Kubernetes would refuse.
func check(n Notes) error {
	if n != (Notes{}) && (!label().MatchString(n.Owner) || n.Record == "") {
		return tool.Errorf(tool.Invalid, "the notes of a Pod need an owner of 1 to 63 lower-case letters, digits and hyphens, and a record").In("pod")
	}
	return nil
}

// Look returns the Pod of a session with its notes, even if the Pod can't be used. The error for
// an unknown name is not_found.
func (p *Place) Look(ctx context.Context, name string) (*Pod, error) {
	pod, err := p.get(ctx, name)
	if err != nil {
		return nil, err
	}
	return seen(pod), nil
}

// Note replaces the record on a Pod, or adds it if it was removed. The error is conflict or
// not_found if the Pod has another record or UID than of, or is gone.
func (p *Place) Note(ctx context.Context, of *Pod, record string) (*Pod, error) {
	at := "/metadata/annotations/" + strings.ReplaceAll(recordNote, "/", "~1")
	change := []map[string]string{
		{"op": "test", "path": "/metadata/uid", "value": of.UID},
		{"op": "test", "path": at, "value": of.Notes.Record},
		{"op": "replace", "path": at, "value": record},
	}
	if of.Notes.Record == "" { // a test of a missing path fails; the creation annotation is always there
		change = append(change[:1], map[string]string{"op": "add", "path": at, "value": record})
	}
	raw, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	err = p.client.Patch(types.JSONPatchType).Namespace(p.namespace).Resource("pods").Name(object(of).Name).Body(raw).Do(ctx).Into(pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, errNotFound(of.Session)
	case apierrors.IsInvalid(err), apierrors.IsConflict(err):
		return nil, errMeanwhile(of.Session, err)
	case err != nil:
		return nil, p.explain(ctx, "patch", "pods", err)
	}
	return seen(pod), nil
}

// End requests the deletion of this Pod (by UID) and doesn't wait for it. With unchanged, a Pod
// that has changed since it was read is left alone, and the error is conflict. A missing Pod is
// not an error.
func (p *Place) End(ctx context.Context, of *Pod, unchanged bool) error {
	if of.Deleting {
		return nil
	}
	return p.forget(ctx, object(of), unchanged)
}

func errMeanwhile(name string, err error) error {
	return tool.Errorf(tool.Conflict, "the Pod of session %s was changed meanwhile; try again", name).Because(err)
}

const (
	watchTime  = 5 * time.Minute // per watch; then all Pods are listed again, in case changes were missed
	firstPause = 250 * time.Millisecond
	mostPause  = 5 * time.Second
)

// Follow calls f with the Pods with notes until ctx ends. While the API server is unreachable,
// it retries at most every 5 seconds.
func (p *Place) Follow(ctx context.Context, f *Follower) {
	pause, lost := firstPause, false
	for ctx.Err() == nil {
		version, err := p.tell(ctx, f)
		if err == nil {
			pause, lost = firstPause, false
			err = p.followAll(ctx, version, f)
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil { // the watch reached its time limit
			continue
		}
		if !lost {
			lost = true
			f.Lost(p.explain(ctx, "watch", "pods", err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)): // jitter, so that a gateway's replicas don't retry together
		}
		pause = min(2*pause, mostPause)
	}
}

// tell passes all Pods to the follower, and returns the version of the list.
func (p *Place) tell(ctx context.Context, f *Follower) (version string, err error) {
	all, version, err := p.pages(ctx, noted(""), recorded)
	if err == nil {
		f.All(all)
	}
	return version, err
}

// followAll runs one watch. It returns nil at the watch's time limit.
func (p *Place) followAll(ctx context.Context, version string, f *Follower) error {
	ctx, cancel := context.WithTimeout(ctx, watchTime+p.patience) // normally the API server ends the watch
	defer cancel()
	w, err := p.client.Get().Namespace(p.namespace).Resource("pods").VersionedParams(&metav1.ListOptions{
		LabelSelector: noted(""), ResourceVersion: version, Watch: true, TimeoutSeconds: new(int64(watchTime / time.Second)),
	}, parameters).Watch(ctx)
	if err != nil {
		return err
	}
	defer w.Stop()
	began := time.Now()
	for event := range w.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return apierrors.FromObject(event.Object)
		}
		if one := recorded(pod); one != nil {
			f.One(one, event.Type == watch.Deleted)
		}
	}
	if time.Since(began) < watchTime/2 { // the API server ended or refused the watch
		return errCut
	}
	return nil
}

var errCut = tool.Errorf(tool.Unavailable, "the API server ended a watch of the Pods")
