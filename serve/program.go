package serve

import (
	"context"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"sync"
)

// startTag is the tag of a template's start command among a sandbox's programs.
const startTag = "start"

// started returns a session as a sandbox, after it has run its template's start command.
func (e *engine) started(ctx context.Context, s *wisbox.Session, env map[string]string) (registry.Box, error) {
	program, err := e.m.ProgramOf(ctx, s.Options().Image)
	if err == nil {
		err = start(ctx, s, program, env, nil)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	return box{common{s, program.Dir}, e}, nil
}

// start starts a template's program and waits until it is ready. said receives the output of both commands.
func start(ctx context.Context, s *wisbox.Session, p wisbox.TemplateProgram, env map[string]string, said func(string)) error {
	id := ""
	if p.Start != "" {
		info, err := s.StartProcess(ctx, command(p, p.Start, env), &wisbox.ProcessOptions{AtOnce: true, Tag: startTag})
		if err != nil {
			return err
		}
		id = info.ProcessID
	}
	if p.Ready == "" {
		return nil
	}
	err := awaitReady(ctx, s, p, env, id)
	if err != nil && id != "" && said != nil {
		var out strings.Builder
		_, _ = s.ProcessOutput(context.WithoutCancel(ctx), id, &wisbox.OutputOptions{Stdout: &out, Stderr: &out, Tail: shownLines})
		for line := range strings.Lines(out.String()) {
			said(strings.TrimSuffix(line, "\n"))
		}
	}
	return err
}

const (
	readyLook  = 200 * time.Millisecond // the interval of ready commands
	shownLines = 50                     // of a failed start command
)

func awaitReady(ctx context.Context, s *wisbox.Session, p wisbox.TemplateProgram, env map[string]string, start string) error {
	again := time.NewTicker(readyLook)
	defer again.Stop()
	for {
		ready, err := isReady(ctx, s, p, env)
		if err == nil && ready {
			return nil
		}
		if err == nil {
			err = failedStart(ctx, s, start)
		}
		if err == nil {
			select {
			case <-again.C:
				continue
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return errNotReady
		}
		return err
	}
}

// portReady matches the command of the clients' waitForPort. Its program is missing in wisbox's image.
var portReady = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\[ -n "\$\(ss -H?tuln sport = :([0-9]{1,5})\)" \]$`)
})

func isReady(ctx context.Context, s *wisbox.Session, p wisbox.TemplateProgram, env map[string]string) (bool, error) {
	if m := portReady().FindStringSubmatch(p.Ready); m != nil {
		port, err := strconv.ParseUint(m[1], 10, 16)
		if err != nil {
			return false, tool.Errorf(tool.Invalid, "the ready command's port is %s; it must be 1 to 65535", m[1])
		}
		conn, err := s.Dial(ctx, uint16(port))
		if err != nil {
			return false, nil // not yet; if the session is gone, failedStart reports it
		}
		return true, conn.Close()
	}
	cmd := command(p, p.Ready, env)
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	res, err := s.Run(ctx, cmd)
	return err == nil && res.ExitCode == 0, err
}

var errNotReady = tool.Errorf(tool.Timeout, "the template's ready command did not succeed in time; build the template with another one, or with a faster start command")

// failedStart returns an error if the start command has failed.
func failedStart(ctx context.Context, s *wisbox.Session, id string) error {
	all, err := s.Processes(ctx)
	for _, p := range all {
		if p.ProcessID == id && p.ExitCode != nil && *p.ExitCode != 0 {
			return tool.Errorf(tool.Conflict, "the template's start command ended with exit status %d before it was ready; build the template with one that runs as the user \"user\", with what it needs below /home/user and /tmp", *p.ExitCode)
		}
	}
	return err
}

func command(p wisbox.TemplateProgram, text string, env map[string]string) sandbox.Cmd {
	cmd := sandbox.Cmd{Argv: []string{"/bin/bash", "-l", "-c", text}, Dir: p.Dir, Lifetime: sandbox.LifetimeSelf}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}
