package shelltool

import (
	"context"
	"errors"
	"path"
	"strings"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// Files stats files of the workspace without ever leaving it; *vfs.FS implements it.
type Files interface {
	// Stat follows links that stay inside.
	Stat(ctx context.Context, path string) (vfs.Info, error)
}

// dir checks the directory of a call and returns it relative to the workspace.
func (s *Shell) dir(ctx context.Context, cwd string) (string, error) {
	if cwd == "" {
		return "", nil
	}
	if path.IsAbs(cwd) && cwd != sandbox.WorkspaceDir && !strings.HasPrefix(cwd, sandbox.WorkspaceDir+"/") {
		return "", invalid("cwd", "cwd is absolute and not in %s; give a directory of the workspace, or leave it out", sandbox.WorkspaceDir)
	}
	dir, err := s.opts.Paths.Parse(cwd)
	if err != nil || dir == "" {
		return "", inCwd(err)
	}
	info, err := s.opts.Files.Stat(ctx, dir)
	if err != nil {
		return "", inCwd(err)
	}
	if info.Kind != vfs.Directory {
		return "", tool.Errorf(tool.NotDir, "cwd is not a directory; give a directory of the workspace, or leave it out").In("cwd")
	}
	return dir, nil
}

// inCwd sets the field of an error about the workspace.
func inCwd(err error) error {
	if e := (*tool.Error)(nil); errors.As(err, &e) {
		named := *e
		return named.In("cwd")
	}
	return err
}

// workspacePath returns a directory's path for programs. It doesn't change an absolute path.
func workspacePath(dir string) string {
	if path.IsAbs(dir) {
		return dir
	}
	return path.Join(sandbox.WorkspaceDir, dir)
}
