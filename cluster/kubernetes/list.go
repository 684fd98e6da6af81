package kubernetes

import (
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/tool"
)

const (
	pageSize = 500 // Pods per answer
	removals = 8   // at the same time
)

var listTime = patience.For(time.Minute) // per answer, and for the removal of finished Pods

// sessions is the selector of the Pods of all sessions.
const sessions = sessionLabel + "," + managedLabel + "=" + managedBy

// noted returns the selector of the Pods with notes, for one owner or for all.
func noted(owner string) string {
	selector := sessions + "," + ownerLabel
	if owner != "" {
		selector += "=" + owner
	}
	return selector
}

// List returns the Pods of all sessions, sorted by name and without their notes. It removes the
// Pods of sessions that ended by themselves, at their TTL or after their idle time.
func (p *Place) List(ctx context.Context) ([]*Pod, error) { return p.list(ctx, sessions) }

// ListOf is [Place.List] for the Pods with notes of one owner.
func (p *Place) ListOf(ctx context.Context, owner string) ([]*Pod, error) {
	if !label().MatchString(owner) {
		return nil, errOwner()
	}
	return p.list(ctx, noted(owner))
}

// Noted returns one owner's Pods with notes, sorted by name.
func (p *Place) Noted(ctx context.Context, owner string) ([]*Pod, error) {
	if !label().MatchString(owner) {
		return nil, errOwner()
	}
	all, _, err := p.pages(ctx, noted(owner), recorded)
	return all, p.explain(ctx, "list", "pods", err)
}

func errOwner() error { return check(Notes{Owner: "-"}) }

func (p *Place) list(ctx context.Context, selector string) ([]*Pod, error) {
	var finished []*Pod
	all, _, err := p.pages(ctx, selector, func(pod *corev1.Pod) *Pod {
		one := slim(pod)
		switch {
		case one == nil:
			return nil
		case over(pod):
			finished = append(finished, one)
			return nil
		}
		one.Notes = Notes{} // a record may be large
		return one
	})
	if err != nil {
		return nil, p.explain(ctx, "list", "pods", err)
	}
	p.clear(ctx, finished)
	return all, nil
}

// clear requests the deletion of Pods whose sessions have ended. It logs failures: the next list
// tries again.
func (p *Place) clear(ctx context.Context, finished []*Pod) {
	ctx, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	var tasks errgroup.Group
	tasks.SetLimit(removals)
	for _, pod := range finished {
		tasks.Go(func() error {
			if err := p.forget(ctx, object(pod), false); err != nil {
				p.opts.Logger.Info("remove the Pod of a session that has ended", "pod", object(pod).Name, "error", err)
			}
			return nil
		})
	}
	_ = tasks.Wait()
}

// pages lists Pods and returns those that take returns, sorted by name, and the version of the
// list. The error may be an API error.
func (p *Place) pages(ctx context.Context, selector string, take func(*corev1.Pod) *Pod) (all []*Pod, version string, err error) {
	options := metav1.ListOptions{LabelSelector: selector, Limit: pageSize}
	for {
		page, err := p.page(ctx, &options)
		if err != nil {
			return nil, "", err
		}
		for i := range page.Items {
			if one := take(&page.Items[i]); one != nil {
				all = append(all, one)
			}
		}
		version = page.ResourceVersion
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
	}
	slices.SortFunc(all, func(a, b *Pod) int { return strings.Compare(a.Session, b.Session) })
	return all, version, nil
}

func (p *Place) page(ctx context.Context, options *metav1.ListOptions) (*corev1.PodList, error) {
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	page := &corev1.PodList{}
	err := p.client.Get().Namespace(p.namespace).Resource("pods").VersionedParams(options, parameters).Do(ctx).Into(page)
	if err != nil && ctx.Err() != nil && outer.Err() == nil {
		return nil, tool.Errorf(tool.Unavailable, "the API server of context %s doesn't answer; try: kubectl --context %s version", p.context, p.context).Because(err)
	}
	return page, err
}

// recorded returns a Pod with notes without the fields that followers don't need, or nil for
// another Pod.
func recorded(pod *corev1.Pod) *Pod {
	if one := slim(pod); one != nil && one.Notes.Record != "" {
		return one
	}
	return nil
}

// slim returns a Pod without the fields that lists don't need, because a gateway holds thousands
// of Pods. It returns nil for a Pod that only has the labels of a session's.
func slim(pod *corev1.Pod) *Pod {
	if pod.Name != podPrefix+pod.Labels[sessionLabel] {
		return nil
	}
	out := seen(pod)
	less := &corev1.Pod{}
	less.Name, less.Namespace, less.UID, less.ResourceVersion = pod.Name, pod.Namespace, pod.UID, pod.ResourceVersion
	less.Labels = map[string]string{sessionLabel: out.Session}
	out.Object = less
	return out
}
