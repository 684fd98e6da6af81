package podman

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/wisbox/wisbox/sandbox"
)

const (
	imageTimeout = time.Hour // of a build, a load, a save; the context decides
	maxLine      = 1 << 20   // bytes of one line of progress
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
	Config   struct {
		Entrypoint []string `json:"Entrypoint"`
		Cmd        []string `json:"Cmd"`
	} `json:"Config"`
}

// initName is the base name of the pid 1 that wisbox's images bring, as what
// they run by themselves.
const initName = "wisbox-init"

func (i *image) init() []string {
	argv := append(slices.Clone(i.Config.Entrypoint), i.Config.Cmd...)
	if len(argv) > 0 && path.Base(argv[0]) == initName {
		return argv[:1]
	}
	return reaper
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
	return ImageInfo{ID: i.ID, Tags: i.RepoTags, Labels: i.Labels, Size: i.Size, Created: i.Created}, nil
}

// Images are those of the store that have a label, without what is only a layer of
// others.
func (b *Backend) Images(ctx context.Context, label string) ([]ImageInfo, error) {
	var found []struct {
		ID      string            `json:"Id"`
		Tags    []string          `json:"RepoTags"`
		Labels  map[string]string `json:"Labels"`
		Size    int64             `json:"Size"`
		Created int64             `json:"Created"`
	}
	filters, err := json.Marshal(map[string][]string{"label": {label}})
	if err != nil {
		return nil, err
	}
	query := url.Values{"filters": {string(filters)}}
	err = b.do(ctx, request{method: http.MethodGet, path: "/images/json", query: query, out: &found, doing: "list images"})
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

// BuildImage builds the Containerfile at the top of a tar archive and tags the
// result. args are its ARGs, line gets the output line by line (nil discards).
// RUN steps use the host's network. When ctx ends Podman stops the build.
func (b *Backend) BuildImage(ctx context.Context, contextTar io.Reader, tag string, args map[string]string, line func(string)) error {
	buildArgs, err := json.Marshal(args)
	if err != nil {
		return err
	}
	query := url.Values{
		"dockerfile": {`["Containerfile"]`}, "t": {tag}, "layers": {"false"}, "rm": {"true"}, "forcerm": {"true"},
		"networkmode": {"host"}, "buildargs": {string(buildArgs)}, "pullpolicy": {"missing"},
	}
	return b.transfer(ctx, request{
		method: http.MethodPost, path: "/build", query: query, stream: contextTar,
		sink: &progress{line: line}, doing: "build the image",
	})
}

// PullImage fetches an image from its registry, for as long as ctx allows.
func (b *Backend) PullImage(ctx context.Context, ref string) error {
	query := url.Values{"reference": {ref}, "policy": {"missing"}}
	return b.transfer(ctx, request{
		method: http.MethodPost, path: "/images/pull", query: query, sink: &progress{}, doing: "pull the image",
	})
}

// LoadImage stores the images of an archive that SaveImage or `podman save`
// made, and gives their names.
func (b *Backend) LoadImage(ctx context.Context, archive io.Reader) ([]string, error) {
	var out struct{ Names []string }
	err := b.transfer(ctx, request{
		method: http.MethodPost, path: "/images/load", stream: archive, out: &out, doing: "load the image",
	})
	return out.Names, err
}

// SaveImage writes an image as an archive for LoadImage.
func (b *Backend) SaveImage(ctx context.Context, ref string, w io.Writer) error {
	return b.transfer(ctx, request{
		method: http.MethodGet, path: imagePath(ref, "/get"), query: url.Values{"format": {"docker-archive"}},
		sink: w, doing: "save the image",
	})
}

// transfer is do for streams: they can't be repeated, so the service is known to
// be there before the first byte goes.
func (b *Backend) transfer(ctx context.Context, r request) error {
	e, err := b.engine(ctx)
	if err == nil {
		if err = e.ping(ctx); err != nil {
			b.forget(e)
			e, err = b.engine(ctx)
		}
	}
	if err != nil {
		return err
	}
	if r.stream != nil {
		r.stream = io.NopCloser(r.stream)
	}
	r.limit = imageTimeout
	err = e.do(ctx, r)
	if p, ok := r.sink.(*progress); ok && err == nil {
		err = p.result()
	}
	if isNotFound(err) {
		return fail(sandbox.ErrNotFound, err, "there is no such image")
	}
	return explain(ctx, r.doing, err)
}

// progress reads the JSON lines that Podman streams.
type progress struct {
	line    func(string)
	partial []byte
	failed  string
}

func (p *progress) Write(data []byte) (int, error) {
	p.partial = append(p.partial, data...)
	for {
		one, rest, found := strings.Cut(string(p.partial), "\n")
		if !found {
			break
		}
		p.event(one)
		p.partial = []byte(rest)
	}
	if len(p.partial) > maxLine {
		return 0, errors.New("podman's progress is not in lines")
	}
	return len(data), nil
}

func (p *progress) event(text string) {
	var e struct {
		Stream string `json:"stream"`
		Error  any    `json:"error"`
	}
	if json.Unmarshal([]byte(text), &e) != nil {
		return
	}
	if msg, ok := e.Error.(string); ok && msg != "" {
		p.failed = msg
	}
	if p.line == nil {
		return
	}
	for lines := bufio.NewScanner(strings.NewReader(e.Stream)); lines.Scan(); {
		p.line(lines.Text())
	}
}

func (p *progress) result() error {
	p.event(string(p.partial))
	if p.failed != "" {
		return &apiError{Status: http.StatusInternalServerError, Message: p.failed}
	}
	return nil
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
		name: b.name(spec.ID), image: ref, init: reaper, workspace: b.opts.RuntimeDir, files: files,
		limits: sandbox.Limits{}.WithDefaults(), userns: b.userns(e, spec), labels: b.labels(spec), caps: agentCaps,
	}
	var cleanup undo
	defer cleanup.run()
	return b.make(ctx, c, &cleanup)
}
