package conformance

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// fakeTools are a few tools over a plain directory, with the host's own bash as the sandbox. They
// are enough to test the runner, and for nothing else.
func fakeTools(dir string) *tool.Set {
	at := func(name string) string { return filepath.Join(dir, name) }
	return tool.NewSet(
		tool.New(tool.Spec{Name: "ls"}, func(context.Context, struct{}) (listing, error) {
			entries, err := os.ReadDir(dir)
			out := listing{Entries: []string{}}
			for _, e := range entries {
				out.Entries = append(out.Entries, e.Name())
			}
			return out, err
		}),
		tool.New(tool.Spec{Name: "read_file"}, func(_ context.Context, p readParams) (readResult, error) {
			content, err := os.ReadFile(at(p.FilePath))
			if errors.Is(err, fs.ErrNotExist) {
				return readResult{}, tool.Errorf(tool.NotFound, "no file").In("file_path")
			}
			return readResult{string(content)}, err
		}),
		tool.New(tool.Spec{Name: "write_file"}, func(_ context.Context, p writeParams) (writeResult, error) {
			f, err := os.OpenFile(at(p.FilePath), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
			if errors.Is(err, fs.ErrExist) {
				return writeResult{}, tool.Errorf(tool.Exists, "there already")
			} else if err != nil {
				return writeResult{}, err
			}
			n, err := f.WriteString(p.Content)
			return writeResult{n}, errors.Join(err, f.Close())
		}),
		tool.New(tool.Spec{Name: "rm"}, func(_ context.Context, p rmParams) (struct{}, error) {
			err := os.Remove(at(p.Path))
			if errors.Is(err, fs.ErrNotExist) {
				return struct{}{}, tool.Errorf(tool.NotFound, "no file")
			}
			return struct{}{}, err
		}),
		tool.New(tool.Spec{Name: "shell_execute"}, func(ctx context.Context, p shellParams) (shellResult, error) {
			cmd := exec.CommandContext(ctx, "bash", "-c", p.Script)
			if len(p.Commands) > 0 {
				cmd = exec.CommandContext(ctx, p.Commands[0], p.Commands[1:]...)
			}
			var out bytes.Buffer
			cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
			_ = cmd.Run()
			if tell := tool.Progress(ctx); tell != nil {
				tell(out.String())
			}
			return shellResult{cmd.ProcessState.ExitCode(), out.String()}, nil
		}),
	)
}

type (
	listing struct {
		Entries []string `json:"entries"`
	}
	readParams struct {
		FilePath string `json:"file_path"`
	}
	readResult struct {
		Content string `json:"content"`
	}
	writeParams struct {
		FilePath string `json:"file_path"`
		Content  string `json:"content"`
	}
	writeResult struct {
		Size int `json:"size_bytes"`
	}
	rmParams struct {
		Path string `json:"path"`
	}
	shellParams struct {
		Script   string   `json:"script,omitempty"`
		Commands []string `json:"commands,omitempty"`
		Timeout  int      `json:"timeout,omitempty"`
	}
	shellResult struct {
		ExitCode int    `json:"exit_code"`
		Stdout   string `json:"stdout"`
	}
)

// fakeTarget opens sessions with fakeTools, and refuses the flag --refuse.
func fakeTarget(base string) *InProcess {
	return &InProcess{Start: func(_ context.Context, opts OpenOptions) (*Local, error) {
		if flags := strings.Join(opts.Flags, " "); strings.Contains(flags, "--refuse") {
			return nil, errors.New("bad flags: " + flags)
		}
		session, err := os.MkdirTemp(base, "session")
		if err != nil {
			return nil, err
		}
		dir := filepath.Join(session, "workspace")
		return &Local{
			Do:    fakeTools(dir).Call,
			Where: func() string { return dir },
			End:   func(context.Context) error { return os.RemoveAll(session) },
		}, os.Mkdir(dir, 0o755)
	}}
}
