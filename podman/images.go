package podman

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/undo"
	"github.com/wisbox/wisbox/sandbox"
)

// ImageInfo describes an image in Podman's store.
type ImageInfo = sandbox.ImageInfo

// image is the part of an image's description that wisbox uses.
type image struct {
	ID       string            `json:"Id"`
	RepoTags []string          `json:"RepoTags"`
	Labels   map[string]string `json:"Labels"`
	Size     int64             `json:"Size"`
	Created  time.Time         `json:"Created"`
	OS       string            `json:"Os"`
	Arch     string            `json:"Architecture"`
	Config   struct {
		Env          []string            `json:"Env"`
		User         string              `json:"User"`
		ExposedPorts map[string]struct{} `json:"ExposedPorts"`
		Volumes      map[string]struct{} `json:"Volumes"`
		Workdir      string              `json:"WorkingDir"`
	} `json:"Config"`
}

// fits refuses an image whose programs this machine can't run.
func (i *image) fits(ref string) error {
	if i.OS != "" && i.OS != "linux" || i.Arch != "" && i.Arch != runtime.GOARCH {
		return fail(sandbox.ErrUnsupported, nil, "the image %s is for %s/%s, and this machine runs linux/%s; choose an image for it", ref, i.OS, i.Arch, runtime.GOARCH)
	}
	return nil
}

// envOf returns the environment of an image's programs, empty if the image is gone.
func (b *Backend) envOf(ctx context.Context, id string) []string {
	image, err := b.inspectImage(ctx, id)
	if err != nil {
		b.log.Debug("the image of a container is gone", "image", id, "error", err)
		return nil
	}
	return image.Config.Env
}

func imagePath(ref, rest string) string { return "/images/" + url.PathEscape(ref) + rest }

func (b *Backend) inspectImage(ctx context.Context, ref string) (*image, error) {
	var out image
	err := b.do(ctx, request{method: http.MethodGet, path: imagePath(ref, "/json"), out: &out})
	return &out, err
}

// ImageInfo describes an image, or wraps sandbox.ErrNotFound.
func (b *Backend) ImageInfo(ctx context.Context, ref string) (ImageInfo, error) {
	i, err := b.inspectImage(ctx, ref)
	if isNotFound(err) {
		return ImageInfo{}, fail(sandbox.ErrNotFound, err, "image %s not found", ref)
	}
	if err != nil {
		return ImageInfo{}, explain(ctx, "look at the image", err)
	}
	info := ImageInfo{ID: i.ID, Tags: i.RepoTags, Labels: i.Labels, Workdir: i.Config.Workdir, Size: i.Size, Created: i.Created}
	if i.OS != "" && i.Arch != "" {
		info.Platform = i.OS + "/" + i.Arch
	}
	return info, nil
}

// Images returns the images in the store, except unnamed layers that other images use.
func (b *Backend) Images(ctx context.Context) ([]ImageInfo, error) {
	var found []struct {
		ID      string            `json:"Id"`
		Tags    []string          `json:"RepoTags"`
		Labels  map[string]string `json:"Labels"`
		Size    int64             `json:"Size"`
		Created int64             `json:"Created"`
	}
	err := b.do(ctx, request{method: http.MethodGet, path: "/images/json", out: &found, doing: "list images"})
	if err != nil {
		return nil, explain(ctx, "list the images", err)
	}
	out := make([]ImageInfo, 0, len(found))
	for _, i := range found {
		out = append(out, ImageInfo{ID: i.ID, Tags: i.Tags, Labels: i.Labels, Size: i.Size, Created: time.Unix(i.Created, 0)})
	}
	return out, nil
}

// RemoveImage removes an image by its ID. If a container uses the image, or it has several names, it stays and the
// error wraps sandbox.ErrExists.
func (b *Backend) RemoveImage(ctx context.Context, id string) error {
	err := b.do(ctx, request{method: http.MethodDelete, path: imagePath(id, ""), limit: imageTimeout, doing: "remove the image"})
	switch {
	case err == nil, isNotFound(err):
		return nil
	case hasStatus(err, http.StatusConflict) || says(err, "in use"):
		return fail(sandbox.ErrExists, err, "the image %.12s is in use", id)
	}
	return explain(ctx, "remove the image", err)
}

// TagImage gives an image of the store another name. An image that had the name loses it.
func (b *Backend) TagImage(ctx context.Context, ref, name string) error {
	repo, tag, err := splitName(name)
	if err != nil {
		return err
	}
	query := url.Values{"repo": {repo}, "tag": {tag}}
	return explain(ctx, "name the image", b.do(ctx, request{method: http.MethodPost, path: imagePath(ref, "/tag"), query: query}))
}

// LoadImage stores the images of an archive that `podman save` made, and returns their names.
func (b *Backend) LoadImage(ctx context.Context, archive io.Reader) ([]string, error) {
	var out struct{ Names []string }
	err := b.transfer(ctx, request{
		method: http.MethodPost, path: "/images/load", stream: archive, out: &out, doing: "load the image",
	})
	return out.Names, err
}

// PrepareImage makes the copy of a new image that containers with our ID range need if the kernel can't map an overlay.
// Otherwise the first session would wait for it. It is made once per image.
func (b *Backend) PrepareImage(ctx context.Context, ref string) error {
	e, err := b.engine(ctx)
	if err != nil {
		return err
	}
	files, err := b.writeHostFiles(sandbox.Spec{})
	if err != nil {
		return err
	}
	spec := sandbox.Spec{ID: "prepare-" + strings.ToLower(rand.Text())}
	c := container{
		name: b.name(spec.ID), image: ref, workspace: b.opts.RuntimeDir, files: files,
		limits: sandbox.Limits{}.WithDefaults(), userns: b.userns(e, spec), labels: b.labels(spec),
	}
	var cleanup undo.Steps
	defer cleanup.Run()
	return b.make(ctx, c, &cleanup)
}
