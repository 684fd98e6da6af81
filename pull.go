package wisbox

import (
	"context"
	"errors"

	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Pull says when the image of a new session is fetched from its registry.
type Pull string

// The values of [SessionOptions.Pull].
const (
	PullMissing Pull = "missing" // where the store doesn't have it
	PullNever   Pull = "never"
	PullAlways  Pull = "always" // also where the store has one of that name
)

// PullProgress is what [SessionOptions.OnPull] gets.
type PullProgress struct {
	Image string
	Step  string // what Podman says it does; "" at the beginning and at the end
	Done  bool   // the last one, also of a pull that failed
}

func (p Pull) check(image string) error {
	switch p {
	case "", PullMissing, PullNever:
		return nil
	case PullAlways:
		return checkPullable(image)
	}
	return tool.Errorf(tool.Invalid, "pull is %q; it must be missing, never or always", string(p)).In("pull")
}

func checkPullable(image string) error {
	if images.Registry(image) != "" {
		return nil
	}
	return tool.Errorf(tool.Invalid, "pull is always, and the image %s names no registry to pull it from; write one in front, as in docker.io/library/node:22, or leave pull out", image).In("pull")
}

// pullImage fetches a new session's image where that was asked for, and those of its
// services. Sessions that are opened at once wait for the one pull.
func (h *here) pullImage(ctx context.Context, o *SessionOptions) error {
	if err := h.pull(ctx, o, o.Image); err != nil {
		return err
	}
	for _, c := range o.Services {
		if err := h.pull(ctx, o, c.Image); err != nil {
			return err
		}
	}
	return nil
}

func (h *here) pull(ctx context.Context, o *SessionOptions, image string) error {
	if o.Pull == PullNever || images.Registry(image) == "" {
		return nil
	}
	puller, ok := sandbox.As[sandbox.ImagePuller](h.backend)
	if !ok {
		if o.Pull == PullAlways {
			return tool.Errorf(tool.Unsupported, "this backend pulls no images; leave pull out").In("pull")
		}
		return nil
	}
	if missing, err := h.lacks(ctx, puller, o.Pull, image); err != nil || !missing {
		return err
	}
	if err := h.pulling.Lock(ctx); err != nil {
		return err
	}
	defer h.pulling.Unlock()
	if missing, err := h.lacks(ctx, puller, o.Pull, image); err != nil || !missing {
		return err
	}
	tell := o.OnPull
	if tell == nil {
		tell = func(PullProgress) {}
	}
	tell(PullProgress{Image: image})
	defer tell(PullProgress{Image: image, Done: true})
	err := puller.PullImage(ctx, image, &sandbox.PullOptions{
		Progress: func(line string) { tell(PullProgress{Image: image, Step: line}) },
	})
	return toolerr.Of(err)
}

// lacks reports whether the image has to be pulled. A session's files need no Podman:
// where it can't be asked, its first program says so.
func (h *here) lacks(ctx context.Context, store sandbox.ImageStore, pull Pull, image string) (bool, error) {
	if pull == PullAlways {
		return true, nil
	}
	_, err := store.ImageInfo(ctx, image)
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, sandbox.ErrNotFound):
		return true, nil
	case pull == "" && errors.Is(err, sandbox.ErrUnavailable):
		h.log.Info("the store can't be asked for the image", "image", image, "error", err)
		return false, nil
	}
	return false, toolerr.Of(err)
}
