package inside

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Serve performs one operation on a file system. Only a Write reads from in. Without out, answers are discarded.
func Serve(ctx context.Context, on sandbox.FileSystem, a *Ask, in io.Reader, out io.Writer) error {
	if out == nil {
		out = io.Discard
	}
	err := serve(ctx, on, a, in, out)
	path := string(a.Path)
	if one := (*fs.PathError)(nil); a.Write.How == sandbox.WriteSeveral && errors.As(err, &one) {
		path = one.Path
	}
	return failure(err, path)
}

func serve(ctx context.Context, on sandbox.FileSystem, a *Ask, in io.Reader, out io.Writer) error {
	path := string(a.Path)
	switch a.Do {
	case Stat:
		f, err := on.Stat(ctx, path, a.Stat)
		if err != nil {
			return err
		}
		return put(out, infoOf(f))
	case List:
		return on.List(ctx, path, a.List, func(f sandbox.FileInfo) error { return put(out, infoOf(f)) })
	case Open:
		return read(ctx, on, a, out)
	case Write:
		return write(ctx, on, a, in)
	case Move:
		return on.Move(ctx, path, string(a.To), a.Move)
	case Remove:
		return on.Remove(ctx, path, a.Remove)
	case Mkdir:
		return on.Mkdir(ctx, path, a.Mkdir)
	case Chmod:
		return on.Chmod(ctx, path, a.Mode)
	case Watch:
		return watch(ctx, on, a, out)
	}
	return tool.Errorf(tool.Unsupported, "there is no operation on files of that name")
}

func read(ctx context.Context, on sandbox.FileSystem, a *Ask, out io.Writer) error {
	f, err := on.Open(ctx, string(a.Path), a.Open)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := put(out, infoOf(f.Info())); err != nil {
		return err
	}
	_, err = io.Copy(out, f)
	return err
}

// write writes a file. An interrupted write leaves nothing behind: the next write to the same path
// cleans up.
func write(ctx context.Context, on sandbox.FileSystem, a *Ask, in io.Reader) error {
	opts := a.Write
	opts.Attrs = textsOf(a.Attrs)
	if in == nil {
		in = bytes.NewReader(nil)
	}
	err := on.Write(ctx, string(a.Path), in, opts)
	if errors.Is(err, sandbox.ErrInterrupted) && ctx.Err() == nil {
		_ = on.Write(ctx, string(a.Path), broken{}, opts)
	}
	return err
}

// broken is content that fails at once.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func watch(ctx context.Context, on sandbox.FileSystem, a *Ask, out io.Writer) error {
	w, err := on.Watch(ctx, string(a.Path), a.Watch)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := put(out, event{}); err != nil {
		return err
	}
	for {
		e, err := w.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = put(out, event{e.Change, []byte(e.Name), e.Dir})
		}
		if err != nil {
			return err
		}
	}
}
