package beside

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"time"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/agent/files"
	"github.com/wisbox/wisbox/agent/resident"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
)

// endTimeout bounds the end of a sandbox if no caller waits for it.
var endTimeout = patience.For(30 * time.Second)

// secretMode is the mode of a secret: an agent reads back what it wrote.
const secretMode = 0o440

// clear ends all programs of the sandbox, and removes their files and the session's outside the
// workspace.
func (b *Backend) clear(ctx context.Context, a *resident.Agent) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	err := a.With(ctx, func(conn *agent.Conn) error {
		if err := conn.EndOthers(ctx); err != nil {
			return err
		}
		conn.EndAll(sandbox.StatusCancelled)
		return errors.Join(endDetached(ctx, conn), b.emptyAll(ctx, a, conn))
	})
	if err != nil {
		return unavailable(err, "the remains of an earlier session can't be removed from the sandbox")
	}
	return nil
}

// endDetached kills the detached programs and waits until they have ended.
func endDetached(ctx context.Context, conn *agent.Conn) error {
	all, err := conn.Detached(ctx)
	if err != nil {
		return err
	}
	for _, one := range all {
		p, err := conn.Attach(ctx, one.ID, sandbox.Cmd{})
		if errors.Is(err, sandbox.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if err := p.Kill(); err != nil {
			return err
		}
		if _, err := p.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// emptyAll works with the programs' user ID: programs own all of these files, and uid 0 has no
// access to directories that they closed to others.
func (b *Backend) emptyAll(ctx context.Context, a *resident.Agent, conn *agent.Conn) error {
	inside := files.New(starter{a})
	defer inside.Close()
	for _, dir := range b.scratch {
		err := each(ctx, inside, dir, func(name string) error {
			return removeAll(ctx, inside, path.Join(dir, name))
		})
		if err != nil {
			return err
		}
	}
	return each(ctx, inside, b.secrets, func(name string) error { return conn.Put(ctx, name, secretMode, nil) })
}

func each(ctx context.Context, inside *files.FS, dir string, do func(name string) error) error {
	var names []string
	err := inside.List(ctx, dir, sandbox.ListOptions{}, func(f sandbox.FileInfo) error {
		names = append(names, f.Path)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range names {
		err = errors.Join(err, do(name))
	}
	return err
}

// removeAll also removes directories without permissions: each round opens those that are
// visible.
func removeAll(ctx context.Context, inside *files.FS, top string) error {
	for {
		err := inside.Remove(ctx, top, sandbox.RemoveOptions{Recursive: true})
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, fs.ErrPermission) {
			return err
		}
		opened, failed := open(ctx, inside, top)
		if failed != nil || opened == 0 {
			return errors.Join(err, failed)
		}
	}
}

// open makes directories accessible and returns their number.
func open(ctx context.Context, inside *files.FS, top string) (opened int, err error) {
	if top, err := inside.Stat(ctx, top, sandbox.StatOptions{}); err != nil || !top.Mode.IsDir() {
		return 0, err
	}
	closed := []string{""}
	err = inside.List(ctx, top, sandbox.ListOptions{Depth: maxDepth}, func(f sandbox.FileInfo) error {
		if f.Mode.IsDir() && f.Mode&0o700 != 0o700 {
			closed = append(closed, f.Path)
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return 0, err
	}
	for _, name := range closed {
		at := path.Join(top, name)
		info, err := inside.Stat(ctx, at, sandbox.StatOptions{})
		if err != nil || info.Mode&0o700 == 0o700 {
			continue
		}
		if err := inside.Chmod(ctx, at, 0o700); err != nil {
			return opened, err
		}
		opened++
	}
	return opened, nil
}

// maxDepth is more than the depth of any path.
const maxDepth = 4096
