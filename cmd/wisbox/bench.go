package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/engine"
	"github.com/wisbox/wisbox/images"
	"github.com/wisbox/wisbox/internal/timing"
	"github.com/wisbox/wisbox/podman"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// benchReport is the output of wisbox lab bench. Times are medians.
type benchReport struct {
	Processors int            `json:"processors"`
	Podman     podman.Service `json:"podman"`
	Image      string         `json:"image"`
	Rows       []benchRow     `json:"rows"`
	Notices    []string       `json:"notices,omitempty"` // why there are no times to compare with
}

type benchRow struct {
	What   string        `json:"what"`
	Wisbox time.Duration `json:"wisbox_ns"`
	Beside string        `json:"beside,omitempty"` // the Podman command that does the same
	Podman time.Duration `json:"podman_ns,omitempty"`
	Runs   int           `json:"runs"`
}

func (a *app) newBenchCmd() *cobra.Command {
	var runs int
	var image string
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what sessions cost on this machine, next to podman exec",
		Long: `Opens a session and measures, as a median of several runs: a session for one command,
a command in a session, a tool call, writing and reading a file, and 64 MiB of output.
Next to each it prints the time of Podman's own command for the same, measured in turn in
the same container with the default isolation. It takes half a minute and leaves nothing.`,
		Example: `  wisbox lab bench
  wisbox lab bench --runs 50 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if runs < 1 || runs > maxBenchRuns {
				return usageError{fmt.Errorf("--runs is %d; it must be from 1 to %d", runs, maxBenchRuns)}
			}
			return a.runBench(cmd.Context(), image, runs)
		},
	}
	cmd.Flags().IntVar(&runs, "runs", 20, "measure each `N` times, slow ones a tenth of that and at least 3 times")
	cmd.Flags().StringVar(&image, "image", "", "`IMAGE` to run (default: the one that wisbox image build makes)")
	return cmd
}

const maxBenchRuns = 1000

func (a *app) runBench(ctx context.Context, image string, runs int) error {
	if err := checkImage("--image", image); err != nil {
		return err
	}
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := m.Open(ctx, &wisbox.SessionOptions{Kept: true, Image: image, Pull: wisbox.PullNever, Isolation: sandbox.IsolationDefault})
	if err != nil {
		return err
	}
	b := &benching{ctx: ctx, app: a, s: s, runs: runs, report: benchReport{Processors: runtime.NumCPU(), Image: cmp.Or(image, images.Default)}}
	err = b.measure(m)
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancel()
	err = errors.Join(err, a.closeSession(clean, s), m.Remove(clean, s.ID()))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	}
	return a.print(b.report, func(w io.Writer) { b.report.write(w) })
}

// benching is one run of wisbox lab bench.
type benching struct {
	ctx    context.Context
	app    *app
	s      *wisbox.Session
	runs   int
	object string // the container
	report benchReport
}

const (
	benchOutput = "67108864" // bytes
	benchFile   = 4 << 10    // bytes
	benchWarm   = 2          // warm-up runs
)

func (b *benching) measure(m *wisbox.Manager) error {
	if err := b.call("shell_execute", map[string]any{"commands": []string{"true"}}); err != nil {
		return err
	}
	in, err := b.s.Inspect(b.ctx)
	if err != nil {
		return err
	}
	if in.Sandbox == nil {
		return tool.Errorf(tool.Unavailable, "the session has no container; see: wisbox doctor")
	}
	b.object = in.Sandbox.Object
	if engine, ok := m.Backend().(*podman.Backend); ok {
		if b.report.Podman, err = engine.Service(b.ctx); err != nil {
			return err
		}
	}
	return b.rows()
}

// benchCase describes a row: wisbox's work, and the Podman command that does the same.
type benchCase struct {
	what   string
	runs   int
	ours   func() error
	beside string   // the row's name for the Podman command
	args   []string // of the Podman command
	stdin  string
}

// rows measures all cases, alternating between wisbox and Podman.
func (b *benching) rows() error {
	text := strings.Repeat("0123456789abcde\n", benchFile/16)
	if err := b.call("write_file", map[string]any{"file_path": "file", "content": text}); err != nil {
		return err
	}
	cases, err := b.cases(text)
	if err != nil {
		return err
	}
	for _, c := range cases {
		if err := b.row(c); err != nil {
			return err
		}
	}
	return nil
}

func (b *benching) cases(text string) ([]benchCase, error) {
	self, err := engine.Program()
	if err != nil {
		return nil, hostError(err)
	}
	wisbox := []string{self, "--no-config"}
	if b.app.cache != "" {
		wisbox = append(wisbox, "--cache", absolute(b.app.cache))
	}
	if b.app.url != "" {
		wisbox = append(wisbox, "--podman", b.app.url)
	}
	few, exec, image := max(3, b.runs/10), []string{"exec", b.s.ID(), "--"}, b.report.Image
	inside := func(argv ...string) []string { return append([]string{"exec", b.object}, argv...) }
	flood := []string{"head", "-c", benchOutput, "/dev/zero"}
	return []benchCase{
		{"a command in a session of its own: wisbox run", few, b.process("", wisbox, "run", "--isolation", string(sandbox.IsolationDefault), "--pull", "never", "--image", image, "--", "true"),
			"podman run --rm", []string{"run", "--rm", "--ulimit", "host", "--network", "none", "--pull", "never", "--entrypoint", "true", image}, ""},
		{"a command: wisbox exec", b.runs, b.process("", wisbox, append(exec, "true")...), "podman exec", inside("true"), ""},
		{"a call: shell_execute", b.runs, b.tool("shell_execute", map[string]any{"commands": []string{"true"}}), "podman exec", inside("true"), ""},
		{"a call: write_file, 4 KiB", b.runs, b.tool("write_file", map[string]any{"file_path": "file", "content": text, "mode": "overwrite"}),
			"podman exec -i", []string{"exec", "-i", b.object, "tee", "/tmp/file"}, text},
		{"a call: read_file, 4 KiB", b.runs, b.tool("read_file", map[string]any{"file_path": "file"}), "podman exec", inside("cat", "/workspace/file"), ""},
		{"64 MiB of output: wisbox exec", few, b.process("", wisbox, append(exec, flood...)...), "podman exec", inside(flood...), ""},
	}, nil
}

// row measures one case.
func (b *benching) row(c benchCase) error {
	do := []func() error{c.ours}
	theirs, beside := b.beside(c)
	if theirs != nil {
		do = append(do, theirs)
	}
	took, err := timing.Alternate(benchWarm, c.runs, do...)
	if err != nil {
		return tool.Errorf(tool.Unavailable, "%s: %s", c.what, err).Because(err)
	}
	r := benchRow{What: c.what, Wisbox: took[0].Median(), Runs: c.runs}
	if len(took) > 1 {
		r.Beside, r.Podman = beside, took[1].Median()
	}
	b.report.Rows = append(b.report.Rows, r)
	return nil
}

// beside returns a function that runs Podman's command for a case, and its name: by itself, or at
// the service that wisbox uses. If this machine's settings forbid both, the function is nil and the
// report gives the reason.
func (b *benching) beside(c benchCase) (theirs func() error, name string) {
	var why error
	for _, program := range [][]string{{"podman"}, {"podman", "--remote", "--url", b.report.Podman.URL}} {
		theirs = b.process(c.stdin, program, c.args...)
		if why = theirs(); why == nil {
			return theirs, strings.Join(append(program[:min(len(program), 2):min(len(program), 2)], strings.TrimPrefix(c.beside, "podman ")), " ")
		}
	}
	b.report.Notices = append(b.report.Notices, oneLine(c.what+": nothing to compare with: "+why.Error()))
	return nil, ""
}

// process returns a function that runs a program and discards its output. The program must succeed.
func (b *benching) process(stdin string, program []string, args ...string) func() error {
	return func() error {
		cmd := exec.CommandContext(b.ctx, program[0], append(program[1:len(program):len(program)], args...)...)
		cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, closeGrace // so that it removes its session
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}                                            // a terminal's interrupt would be a second one, which kills it
		var said strings.Builder
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), writerOnly{io.Discard}, &said
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s %s: %w: %s", filepath.Base(program[0]), args[0], err, oneLine(said.String()))
		}
		return nil
	}
}

// writerOnly hides ReadFrom, so that a program's output stays a pipe.
type writerOnly struct{ io.Writer }

func (b *benching) tool(name string, params map[string]any) func() error {
	return func() error { return b.call(name, params) }
}

// call calls a tool, which must succeed.
func (b *benching) call(name string, params map[string]any) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	res, err := b.s.Call(b.ctx, name, raw)
	if err == nil && res.Failed {
		err = tool.Errorf(tool.Unavailable, "%s failed: %s", name, oneLine(res.Text))
	}
	return err
}

func (r *benchReport) write(w io.Writer) {
	p := r.Podman
	fmt.Fprintf(w, "%s, Podman %s (%s, cgroup %s), kernel %s, image %s; medians\n\n",
		quantity(int64(r.Processors), "processor", "processors"), p.Version, p.Runtime, p.CgroupVersion, p.Kernel, r.Image)
	tw := newTable(w, "WHAT", "WISBOX", "PODMAN", "FASTER", "BESIDE")
	for _, row := range r.Rows {
		if row.Beside == "" {
			tw.row(row.What, millis(row.Wisbox), "-", "-", "-")
			continue
		}
		tw.row(row.What, millis(row.Wisbox), millis(row.Podman), fmt.Sprintf("%.1f times", float64(row.Podman)/float64(row.Wisbox)), row.Beside)
	}
	_ = tw.Flush()
	for _, n := range r.Notices {
		fmt.Fprintf(w, "\n%s\n", n)
	}
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}
