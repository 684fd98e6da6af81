package vfs

import (
	"context"
	"io"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/tool"
)

// ReadWhole reads a regular file of at most max bytes (0: the session's limit for whole files, 64
// MiB). It follows links that stay inside. It counts as reading the file for the option
// ReadBeforeWrite.
func (f *FS) ReadWhole(ctx context.Context, path string, max int64) ([]byte, Info, error) {
	if max <= 0 {
		max = f.opts.Limits.WholeBytes
	}
	file, err := f.reach(ctx, path, "path", f.opts.Paths.clean, f.tree.Open)
	if err != nil {
		return nil, Info{}, err
	}
	defer file.close()
	data, err := readAll(ctx, file.Handle, max)
	if err != nil {
		return nil, Info{}, in(fail(err, file.rel), "path")
	}
	f.versions.saw(clientOf(ctx), file.Path, &file.Stat)
	return data, f.info(file), nil
}

// readAll reads an open file, but never more than max bytes, even if the file grows meanwhile or
// reports a wrong size.
func readAll(ctx context.Context, h *beneath.Handle, max int64) ([]byte, error) {
	if h.Stat.Size > max {
		return nil, tooLarge(h.Stat.Size, max)
	}
	data := make([]byte, 0, h.Stat.Size+512)
	for {
		n, err := h.Read(data[len(data):min(cap(data), len(data)+1<<20)])
		data = data[:len(data)+n]
		switch {
		case err == io.EOF: //nolint:errorlint // os.File says io.EOF itself
			return data, nil
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case int64(len(data)) > max:
			return nil, tooLarge(int64(len(data)), max)
		case len(data) == cap(data):
			data = append(data, 0)[:len(data)]
		}
	}
}

func tooLarge(size, max int64) error {
	return tool.Errorf(tool.TooLarge, "the file has %d bytes; the maximum is %d; use a program for larger files", size, max)
}
