// Package images builds the container images for sessions. The default one is Debian with Python 3.12, bash, git,
// ripgrep, SBCL and common developer tools, from one Containerfile; presets add packages to it, and users can build
// others from their own Containerfiles. The package also classifies the images of the store, and decides which of them
// may be removed.
//
// The base is docker.io/library/python:3.12-slim if a registry answers. Otherwise a base of the same form is built from
// Debian's packages (mmdebstrap) and a relocatable CPython (a Go module): the same command works on a machine that
// reaches only a Debian mirror and a Go module proxy.
//
// The package knows nothing of Podman: it hands archives to a [Builder].
package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync"
	"time"

	"github.com/wisbox/wisbox/sandbox"
)

// Default is the default image of sessions. Its tag is a hash of all its inputs, so a new wisbox never uses the image
// of an old one.
var Default = "localhost/wisbox:" + inputs()[:12]

// Latest is a second name of Default, for the FROM line of a Containerfile. It names the image that was built last.
const Latest = "localhost/wisbox:latest"

var ofAnyVersion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^localhost/wisbox:[0-9a-f]{12}$`) })

// OfOtherVersion reports whether an image is the Default of another version.
func OfOtherVersion(ref string) bool { return ref != Default && ofAnyVersion().MatchString(ref) }

// Builder is the image store for Build; *podman.Backend is one. It is called from one goroutine at a time.
type Builder interface {
	// BuildImage builds a Containerfile of the tar and tags the result. The steps run with the host's network, unless
	// the build has none.
	BuildImage(ctx context.Context, contextTar io.Reader, build sandbox.ImageBuild) error
	// ImageInfo describes an image of the store, or wraps sandbox.ErrNotFound.
	ImageInfo(ctx context.Context, ref string) (sandbox.ImageInfo, error)
	// PullImage fetches an image from its registry.
	PullImage(ctx context.Context, ref string, opts *sandbox.PullOptions) error
	// TagImage gives an image another name. An image that had the name loses it.
	TagImage(ctx context.Context, ref, name string) error
	// LoadImage loads a docker-archive and returns the names in it.
	LoadImage(ctx context.Context, archive io.Reader) ([]string, error)
}

// Preparer is a Builder that can prepare an image before its first session (a copy with shifted owners, if the store
// needs one).
type Preparer interface {
	PrepareImage(ctx context.Context, ref string) error
}

// Base is the kind of base of an image.
type Base string

const (
	BaseAuto     Base = ""         // the registry's if one answers, else Debian's
	BaseRegistry Base = "registry" // docker.io/library/python:3.12-slim
	BaseDebian   Base = "debian"   // Debian's packages and a relocatable CPython
)

// Options of [Build]. Nil and zero work.
type Options struct {
	// Tag is the image's name; default Default.
	Tag string
	// Base forces a base; default BaseAuto.
	Base Base
	// Rebuild builds even if the tag exists, with fresh packages.
	Rebuild bool
	// Mirror is the Debian mirror of BaseDebian; default mmdebstrap's own.
	Mirror string
	// BaseArchive is a file of BaseDebian, written by [WriteBase]. It is loaded if that base is needed and isn't there.
	BaseArchive string
	// Progress gets one line for each step, from one goroutine at a time; nil drops them.
	Progress func(line string)
}

// Report is the result of a build.
type Report struct {
	Image string `json:"image"`
	ID    string `json:"id"`
	Size  int64  `json:"size_bytes"`
	// Base of the default image, also of the one below a preset.
	Base     Base          `json:"base,omitempty"`
	With     []string      `json:"with,omitempty"` // the presets
	Cached   bool          `json:"cached"`         // the image existed: nothing was built
	Duration time.Duration `json:"duration_ns"`
}

// Build builds the image unless the store has it. It takes about a minute the first time. If ctx ends or a step fails,
// there is no tag; a finished base stays for the next Build.
func Build(ctx context.Context, b Builder, opts *Options) (Report, error) {
	bd := newBuild(b, opts)
	start := time.Now()
	report, err := bd.run(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("build image %s: %w", bd.opts.Tag, err)
	}
	report.Duration = time.Since(start)
	return report, nil
}

// build is a running Build.
type build struct {
	Builder
	opts  Options
	mu    sync.Mutex // guards opts.Progress
	probe func(context.Context) error
	make  func(context.Context, io.Writer) error // writes the layer of BaseDebian
}

func newBuild(b Builder, opts *Options) *build {
	if opts == nil {
		opts = &Options{}
	}
	bd := &build{Builder: b, opts: *opts, probe: probeRegistry}
	if bd.opts.Tag == "" {
		bd.opts.Tag = Default
	}
	bd.make = bd.writeDebianLayer
	return bd
}

func (b *build) run(ctx context.Context) (Report, error) {
	switch b.opts.Base {
	case BaseAuto, BaseRegistry, BaseDebian:
	default:
		return Report{}, fmt.Errorf("unknown base %q; it must be registry or debian", b.opts.Base)
	}
	if report, ok, err := b.cached(ctx); ok || err != nil {
		return report, err
	}
	kind, ref, err := b.base(ctx)
	if err != nil {
		return Report{}, err
	}
	before, _ := b.ImageInfo(ctx, b.opts.Tag) // on an error there is nothing to remove later
	args := map[string]string{"BASE": ref, "BASE_KIND": string(kind), "INPUTS": inputs()}
	if err := b.BuildImage(ctx, contextTar(), sandbox.ImageBuild{Tag: b.opts.Tag, Args: args, Progress: b.say}); err != nil {
		return Report{}, err
	}
	if err := b.prepare(ctx); err != nil {
		return Report{}, err
	}
	report, err := b.report(ctx, kind)
	if err == nil {
		err = b.tagLatest(ctx, report.ID)
		removeReplaced(ctx, b.Builder, before, report.ID, b.say)
	}
	return report, err
}

// tagLatest gives the default image its second name.
func (b *build) tagLatest(ctx context.Context, id string) error {
	if b.opts.Tag != Default {
		return nil
	}
	return tagLatest(ctx, b.Builder, id)
}

func tagLatest(ctx context.Context, b Builder, id string) error {
	has, err := b.ImageInfo(ctx, Latest)
	if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		return err
	}
	if has.ID == id {
		return nil
	}
	return b.TagImage(ctx, id, Latest)
}

// cached reports whether the image was already built from the same inputs.
func (b *build) cached(ctx context.Context) (Report, bool, error) {
	info, err := b.ImageInfo(ctx, b.opts.Tag)
	switch {
	case errors.Is(err, sandbox.ErrNotFound):
		return Report{}, false, nil
	case err != nil:
		return Report{}, false, err
	case b.opts.Rebuild || info.Labels[labelInputs] != inputs():
		return Report{}, false, nil
	}
	base := Base(info.Labels["wisbox.base"])
	if b.opts.Base != BaseAuto && b.opts.Base != base {
		return Report{}, false, nil
	}
	b.say("image " + b.opts.Tag + " is there already (base: " + string(base) + ")")
	report, err := b.report(ctx, base)
	report.Cached = true
	return report, true, errors.Join(err, b.prepare(ctx), b.tagLatest(ctx, report.ID))
}

func (b *build) report(ctx context.Context, kind Base) (Report, error) {
	info, err := b.ImageInfo(ctx, b.opts.Tag)
	if err != nil {
		return Report{}, err
	}
	return Report{Image: b.opts.Tag, ID: info.ID, Size: info.Size, Base: kind}, nil
}

func (b *build) prepare(ctx context.Context) error { return prepare(ctx, b.Builder, b.opts.Tag) }

func prepare(ctx context.Context, b any, ref string) error {
	if p, ok := b.(Preparer); ok {
		return p.PrepareImage(ctx, ref)
	}
	return nil
}

// removeReplaced removes the image that had the tag before and has no name now, if one of our builds made it with only
// that name and no container uses it.
func removeReplaced(ctx context.Context, b Builder, before sandbox.ImageInfo, now string, say func(string)) {
	store, ok := b.(Store)
	if !ok || before.ID == "" || before.ID == now || !wholly(before) {
		return
	}
	if err := store.RemoveImage(ctx, before.ID); err != nil {
		say("the image that had this name before stays: " + err.Error())
	}
}

func (b *build) say(line string) {
	if b.opts.Progress == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opts.Progress(line)
}
