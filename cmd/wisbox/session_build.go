package main

import (
	"bytes"
	"context"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/config"
	"github.com/wisbox/wisbox/tool"
)

// buildImage builds the image of --containerfile, or of a file's key, unless the store has one with
// the same content. It builds the bytes that were read, because a person trusted exactly those.
func (a *app) buildImage(ctx context.Context, m *wisbox.Manager, f *sessionFlags, opts *wisbox.SessionOptions) error {
	if f.build == "" {
		return nil
	}
	b, ok := m.Backend().(images.Builder)
	if !ok {
		return tool.Errorf(tool.Unsupported, "this backend builds no images")
	}
	build := &images.FileOptions{File: f.build, Reuse: true}
	if c := f.taken["containerfile"]; c != nil {
		build = projectBuild(c.Files[0])
	}
	report, err := a.buildFile(ctx, b, build)
	if err != nil {
		e := tool.AsError(buildError(err))
		return tool.Errorf(e.Kind, "%s: %s", f.origin("containerfile"), e.Message).Because(err)
	}
	opts.Image = report.Image
	return nil
}

// projectBuild returns the build of a project's Containerfile. The build sees files of the project
// only if it may copy some, and then only those that a person has trusted.
func projectBuild(f *config.File) *images.FileOptions {
	build := &images.FileOptions{Stdin: bytes.NewReader(f.Containerfile), Reuse: true}
	if !f.CopiesFiles() {
		return build
	}
	build.Context = f.Dir()
	build.Approve = func(digest string) error {
		trusted, err := f.TrustsContext(digest)
		if err == nil && !trusted {
			err = tool.Errorf(tool.Permission, "files that the build may copy have changed since you trusted the project; look at them, then: wisbox trust %s; a .containerignore keeps others out", f.Dir())
		}
		return err
	}
	return build
}

// buildFile builds a Containerfile and shows the progress.
func (a *app) buildFile(ctx context.Context, b images.Builder, opts *images.FileOptions) (report images.Report, err error) {
	err = a.watched(func(say func(string)) error {
		opts.Progress = say
		report, err = images.BuildFile(ctx, b, opts)
		return err
	})
	return report, err
}
