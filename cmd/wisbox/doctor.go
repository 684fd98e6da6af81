package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/doctor"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/podman"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newDoctorCmd() *cobra.Command {
	var fix, strict bool
	cmd := &cobra.Command{
		Use:   "doctor [--fix] [--strict]",
		Short: "Check this machine's isolation and limits, and show how to fix what is missing",
		Long: `Finds Podman and checks its requirements. Then opens sessions with small limits, whose
programs exceed them: memory, processors, processes, disk, files. Checks that programs
reach no network but one allowed port, and have no rights that they shouldn't have. It
takes a few seconds.

Each line is ok, not enforced (wisbox works without that guarantee) or broken, with a
remedy. The exit code is 1 if anything is broken, with --strict also if a guarantee isn't
enforced, or the runtime or kernel has a known hole.

--fix fixes what it can: it builds the image and removes the remains of killed processes.
Under sudo it gives the calling user the IDs and settings that rootless Podman needs.
It installs nothing.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runDoctor(cmd.Context(), fix, strict) },
	}
	cmd.Flags().BoolVar(&fix, "fix", false, "fix what can be fixed")
	cmd.Flags().BoolVar(&strict, "strict", false, "also exit with 1 if a guarantee isn't enforced")
	return cmd
}

func (a *app) runDoctor(ctx context.Context, fix, strict bool) error {
	m, err := wisbox.NewManager(ctx, a.options(a.logger()))
	if err != nil {
		return err
	}
	defer m.Close()
	opts := &doctor.Options{Fix: fix}
	if !a.json {
		opts.Line = func(l doctor.Line) { printLine(a.out, l) }
	}
	report := doctor.Examine(ctx, patient{m, m.Backend().(*podman.Backend), a}, opts)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := a.print(report, func(w io.Writer) { printVerdict(w, report) }); err != nil {
		return err
	}
	if report.Broken() || strict && !report.Whole() {
		return exitCode(exitError)
	}
	return nil
}

func printLine(w io.Writer, l doctor.Line) {
	fmt.Fprintf(w, "%-12s  %-15s %s\n", l.Status, l.Name, streams.Printable(l.Detail))
	if l.Fix != "" {
		fmt.Fprintf(w, "%-12s  %-15s to do: %s\n", "", "", l.Fix)
	}
}

func printVerdict(w io.Writer, r *doctor.Report) {
	count := map[doctor.Status]int{}
	for _, l := range r.Lines {
		count[l.Status]++
	}
	fmt.Fprintf(w, "\n%d ok, %d not enforced, %d broken, in %.1f s\n", count[doctor.OK], count[doctor.NotEnforced], count[doctor.Broken], r.Took.Seconds())
}

// patient gives package doctor access to this program.
type patient struct {
	m *wisbox.Manager
	b *podman.Backend
	// a shows the progress of a repair.
	a *app
}

func (p patient) Service(ctx context.Context) (doctor.Service, error) {
	s, err := p.b.Service(ctx)
	return doctor.Service{
		From: s.From, Version: s.Version, Runtime: s.Runtime, RuntimePackage: s.RuntimePackage, RuntimeFeatures: s.Features, Kernel: s.Kernel, Rootless: s.Rootless, ChangesDevices: s.ChangesDevices,
		CgroupVersion: s.CgroupVersion, CgroupManager: s.CgroupManager, StorageDriver: s.StorageDriver, SELinux: s.SELinuxEnabled,
	}, err
}

func (p patient) Image(ctx context.Context) (string, error) {
	_, err := p.b.ImageInfo(ctx, images.Default)
	return images.Default, err
}

func (p patient) OldImages(ctx context.Context) (int, error) {
	sessions, err := p.m.SessionImages(ctx)
	if err != nil {
		return 0, err
	}
	would, err := images.Prune(ctx, p.b, sessions, &images.PruneOptions{DryRun: true})
	if err != nil {
		return 0, err
	}
	return len(would.Removed), nil
}

func (p patient) BuildImage(ctx context.Context) error {
	return p.a.watched(func(say func(string)) error {
		_, err := images.Build(ctx, p.b, &images.Options{Progress: say})
		return err
	})
}

func (p patient) Leftovers(ctx context.Context) (int, error) {
	swept, err := p.m.Prune(ctx, true)
	return len(swept), err
}

func (p patient) Prune(ctx context.Context) error {
	_, err := p.m.Prune(ctx, false)
	return err
}

func (p patient) Open(ctx context.Context, limits sandbox.Limits, allow ...string) (doctor.Session, error) {
	s, err := p.m.Open(ctx, &wisbox.SessionOptions{Limits: limits, Allow: allow})
	if err != nil {
		return nil, err
	}
	return trialSession{s}, nil
}

// trialSession adds the few methods that trials need to a session.
type trialSession struct{ *wisbox.Session }

func (s trialSession) Limits(ctx context.Context) ([]sandbox.LimitState, error) {
	in, err := s.Inspect(ctx)
	if err != nil || in.Sandbox == nil {
		return nil, err
	}
	return in.Sandbox.Limits, nil
}

func (s trialSession) Write(ctx context.Context, path, content string) error {
	_, err := s.call(ctx, "write_file", map[string]any{"file_path": path, "content": content})
	return err
}

func (s trialSession) Read(ctx context.Context, path string) (string, error) {
	res, err := s.call(ctx, "read_file", map[string]any{"file_path": path})
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(res.Value)
	if err != nil {
		return "", err
	}
	var file struct{ Content string }
	err = json.Unmarshal(raw, &file)
	return file.Content, err
}

func (s trialSession) Remove(ctx context.Context, path string) error {
	_, err := s.call(ctx, "rm", map[string]any{"path": path})
	return err
}

func (s trialSession) Resume(ctx context.Context) error {
	_, err := s.Session.Resume(ctx)
	return err
}

func (s trialSession) call(ctx context.Context, name string, args map[string]any) (*tool.Result, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	return s.Call(ctx, name, raw)
}
