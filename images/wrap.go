package images

import (
	"archive/tar"
	"archive/zip"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"sync"
)

// Pods is the default image of sessions on Kubernetes: Default with wisbox in it.
const Pods = podRepository + ":latest"

const (
	podRepository = "localhost/wisbox-pod"
	podProgram    = "usr/local/bin/wisbox" // the containers of a Pod execute this
)

// WrapOptions are the options of [Wrap]. Program is required.
type WrapOptions struct {
	// Image is the base image. Default: Default.
	Image string
	// Tag names the new image; a name without a registry gets the prefix localhost/. Default: Pods for
	// Default, else localhost/wisbox-pod-NAME with the name and the tag of Image.
	Tag string
	// Program is the path of wisbox: a static Linux program.
	Program string
	// Shared maps names in ShareDir of the new image to files of this machine. Default none.
	Shared   map[string]string
	ShareDir string // an absolute path; required with Shared
	// Attached maps names in a zip archive, which is appended to the program, to files of this machine. Unlike
	// files of Shared, the base image can't add any. Default none.
	Attached map[string]string
	// Pull says when to pull Image from the registry in its name: "missing" (the default), "always" or
	// "never".
	Pull string
	// Progress is called for each line of progress; nil discards them.
	Progress func(line string)
}

// Values of WrapOptions.Pull.
const (
	pullNever  = "never"
	pullAlways = "always"
)

// Wrap builds an image for the Pods of sessions: any Linux image with wisbox added. The build runs no
// program of the image except its ONBUILD steps, so the image may lack a shell. The user, the environment
// and the entry point stay unchanged. Errors are [*tool.Error]s, or the Builder's.
func Wrap(ctx context.Context, b Builder, opts *WrapOptions) (Report, error) {
	start, o := time.Now(), *opts
	if o.Image == "" {
		o.Image = Default
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	tag, err := o.tag()
	if err != nil {
		return Report{}, err
	}
	files, err := o.files()
	if err != nil {
		return Report{}, err
	}
	defer closeAll(files)
	base, err := o.base(ctx, b)
	if err != nil {
		return Report{}, err
	}
	before, err := b.ImageInfo(ctx, tag)
	if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		return Report{}, err
	}
	build := sandbox.ImageBuild{
		Tag: tag, Args: map[string]string{"BASE": base.ID}, Labels: map[string]string{labelBuilt: tag},
		Layers: true, NoNetwork: true, Explain: true, Progress: o.Progress,
	}
	if err := sendWrap(ctx, b, files, build); err != nil {
		return Report{}, err
	}
	info, err := b.ImageInfo(ctx, tag)
	if err != nil {
		return Report{}, err
	}
	removeReplaced(ctx, b, before, info.ID, o.Progress)
	return Report{Image: tag, ID: info.ID, Size: info.Size, Duration: time.Since(start)}, nil
}

// wrapped is a file to add to an image.
type wrapped struct {
	from io.Reader
	size int64
	to   string // in the image, without the leading slash
	mode string
	open []io.Closer
}

// files opens the files to add. Rarely changed files come first, so that Podman's cache has them.
func (o *WrapOptions) files() (files []wrapped, err error) {
	defer func() {
		if err != nil {
			closeAll(files)
		}
	}()
	for _, name := range slices.Sorted(maps.Keys(o.Shared)) {
		f, size, err := openFile(o.Shared[name])
		if err != nil {
			return files, errUnreadable(name, err)
		}
		files = append(files, wrapped{f, size, path.Join(strings.TrimPrefix(o.ShareDir, "/"), name), "0644", []io.Closer{f}})
	}
	program, size, err := openStatic(o.Program)
	if err != nil {
		return files, err
	}
	files = append(files, wrapped{program, size, podProgram, "0755", []io.Closer{program}})
	if len(o.Attached) == 0 {
		return files, nil
	}
	return files, o.attach(&files[len(files)-1])
}

func errUnreadable(name string, cause error) error {
	return tool.Errorf(tool.Unavailable, "a file for the image can't be read; make it readable for this user, or install it again: %s", name).Because(cause)
}

// attach appends the archive of Attached to a program.
func (o *WrapOptions) attach(program *wrapped) error {
	archive, err := os.CreateTemp("", "wisbox-attached-*")
	if err != nil {
		return err
	}
	program.open = append(program.open, archive)
	if err := os.Remove(archive.Name()); err != nil {
		return err
	}
	w := zip.NewWriter(archive)
	w.SetOffset(program.size)
	for _, name := range slices.Sorted(maps.Keys(o.Attached)) {
		if err := attachFile(w, name, o.Attached[name]); err != nil {
			return errUnreadable(name, err)
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	size, err := archive.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	program.from = io.MultiReader(program.from, io.NewSectionReader(archive, 0, size))
	program.size += size
	return nil
}

// attachFile adds a file without a time, so that the same files make the same layer. Registries compress layers.
func attachFile(w *zip.Writer, name, path string) error {
	f, _, err := openFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	to, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
	if err == nil {
		_, err = io.Copy(to, f)
	}
	return err
}

func closeAll(files []wrapped) {
	for _, f := range files {
		for _, c := range f.open {
			c.Close()
		}
	}
}

// wrapRecipe uses only COPY, since an image without a shell can't run a step. Each destination is a
// directory, so that COPY replaces a directory or a link of the file's name.
func wrapRecipe(files []wrapped) string {
	var b strings.Builder
	b.WriteString("ARG BASE\nFROM ${BASE}\n")
	for _, f := range files {
		fmt.Fprintf(&b, "COPY --chown=0:0 --chmod=%s %s /%s/\n", f.mode, path.Base(f.to), path.Dir(f.to))
	}
	return b.String()
}

// sendWrap streams the build context: the files are too large for memory.
func sendWrap(ctx context.Context, b Builder, files []wrapped, build sandbox.ImageBuild) error {
	r, w := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_ = w.CloseWithError(writeWrap(w, files)) // the builder reports the error
	}()
	err := b.BuildImage(ctx, r, build)
	_ = r.CloseWithError(io.ErrClosedPipe) // the builder may have failed before the end
	<-written
	return err
}

func writeWrap(w io.Writer, files []wrapped) error {
	tw, recipe := tar.NewWriter(w), wrapRecipe(files)
	if err := writeEntry(tw, "Containerfile", int64(len(recipe)), strings.NewReader(recipe)); err != nil {
		return err
	}
	for _, f := range files {
		if err := writeEntry(tw, path.Base(f.to), f.size, f.from); err != nil {
			return err
		}
	}
	return tw.Close()
}

func writeEntry(tw *tar.Writer, name string, size int64, from io.Reader) error {
	if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: size}); err != nil {
		return err
	}
	_, err := io.CopyN(tw, from, size)
	return err
}

// base finds the base image, and pulls it if needed.
func (o *WrapOptions) base(ctx context.Context, b Builder) (sandbox.ImageInfo, error) {
	remote := Registry(o.Image) != ""
	info, err := b.ImageInfo(ctx, o.Image)
	missing := errors.Is(err, sandbox.ErrNotFound)
	switch {
	case err != nil && !missing:
		return info, err
	case o.Pull == pullAlways && !remote:
		return info, tool.Errorf(tool.Invalid, "image %s has no registry to be pulled from; leave --pull out, or write the registry in front, as %s", o.Image, Suggest(o.Image)).In("pull")
	case o.Pull == pullAlways, missing && remote && o.Pull != pullNever:
		if err := b.PullImage(ctx, o.Image, &sandbox.PullOptions{Progress: o.Progress}); err != nil {
			return info, err
		}
		if info, err = b.ImageInfo(ctx, o.Image); err != nil {
			return info, err
		}
	case missing && o.Image == Default:
		return info, tool.Errorf(tool.NotFound, "wisbox's own image isn't there; build it once with: wisbox image build").In("image")
	case missing && remote:
		return info, tool.Errorf(tool.NotFound, "image %s isn't on this machine; pull it with: wisbox image pull %s", o.Image, o.Image).In("image")
	case missing:
		return info, tool.Errorf(tool.NotFound, "image %s isn't on this machine; see wisbox image list, or write its registry in front, as %s", o.Image, Suggest(o.Image)).In("image")
	}
	if own := "linux/" + runtime.GOARCH; info.Platform != "" && info.Platform != own {
		return info, tool.Errorf(tool.Unsupported, "image %s is for %s, and this wisbox is for %s; choose an image for %s, or wrap it with the wisbox for %s", o.Image, info.Platform, own, own, info.Platform).In("image")
	}
	return info, nil
}

// imageID matches IDs that Podman accepts, whole or shortened.
var imageID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{12,64}$`) })

// tag returns the name of the new image.
func (o *WrapOptions) tag() (string, error) {
	if strings.HasPrefix(o.Image, podRepository) {
		return "", tool.Errorf(tool.Invalid, "image %s is wrapped already; wrap the image that it was made from, or leave it out for wisbox's own", o.Image).In("image")
	}
	if o.Tag != "" {
		return FullName(o.Tag)
	}
	if o.Image == Default || o.Image == Latest || o.Image == strings.TrimSuffix(Latest, ":latest") {
		return Pods, nil
	}
	id := strings.TrimPrefix(o.Image, "sha256:")
	if imageID().MatchString(id) {
		return podRepository + ":" + id[:12], nil
	}
	named, err := reference.ParseNormalizedNamed(o.Image)
	if err != nil {
		return "", tool.Errorf(tool.Invalid, "image is %q; write the name of an image as docker.io/library/node:22", o.Image).In("image").Because(err)
	}
	tag := "latest"
	switch n := named.(type) {
	case reference.Tagged:
		tag = n.Tag()
	case reference.Digested:
		tag = n.Digest().Encoded()[:12]
	}
	name := strings.ReplaceAll(strings.TrimPrefix(reference.Path(named), "library/"), "/", "-")
	return podRepository + "-" + name + ":" + tag, nil
}

// openFile opens a regular file.
func openFile(path string) (*os.File, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it isn't a regular file")
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// openStatic opens a Linux program and checks that it is statically linked.
func openStatic(path string) (*os.File, int64, error) {
	f, size, err := openFile(path)
	if err != nil {
		return nil, 0, tool.Errorf(tool.Unavailable, "this wisbox can't read its own program file; start it by its path, as a user that may read it").Because(err)
	}
	if err = static(f); err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, size, nil
}

func static(f io.ReaderAt) error {
	program, err := elf.NewFile(f)
	if err != nil {
		return tool.Errorf(tool.Unsupported, "this wisbox isn't a Linux program, which a Pod needs; run this on Linux").Because(err)
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			return tool.Errorf(tool.Unsupported, "this wisbox is linked to libraries that an image may lack; use a released wisbox, or build it with: make build")
		}
	}
	return nil
}
