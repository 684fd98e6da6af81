package files

import (
	"bytes"
	"context"
	"io/fs"

	"github.com/wisbox/wisbox/agent/filewire"
	"github.com/wisbox/wisbox/sandbox"
)

const (
	maxItems   = 1_000_000
	maxSteps   = 10_000_000
	maxWatched = 8192
)

// bounded returns a limit that was asked for, the maximum by default.
func bounded(n, limit int) int {
	if n <= 0 || n > limit {
		return limit
	}
	return n
}

// item reads the item that an operation begins with.
func (o *operation) item(path string) (sandbox.FileInfo, error) {
	typ, payload, err := o.next()
	if err != nil {
		if own := asFailed(err); own != nil && own.err == nil {
			err = o.lost(protocol("an end without a beginning"))
		}
		return sandbox.FileInfo{}, err
	}
	if typ != filewire.IsItem {
		return sandbox.FileInfo{}, o.lost(protocol("something before the item"))
	}
	info, _, err := infoOf(payload, path)
	if err != nil {
		return info, o.lost(err)
	}
	return info, nil
}

// only waits for the end of an operation that sends nothing else.
func (o *operation) only() error {
	_, _, err := o.next()
	if err == nil {
		err = o.lost(protocol("something before the end"))
	}
	return err
}

// do performs an operation whose only answer is its end.
func (f *FS) do(ctx context.Context, ask *filewire.Ask) error {
	o, err := f.begin(ctx, f.short, ask)
	if err != nil {
		return err
	}
	return o.end(o.only())
}

// Stat implements [sandbox.FileSystem].
func (f *FS) Stat(ctx context.Context, path string, opts sandbox.StatOptions) (sandbox.FileInfo, error) {
	o, err := f.begin(ctx, f.short, &filewire.Ask{Do: filewire.Stat, Path: []byte(path), Follow: opts.Follow, Attrs: opts.Attrs})
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	info, err := o.item(path)
	if err == nil {
		err = o.only()
	}
	if err := o.end(err); err != nil {
		return sandbox.FileInfo{}, err
	}
	return info, nil
}

// List implements [sandbox.FileSystem].
func (f *FS) List(ctx context.Context, path string, opts sandbox.ListOptions, each func(sandbox.FileInfo) error) error {
	limit := bounded(opts.Limit, maxItems)
	o, err := f.begin(ctx, f.streams, &filewire.Ask{
		Do: filewire.List, Path: []byte(path), Attrs: opts.Attrs, Depth: max(1, opts.Depth), Limit: limit,
	})
	if err != nil {
		return err
	}
	before := ""
	for {
		typ, payload, err := o.next()
		if err != nil {
			return o.end(err)
		}
		info, name, err := infoOf(payload, "")
		limit--
		switch {
		case err != nil:
			return o.end(o.lost(err))
		case typ != filewire.IsItem || !isName(name) || limit < 0 || before != "" && !follows(string(name), before):
			return o.end(o.lost(protocol("a listing out of order")))
		case bytes.Count(name, []byte("/")) >= max(1, opts.Depth):
			return o.end(o.lost(protocol("a listing of more levels than asked for")))
		}
		before, info.Path = string(name), string(name)
		if err := each(info); err != nil {
			return o.end(err)
		}
	}
}

// Move implements [sandbox.FileSystem].
func (f *FS) Move(ctx context.Context, from, to string, opts sandbox.MoveOptions) error {
	return f.do(ctx, &filewire.Ask{
		Do: filewire.Move, Path: []byte(from), To: []byte(to), Parents: opts.Parents, Exclusive: opts.Exclusive,
	})
}

// Remove implements [sandbox.FileSystem].
func (f *FS) Remove(ctx context.Context, path string, opts sandbox.RemoveOptions) error {
	return f.do(ctx, &filewire.Ask{
		Do: filewire.Remove, Path: []byte(path), Recursive: opts.Recursive, Limit: bounded(opts.Limit, maxSteps),
	})
}

// Mkdir implements [sandbox.FileSystem].
func (f *FS) Mkdir(ctx context.Context, path string, opts sandbox.MkdirOptions) error {
	mode := opts.Mode.Perm()
	if mode == 0 {
		mode = 0o755
	}
	return f.do(ctx, &filewire.Ask{Do: filewire.Mkdir, Path: []byte(path), Parents: opts.Parents, Mode: uint32(mode)})
}

// Chmod implements [sandbox.FileSystem].
func (f *FS) Chmod(ctx context.Context, path string, mode fs.FileMode) error {
	return f.do(ctx, &filewire.Ask{Do: filewire.Chmod, Path: []byte(path), Mode: uint32(mode.Perm())})
}
