package images

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"

	"github.com/wisbox/wisbox/internal/retry"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// FileOptions of [BuildFile].
type FileOptions struct {
	// Context is the directory from which COPY copies. Default: the directory of File, or none if the Containerfile
	// comes from Stdin.
	Context string
	// File is the Containerfile. Default: Containerfile or Dockerfile in Context.
	File string
	// Stdin is read as the Containerfile instead of File, when not nil.
	Stdin io.Reader
	// Tag is the image's name; a name without a registry is below localhost/. Default: localhost/wisbox-built and a
	// hash of the image's inputs.
	Tag string
	// Own allows a Tag that is reserved for wisbox's own images.
	Own bool
	// Args of the Containerfile. They stay readable in the image's history.
	Args map[string]string
	// Rebuild reuses no step of an earlier build.
	Rebuild bool
	// Reuse uses the image of an earlier build from the same content, if there is one. Only without Tag.
	Reuse bool
	// Approve, if set, gets the digest of the build's input, as returned by [ContextDigest], before anything is built.
	// Its error ends the build, and so does a file that changes afterwards. Only without Tag.
	Approve func(digest string) error
	// MaxContext bounds the context's bytes; default DefaultMaxContext.
	MaxContext int64
	// Progress gets the output line by line; nil drops it.
	Progress func(line string)
}

// BuildFile builds a user's own Containerfile. Its steps run as root in a container with the host's network, as with
// podman build --network host: build only files that you trust. Its errors are [*tool.Error]s, or the Builder's.
func BuildFile(ctx context.Context, b Builder, opts *FileOptions) (Report, error) {
	start := time.Now()
	c, err := openContext(ctx, opts)
	if err != nil {
		return Report{}, err
	}
	defer c.close()
	tag, err := fileTag(ctx, c, opts)
	if err != nil {
		return Report{}, err
	}
	if err := needDefault(ctx, b, c.content); err != nil {
		return Report{}, err
	}
	say := opts.Progress
	if say == nil {
		say = func(string) {}
	}
	before, err := b.ImageInfo(ctx, tag)
	if err == nil && opts.Reuse && opts.Tag == "" && before.Labels[labelBuilt] == tag {
		return Report{Image: tag, ID: before.ID, Size: before.Size, Duration: time.Since(start)}, nil
	}
	build := sandbox.ImageBuild{
		File: sentFile, Exclude: []string{sentFile}, Tag: tag, Args: opts.Args, Labels: map[string]string{labelBuilt: tag},
		Layers: !opts.Rebuild, HereDocs: hereDocs().Match(c.content), Explain: true, Progress: say,
	}
	if err := c.send(ctx, b, build); err != nil {
		return Report{}, err
	}
	info, err := b.ImageInfo(ctx, tag)
	if err != nil {
		return Report{}, err
	}
	if err := prepare(ctx, b, tag); err != nil {
		return Report{}, err
	}
	removeReplaced(ctx, b, before, info.ID, say)
	return Report{Image: tag, ID: info.ID, Size: info.Size, Duration: time.Since(start)}, nil
}

// hereDocs matches an instruction with a here-document.
var hereDocs = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?im)^[ \t]*(RUN|COPY|ADD)\b.*<<-?[ \t]*["']?[A-Za-z_]`)
})

// ContextDigest returns a digest of a build's input: the Containerfile, its arguments and the files of its context,
// except times.
func ContextDigest(ctx context.Context, opts *FileOptions) (string, error) {
	c, err := openContext(ctx, opts)
	if err != nil {
		return "", err
	}
	defer c.close()
	return c.digest(ctx, c.look)
}

// sends bounds the attempts of a build: Podman looks through all images for a cached step, and fails if one of them is
// removed meanwhile.
var sends = retry.Times{Count: 3, Pause: 200 * time.Millisecond}

func (c *buildContext) send(ctx context.Context, b Builder, build sandbox.ImageBuild) error {
	return sends.Do(ctx, func(err error) bool { return strings.Contains(err.Error(), "layer not known") }, func() error { return c.sendOnce(ctx, b, build) })
}

// sendOnce streams the context to the builder. An error of one of the files takes precedence over the builder's own error
// about the incomplete context.
func (c *buildContext) sendOnce(ctx context.Context, b Builder, build sandbox.ImageBuild) error {
	r, w := io.Pipe()
	read := make(chan error, 1)
	go func() {
		err := c.writeTo(ctx, w)
		_ = w.CloseWithError(err)
		read <- err
	}()
	buildErr := b.BuildImage(ctx, r, build)
	_ = r.CloseWithError(io.ErrClosedPipe) // the builder may have failed before it read everything
	readErr := <-read
	if known := (*tool.Error)(nil); errors.As(readErr, &known) {
		return known
	}
	return buildErr
}

func openContext(ctx context.Context, opts *FileOptions) (*buildContext, error) {
	c := &buildContext{most: maxContextEntries, args: opts.Args}
	dir, file := opts.Context, opts.File
	if dir == "" && opts.Stdin == nil {
		dir = filepath.Dir(file)
	}
	var err error
	if dir != "" {
		if c.root, err = openRoot(dir); err != nil {
			return nil, err
		}
	}
	if err = c.containerfile(dir, file, opts.Stdin); err == nil && c.root != nil {
		err = c.scan(ctx, c.file, cmp.Or(opts.MaxContext, DefaultMaxContext))
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func openRoot(dir string) (*os.Root, error) {
	if strings.Contains(dir, "://") || strings.HasPrefix(dir, "git@") {
		return nil, tool.Errorf(tool.Invalid, "context %s: it is not a folder; fetch it first, and name the folder", dir).In("context")
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, tool.Errorf(tool.NotFound, "context %s: folder not found; check the path", dir).In("context")
	case err == nil && !info.IsDir():
		return nil, tool.Errorf(tool.NotDir, "context %s: it is a file; name the folder, and the Containerfile with -f", dir).In("context")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, tool.Errorf(tool.Permission, "context %s: it can't be opened; check its mode", dir).In("context").Because(err)
	}
	return root, nil
}

// containerfile reads the Containerfile; file is its path in the context, "" if it is elsewhere.
func (c *buildContext) containerfile(dir, file string, stdin io.Reader) error {
	from, name := stdin, "Containerfile"
	if stdin == nil {
		if file == "" {
			file = defaultFile(dir)
		}
		if file == "" {
			return tool.Errorf(tool.NotFound, "context %s: it has neither a Containerfile nor a Dockerfile; name one with -f", dir).In("file")
		}
		f, err := os.OpenFile(file, os.O_RDONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return tool.Errorf(tool.NotFound, "Containerfile %s: file not found; check the path", file).In("file")
		}
		if err != nil {
			return tool.Errorf(tool.Permission, "Containerfile %s: it can't be opened; check its mode", file).In("file").Because(err)
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.IsDir() {
			return tool.Errorf(tool.IsDir, "Containerfile %s: it is a folder; name the file in it", file).In("file")
		}
		from, name = f, "Containerfile "+file
	}
	data, err := io.ReadAll(io.LimitReader(from, maxContainerfile+1))
	switch {
	case err != nil:
		return tool.Errorf(tool.Unavailable, "%s: it can't be read; try again", name).In("file").Because(err)
	case len(data) > maxContainerfile:
		return tool.Errorf(tool.TooLarge, "%s: it has more than 1 MiB, the maximum; check that it is a Containerfile", name).In("file")
	case len(bytes.TrimSpace(data)) == 0:
		return tool.Errorf(tool.Invalid, "%s: it is empty; begin it with FROM", name).In("file")
	case bytes.IndexByte(data, 0) >= 0:
		return tool.Errorf(tool.Invalid, "%s: it is not text; name the Containerfile", name).In("file")
	}
	c.content, c.file = data, within(dir, file)
	return nil
}

func defaultFile(dir string) string {
	for _, name := range []string{"Containerfile", "Dockerfile"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return filepath.Join(dir, name)
		}
	}
	return ""
}

// within returns the path of a file below dir, with slashes, or "" if it is elsewhere.
func within(dir, file string) string {
	if dir == "" || file == "" {
		return ""
	}
	absDir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	absFile, err := filepath.Abs(file)
	if err != nil {
		return ""
	}
	rel, err := filepath.Rel(absDir, absFile)
	if err != nil || !filepath.IsLocal(rel) {
		return ""
	}
	return filepath.ToSlash(rel)
}

// fileTag returns the image's full name.
func fileTag(ctx context.Context, c *buildContext, opts *FileOptions) (string, error) {
	switch {
	case opts.Tag != "" && opts.Own:
		return opts.Tag, nil
	case opts.Tag != "":
		return FullName(opts.Tag)
	}
	digest, err := c.digest(ctx, c.look)
	if err == nil && opts.Approve != nil {
		err = opts.Approve(digest)
	}
	c.approved = digest
	if err != nil {
		return "", err
	}
	return "localhost/wisbox-built:" + digest[:12], nil
}

// reserved matches the names of wisbox's own images.
var reserved = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^localhost/wisbox(-base|-with|-built|-agent|-template)?:`)
})

// FullName completes the name of an image to build: below localhost/ if it has no registry, and with the tag latest if
// it has none.
func FullName(name string) (string, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return "", tool.Errorf(tool.Invalid, "tag is %q; write the name of an image as localhost/mine:1", name).In("tag").Because(err)
	}
	if _, ok := named.(reference.Digested); ok {
		return "", tool.Errorf(tool.Invalid, "tag %s: a digest comes with the content; leave it out", name).In("tag")
	}
	full := reference.TagNameOnly(named).String()
	if !strings.HasPrefix(name, reference.Domain(named)+"/") {
		full = "localhost/" + strings.TrimPrefix(strings.TrimPrefix(full, reference.Domain(named)+"/"), "library/")
	}
	if reserved().MatchString(full) {
		return "", tool.Errorf(tool.Exists, "tag %s: wisbox gives this name to images of its own; choose another", name).In("tag")
	}
	return full, nil
}

// fromDefault matches a Containerfile that is based on the default image.
var fromDefault = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?im)^[ \t]*FROM[ \t]+(--\S+[ \t]+)*["']?localhost/wisbox(:latest)?["']?([ \t]|\r?$)`)
})

// needDefault gives the default image the name that the Containerfile uses, which the image of another version may
// have.
func needDefault(ctx context.Context, b Builder, containerfile []byte) error {
	if !fromDefault().Match(containerfile) {
		return nil
	}
	info, err := b.ImageInfo(ctx, Default)
	if errors.Is(err, sandbox.ErrNotFound) {
		return tool.Errorf(tool.Unavailable, "Containerfile: its base is wisbox's image, which doesn't exist yet; build that once with: wisbox image build")
	}
	if err != nil {
		return err
	}
	return tagLatest(ctx, b, info.ID)
}
