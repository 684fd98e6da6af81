package wisbox

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/builds"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Pull specifies when the image of a new session is pulled from its registry.
type Pull string

// The values of [SessionOptions.Pull].
const (
	PullMissing Pull = "missing" // if the store doesn't have it
	PullNever   Pull = "never"
	PullAlways  Pull = "always" // even if the store has one with that name
)

// PullProgress is the argument of [SessionOptions.OnPull].
type PullProgress struct {
	Image string
	Step  string // Podman's present step; "" at the beginning and at the end
	Done  bool   // the last report, also of a failed pull
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

// pullImage pulls a new session's image, and those of its services, if requested. Sessions that are
// opened at the same time share one pull.
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

// lacks reports whether the image must be pulled. Files of a session need no Podman: if it can't be
// asked, the session's first program reports that.
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

// Recipe has the steps of a template's build.
type Recipe = builds.Recipe

// TemplateProgram is the program that sandboxes of a built template start with.
type TemplateProgram = images.Program

// TemplateBuild is the argument of [Manager.BuildTemplate]. ID, Name and Recipe are required.
type TemplateBuild struct {
	// ID is the template's ID: 20 random lower-case letters and digits.
	ID string
	// Name, Owner and Tags are the template's; other templates of the name lose these tags.
	Name, Owner string
	Tags        []string
	Recipe      *Recipe
	// Base is an image of the store, which is never pulled and must not be a template's; default
	// Session's. From is the ID of one of the owner's built templates to begin with instead.
	Base, From string
	// Start and Ready are commands for bash, see [TemplateProgram]; default: those of the base.
	Start, Ready string
	// Session has the options for trying the template: its limits also bound each step.
	Session SessionOptions
	// Network gives the steps the host's network; otherwise they have none.
	Network bool
	// MaxDisk bounds the disk space, in bytes. A step ends when the file system of Podman's store
	// has that much less space than at the beginning of the build, for whatever reason, or less
	// than the host needs; default 8 GiB.
	MaxDisk int64
	// Try is called with a session of the template before the template is kept; an error fails the
	// build.
	Try func(ctx context.Context, s *Session) error
	// Progress is called with each line of output and the number of its step: 0 before the first
	// step, len(Steps)+1 after the last. nil discards the output.
	Progress func(step int, line string)
}

// StepError is the error of a build's step; use errors.As.
type StepError = builds.StepError

const defaultBuildDisk = 8 << 30

// BuildTemplate builds an image by the steps, and creates a template from the image and its files
// below /home/user. Steps run as root in one of Podman's own containers, not in a session: build
// only what you trust as much as its network. Another built template of the same name that loses
// its last tag is removed. After an error nothing is left.
func (m *Manager) BuildTemplate(ctx context.Context, o *TemplateBuild) (Template, error) {
	if m.here == nil {
		return Template{}, m.errElsewhere("building a template")
	}
	builder, ok := sandbox.As[images.Builder](m.here.backend)
	if !ok {
		return Template{}, tool.Errorf(tool.Unsupported, "this backend builds no images")
	}
	if err := errors.Join(o.Recipe.Check(), m.here.store.Reserve(ctx)); err != nil {
		return Template{}, err
	}
	t, err := m.buildTemplate(ctx, builder, o)
	if err != nil {
		m.here.pruneImages(context.WithoutCancel(ctx), time.Now().Add(-buildAge), o.ID)
		return Template{}, err
	}
	m.removeReplaced(context.WithoutCancel(ctx), t)
	return t, nil
}

func (m *Manager) buildTemplate(ctx context.Context, builder images.Builder, o *TemplateBuild) (Template, error) {
	limits := o.Session.Limits.WithDefaults()
	base, own := cmp.Or(o.Base, o.Session.Image), o.Base == ""
	if o.From != "" {
		from, err := m.FindTemplate(o.From, o.Owner)
		if err != nil {
			return Template{}, err
		}
		if !from.Built || from.Owner != o.Owner {
			return Template{}, tool.Errorf(tool.NotFound, "there is no built template %q of this owner", o.From)
		}
		base, own = from.Image, true
	}
	report, err := images.BuildTemplate(ctx, builder, &images.TemplateOptions{
		ID: o.ID, Recipe: o.Recipe, Base: base, Own: own, Start: o.Start, Ready: o.Ready,
		Network: o.Network, Memory: limits.Memory, CPUs: limits.CPUs, MaxDisk: cmp.Or(o.MaxDisk, defaultBuildDisk), Progress: o.Progress,
	})
	if err != nil {
		return Template{}, buildError(err)
	}
	opts := o.Session
	opts.Name, opts.Kept, opts.Image, opts.Template, opts.UserHome = "", false, report.Image, "", true
	s, err := m.Open(ctx, &opts)
	if err != nil {
		return Template{}, err
	}
	t, err := o.keep(ctx, s, report)
	return t, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
}

func buildError(err error) error {
	if failed := (*StepError)(nil); errors.As(err, &failed) {
		return failed
	}
	return toolerr.Of(err)
}

// keep creates the template from a session with the built image.
func (o *TemplateBuild) keep(ctx context.Context, s *Session, report images.Report) (Template, error) {
	last := len(o.Recipe.Steps) + 1
	var said opening
	res, err := s.Run(ctx, sandbox.Cmd{
		Argv: []string{"/bin/sh", "-c", "[ ! -d " + builds.Home + " ] || cp -RPp " + builds.Home + "/. " + sandbox.UserHome + "/"}, Stdout: io.Discard, Stderr: &said,
	})
	if err == nil && res.ExitCode != 0 {
		text := strings.ToValidUTF8(string(said.text), "")
		err = &StepError{Step: last, Err: tool.Errorf(tool.Invalid, "the files below %s don't fit into a sandbox: %s", sandbox.UserHome, strings.TrimSpace(text))}
	}
	if err == nil && o.Try != nil {
		if err = o.Try(ctx, s); err != nil {
			err = &StepError{Step: last, Err: err}
		}
	}
	if err != nil {
		return Template{}, err
	}
	op := templateOp{TemplateOptions: TemplateOptions{Name: o.Name, Owner: o.Owner}, Built: &builtAs{ID: o.ID, Tags: o.Tags, Disk: report.Size}}
	return perform[Template](ctx, s, op, hold.Streams{})
}

const maxSaid = 1000 // bytes of a program's output in an error

// opening keeps the beginning of a program's output: the program may never end.
type opening struct{ text []byte }

func (o *opening) Write(data []byte) (int, error) {
	o.text = append(o.text, data[:min(len(data), maxSaid-len(o.text))]...)
	return len(data), nil
}

// removeReplaced removes built templates that lost their last tag to a newer one.
func (m *Manager) removeReplaced(ctx context.Context, by Template) {
	all, err := m.Templates()
	for _, t := range all {
		if t.Built && t.Owner == by.Owner && t.Name == by.Name && t.ID != by.ID && len(t.Tags) == 0 {
			err = errors.Join(err, m.RemoveTemplate(ctx, t.ID))
		}
	}
	if err != nil {
		m.here.log.Warn("remove the templates that a build replaced", "error", err)
	}
}

// TagTemplate adds tags to a built template; other templates of its name lose them.
func (m *Manager) TagTemplate(ctx context.Context, id string, tags []string) (Template, error) {
	if m.here == nil {
		return Template{}, m.errElsewhere("tagging a template")
	}
	t, err := m.here.kept.Tag(ctx, id, tags)
	return t, asToolError(err)
}

// UntagTemplate removes tags of a built template. The template stays.
func (m *Manager) UntagTemplate(ctx context.Context, id string, tags []string) (Template, error) {
	if m.here == nil {
		return Template{}, m.errElsewhere("tagging a template")
	}
	t, err := m.here.kept.Untag(ctx, id, tags)
	return t, asToolError(err)
}

// ProgramOf returns the program that sandboxes of an image start with; it is empty unless a
// template's build made the image.
func (m *Manager) ProgramOf(ctx context.Context, image string) (TemplateProgram, error) {
	if m.here == nil {
		return TemplateProgram{}, m.errElsewhere("looking at an image")
	}
	store, ok := sandbox.As[sandbox.ImageStore](m.here.backend)
	if !ok || !images.IsTemplate(image) {
		return TemplateProgram{}, nil
	}
	info, err := store.ImageInfo(ctx, image)
	return images.ProgramOf(info), toolerr.Of(err)
}

// buildAge is the age from which an image without a template may be removed: the template of a
// younger one may still be in the making.
const buildAge = time.Hour

// pruneImages removes the images of removed templates, if they were created before that time or for
// one of the ids.
func (h *here) pruneImages(ctx context.Context, before time.Time, ids ...string) {
	store, ok := sandbox.As[images.Store](h.backend)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pruneTime)
	defer cancel()
	used, err := imagesOf(ctx, h)
	if err == nil {
		keep := map[string]bool{}
		for _, image := range used {
			keep[image] = true
		}
		named := func(name string) bool {
			return slices.ContainsFunc(ids, func(id string) bool { return images.TemplateName(id) == name })
		}
		err = images.PruneTemplates(ctx, store, func(i sandbox.ImageInfo, name string) bool {
			return keep[name] || !named(name) && !i.Created.Before(before)
		})
	}
	if err != nil {
		h.log.Warn("remove the images of templates that are gone", "error", err)
	}
}

var pruneTime = patience.For(time.Minute)
