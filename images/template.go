package images

import (
	"context"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"

	"github.com/wisbox/wisbox/internal/builds"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

const templateRepository = "localhost/wisbox-template"

// TemplateName returns the image name of a built template.
func TemplateName(id string) string { return templateRepository + ":" + id }

// IsTemplate reports whether an image is that of a template.
func IsTemplate(ref string) bool { return strings.HasPrefix(ref, templateRepository+":") }

// Program is the program that a template's sandboxes start.
type Program struct {
	Start, Ready string // for bash; "" means none
	Dir          string // directory in which programs begin, "" for their home
}

// ProgramOf returns the Program of a template's image.
func ProgramOf(info sandbox.ImageInfo) Program {
	return Program{Start: info.Labels[labelStart], Ready: info.Labels[labelReady], Dir: info.Workdir}
}

// TemplateOptions of [BuildTemplate]. ID and Recipe are required.
type TemplateOptions struct {
	ID string
	// Recipe has the steps. The caller checks it first.
	Recipe *builds.Recipe
	// Base is the full name of an image in the store; default Default. It is never pulled.
	Base string
	// Own allows a template's image as Base.
	Own bool
	// Start and Ready are as in Program; default the base's.
	Start, Ready string
	// Network gives steps the host's network; otherwise they have none.
	Network bool
	// Memory, in bytes, and CPUs bound a step; 0 means no limit.
	Memory int64
	CPUs   float64
	// MaxDisk is as in [sandbox.ImageBuild].
	MaxDisk int64
	// Progress gets the output line by line, with the number of the step: 0 before the first, the number of steps plus
	// one after the last. nil drops it.
	Progress func(step int, line string)
}

// BuildTemplate builds the image of a template. Its Report's Size excludes the base. Errors of the recipe are
// [*builds.StepError]s, others [*tool.Error]s, or the Builder's. On an error nothing is left.
func BuildTemplate(ctx context.Context, b Builder, o *TemplateOptions) (Report, error) {
	start, tag := time.Now(), TemplateName(o.ID)
	base, err := templateBase(ctx, b, o.Base, o.Own)
	if err != nil {
		return Report{}, err
	}
	text, stepOf := o.Recipe.Containerfile(base.ID)
	said := &narrator{recipe: o.Recipe, stepOf: stepOf, tell: o.Progress}
	build := sandbox.ImageBuild{
		Tag: tag, Labels: o.labels(tag), NoNetwork: !o.Network, Memory: o.Memory, CPUs: o.CPUs, MaxDisk: o.MaxDisk, Explain: true, Progress: said.line,
	}
	if err := sendRecipe(ctx, b, o.Recipe, text, build); err != nil {
		if errors.Is(err, sandbox.ErrInvalid) {
			err = said.failure(err)
		}
		return Report{}, err
	}
	info, err := b.ImageInfo(ctx, tag)
	if err != nil {
		return Report{}, err
	}
	return Report{Image: tag, ID: info.ID, Size: max(0, info.Size-base.Size), Duration: time.Since(start)}, nil
}

func (o *TemplateOptions) labels(tag string) map[string]string {
	all := map[string]string{labelTemplate: tag}
	if o.Start != "" {
		all[labelStart], all[labelReady] = o.Start, o.Ready
	}
	if o.Ready != "" {
		all[labelReady] = o.Ready
	}
	return all
}

func sendRecipe(ctx context.Context, b Builder, recipe *builds.Recipe, text []byte, build sandbox.ImageBuild) error {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := recipe.WriteContext(ctx, w, text)
		_ = w.CloseWithError(err)
		written <- err
	}()
	err := b.BuildImage(ctx, r, build)
	_ = r.CloseWithError(io.ErrClosedPipe) // the builder may have failed before it read all
	if failed := (*builds.StepError)(nil); errors.As(<-written, &failed) {
		return failed
	}
	return err
}

// templateBase finds the base image of a template by its complete name: with the beginning of an ID, or the name of a
// template's image, a client could reach the images of others.
func templateBase(ctx context.Context, b Builder, ref string, own bool) (sandbox.ImageInfo, error) {
	if ref == "" {
		ref = Default
	}
	for _, name := range baseNames(ref) {
		if IsTemplate(name) && !own {
			continue
		}
		info, err := b.ImageInfo(ctx, name)
		switch {
		case err == nil && slices.Contains(info.Tags, name):
			return info, nil
		case err != nil && !errors.Is(err, sandbox.ErrNotFound):
			return info, err
		}
	}
	if ref == Default || own {
		return sandbox.ImageInfo{}, tool.Errorf(tool.Unavailable, "image %s not found; build wisbox's once with: wisbox image build", ref)
	}
	return sandbox.ImageInfo{}, tool.Errorf(tool.NotFound, "fromImage is %q, which is not an image of the server's machine; leave it out, or ask the server's operator to fetch it with: wisbox image pull", ref).In("fromImage")
}

// baseNames returns the full names for which a name may stand.
func baseNames(ref string) []string {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return nil
	}
	tagged := reference.TagNameOnly(named)
	return []string{tagged.String(), "localhost/" + strings.TrimPrefix(reference.Path(tagged), "library/") + ":" + tagOf(tagged)}
}

// narrator describes the progress of a build in terms of its recipe.
type narrator struct {
	recipe *builds.Recipe
	stepOf []int
	tell   func(step int, line string)

	mu   sync.Mutex
	step int
}

var (
	stepLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^STEP (\d+)/\d+: `) })
	noiseOf  = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(COMMIT |--> |Successfully tagged |Getting image source|Copying (blob|config) |Writing manifest |Storing signatures|[0-9a-f]{64}$|error running container: )`)
	})
	exitStatus = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`exit status (\d+)\s*(;|$)`) })
)

func (n *narrator) line(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := stepLine().FindStringSubmatch(line)
	if m == nil {
		if n.tell != nil && !noiseOf().MatchString(line) {
			n.tell(n.step, line)
		}
		return
	}
	at, err := strconv.Atoi(m[1])
	if err != nil || at >= len(n.stepOf) || n.stepOf[at] <= n.step { // programs may print such lines, too
		return
	}
	n.step = n.stepOf[at]
	if n.tell != nil && n.step <= len(n.recipe.Steps) {
		n.tell(n.step, "["+strconv.Itoa(n.step)+"/"+strconv.Itoa(len(n.recipe.Steps))+"] "+n.recipe.Steps[n.step-1].String())
	}
}

// failure returns the error of the step that failed.
func (n *narrator) failure(err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	what, why := "the beginning of the build", strings.TrimSuffix(strings.TrimPrefix(err.Error(), "Containerfile: "), "; change that, and build again")
	if n.step > 0 {
		what = "the end of the build"
	}
	if n.step > 0 && n.step <= len(n.recipe.Steps) {
		what = "step " + strconv.Itoa(n.step) + ", " + n.recipe.Steps[n.step-1].String() + ","
	}
	failed := tool.Errorf(tool.Invalid, "%s failed: %s", what, plainWords(why)).Because(err)
	if m := exitStatus().FindStringSubmatch(why); m != nil {
		failed = tool.Errorf(tool.Invalid, "%s ended with exit status %s; the log has its output", what, m[1]).Because(err)
	}
	return &builds.StepError{Step: n.step, Err: failed}
}

// inPodman matches host paths in Podman's messages.
var inPodman = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`/(var|run|tmp|root|home)/\S*(storage|containers|buildah|libpod)\S*`)
})

func plainWords(s string) string { return inPodman().ReplaceAllString(s, "…") }

// PruneTemplates removes the images of templates for which keep returns false and that nothing uses. It continues after
// an error.
func PruneTemplates(ctx context.Context, s Store, keep func(info sandbox.ImageInfo, name string) bool) error {
	all, err := s.Images(ctx)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, info := range all {
		own := info.Labels[labelTemplate]
		alone := len(info.Tags) == 0 || len(info.Tags) == 1 && info.Tags[0] == own
		if seen[info.ID] || !IsTemplate(own) || !alone || keep(info, own) {
			continue
		}
		seen[info.ID] = true
		gone := s.RemoveImage(ctx, info.ID)
		if !errors.Is(gone, sandbox.ErrExists) && !errors.Is(gone, sandbox.ErrNotFound) { // a container uses it, or it is gone
			err = errors.Join(err, gone)
		}
	}
	return err
}
