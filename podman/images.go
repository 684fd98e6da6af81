package podman

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/undo"
	"github.com/wisbox/wisbox/sandbox"
)

// ImageInfo describes an image in Podman's store.
type ImageInfo = sandbox.ImageInfo

// image is the part of an image's description that is used.
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

// envOf is the environment that an image gives its programs, none where it is gone.
func (b *Backend) envOf(ctx context.Context, id string) []string {
	image, err := b.inspectImage(ctx, id)
	if err != nil {
		b.log.Debug("the image of a container is not there", "image", id, "error", err)
		return nil
	}
	return image.Config.Env
}

// programEnv is what an image's environment is to programs: without a home, which
// would be another user's, and with our directories after those of its PATH.
func programEnv(imageEnv []string) []string {
	var out []string
	for _, kv := range imageEnv {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case !variable(kv), name == "HOME":
			continue
		case name == "PATH":
			kv = "PATH=" + joinPath(value, fixedEnv["PATH"])
		}
		out = append(out, kv)
	}
	return out
}

// pathOf is the PATH of an environment.
func pathOf(env []string) string {
	for _, kv := range slices.Backward(env) {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			return path
		}
	}
	return fixedEnv["PATH"]
}

// joinPath adds to a PATH what it lacks of another.
func joinPath(first, then string) string {
	dirs := strings.Split(first, ":")
	for dir := range strings.SplitSeq(then, ":") {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return strings.TrimPrefix(strings.Join(dirs, ":"), ":")
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
		return ImageInfo{}, fail(sandbox.ErrNotFound, err, "no image %s", ref)
	}
	if err != nil {
		return ImageInfo{}, explain(ctx, "look at the image", err)
	}
	return ImageInfo{ID: i.ID, Tags: i.RepoTags, Labels: i.Labels, Workdir: i.Config.Workdir, Size: i.Size, Created: i.Created}, nil
}

// Images are those of the store, without what is only a layer of others.
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

// RemoveImage removes an image by its id. One that a container has, or that has
// several names, is not removed: the error wraps sandbox.ErrExists.
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

// TagImage gives an image of the store one more name, and takes it from the image
// that had it.
func (b *Backend) TagImage(ctx context.Context, ref, name string) error {
	repo, tag, err := splitName(name)
	if err != nil {
		return err
	}
	query := url.Values{"repo": {repo}, "tag": {tag}}
	return explain(ctx, "name the image", b.do(ctx, request{method: http.MethodPost, path: imagePath(ref, "/tag"), query: query}))
}

// LoadImage stores the images of an archive that `podman save` made, and gives their names.
func (b *Backend) LoadImage(ctx context.Context, archive io.Reader) ([]string, error) {
	var out struct{ Names []string }
	err := b.transfer(ctx, request{
		method: http.MethodPost, path: "/images/load", stream: archive, out: &out, doing: "load the image",
	})
	return out.Names, err
}

// PrepareImage makes the copy of a new image that containers with our ID range
// need, where the kernel can't map an overlay by itself: so that the first
// session doesn't pay for it. It is done once an image.
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
