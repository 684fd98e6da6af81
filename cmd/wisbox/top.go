package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	units "github.com/docker/go-units"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/engine"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/tool"
)

const (
	minDelay = 200 * time.Millisecond
	maxDelay = time.Minute

	topWake   = 100 * time.Millisecond // delay until a signal or a new size is noticed
	logsShare = 10                     // reading logs of up to 32 MiB each takes at most one part in this many
)

var topPatience = patience.For(5 * time.Second) // for the usage of all sessions, in one look

func (a *app) newTopCmd() *cobra.Command {
	delay := 2 * time.Second
	cmd := &cobra.Command{
		Use:   "top [SESSION…]",
		Short: "Watch the resources, calls and connections of sessions, live",
		Long: `Shows a line for each session given, or for every kept session, and updates it every
two seconds. CPU is the share of one processor since the last update. CALLS is the
number of records in the session's log, LAST is the last call and how it ended, and
CONNECTIONS counts those of the session's programs, then the denied ones. It starts
no session.

Keys: up and down choose a session; s opens a shell in it, l shows its log, x stops
it, q ends.`,
		Example: `  wisbox top
  wisbox top --delay 500ms box`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runTop(cmd.Context(), args, delay)
		},
	}
	cmd.Flags().VarP(timeFlag{&delay}, "delay", "d", "`TIME` between two updates, from 200ms to 1m")
	return cmd
}

// top is the state of the screen.
type top struct {
	a     *app
	m     *wisbox.Manager
	store *overlay.Store
	names []string // given on the command line; empty for all kept ones

	rows []topRow
	at   string // the chosen session
	said string // shown at the foot until the next key
	stop string // the session to stop if the next key confirms

	shown []byte    // the current screen
	logs  time.Time // when to read logs again
}

// topRow is the last known state of a session.
type topRow struct {
	sessionUsage
	seen                time.Time
	share               string // of one processor
	calls, made, denied int
	last                string
}

func (a *app) runTop(ctx context.Context, names []string, delay time.Duration) error {
	switch {
	case delay < minDelay || delay > maxDelay:
		return usageError{fmt.Errorf("--delay is %s; it must be %s to %s", delay, minDelay, maxDelay)}
	case a.json || !a.atTerminal():
		return usageError{errors.New("top needs a terminal; use: wisbox stats, which prints once")}
	}
	store, err := overlay.OpenStore(a.cache)
	if err != nil {
		return err
	}
	defer store.Close()
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	for _, name := range names {
		if _, err := usageOf(ctx, m, name); err != nil {
			return asUsage(err)
		}
	}
	return (&top{a: a, m: m, store: store, names: names}).run(ctx, delay)
}

func (t *top) run(ctx context.Context, delay time.Duration) error {
	leave, err := t.enter()
	if err != nil {
		return err
	}
	defer func() { leave() }()
	var next time.Time
	for ctx.Err() == nil {
		if now := time.Now(); !now.Before(next) {
			t.look(ctx)
			next = now.Add(delay)
		}
		t.draw()
		switch key := t.key(time.Until(next)); {
		case key == "":
		case t.asks(key, "s", "l"):
			leave()
			t.said = t.outside(ctx, key)
			if leave, err = t.enter(); err != nil {
				return err
			}
			next = time.Time{}
		case t.act(ctx, key):
			return nil
		}
	}
	return ctx.Err()
}

// enter takes over the whole screen; leave restores it.
func (t *top) enter() (leave func(), err error) {
	restore, err := t.a.raw()
	if err != nil {
		return nil, err
	}
	fmt.Fprint(t.a.out, "\x1b[?1049h\x1b[?25l")
	t.shown = nil
	return func() {
		fmt.Fprint(t.a.out, "\x1b[?25h\x1b[?1049l")
		restore()
	}, nil
}

// look reads the usage of all sessions.
func (t *top) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, topPatience)
	defer cancel()
	begin, names := time.Now(), t.names
	states, kept, err := statesOf(ctx, t.m)
	if err != nil {
		t.said = tool.AsError(err).Error()
	}
	if len(names) == 0 {
		names = kept
	}
	before := map[string]topRow{}
	for _, row := range t.rows {
		before[row.Session] = row
	}
	t.rows = nil
	for _, name := range names {
		u, err := usageOf(ctx, t.m, name)
		if err != nil {
			u = &wisbox.Usage{Problem: tool.AsError(err).Message}
		}
		row := topRow{sessionUsage: sessionUsage{name, states[name], u}, seen: time.Now(), share: "-"}
		if old := before[name]; old.Usage != nil && old.Gauge != nil && u.Gauge != nil && u.Gauge.CPU >= old.Gauge.CPU {
			row.share = strconv.Itoa(int(100*(u.Gauge.CPU-old.Gauge.CPU)/row.seen.Sub(old.seen))) + "%"
		}
		old, seen := before[name]
		if row.calls, row.made, row.denied, row.last = old.calls, old.made, old.denied, old.last; !seen || begin.After(t.logs) {
			t.read(&row)
		}
		t.rows = append(t.rows, row)
	}
	if begin.After(t.logs) {
		t.logs = begin.Add(logsShare * time.Since(begin))
	}
	if t.find() < 0 && len(t.rows) > 0 {
		t.at = t.rows[0].Session
	}
}

// read counts a session's records.
func (t *top) read(row *topRow) {
	var last []byte
	row.calls, row.made, row.denied = 0, 0, 0
	_ = t.store.Log(row.Session, func(line []byte) error {
		row.calls++
		last = append(last[:0], line...)
		return nil
	})
	var e wisbox.Event
	row.last = "-"
	if json.Unmarshal(last, &e) == nil {
		row.last = e.Tool + " " + outcome(e)
	}
	_ = t.store.EgressLog(row.Session, func(line []byte) error {
		switch {
		case bytes.Contains(line, []byte(`"event":"open"`)):
			row.made++
		case bytes.Contains(line, []byte(`"event":"denied"`)):
			row.denied++
		}
		return nil
	})
}

// find returns the index of the chosen session; -1 if it is gone.
func (t *top) find() int {
	for i, row := range t.rows {
		if row.Session == t.at {
			return i
		}
	}
	return -1
}

// draw draws everything, cut to the screen.
func (t *top) draw() {
	var rows bytes.Buffer
	tw := newTable(&rows, "  SESSION", "STATE", "CPU", "MEMORY", "PROCESSES", "DISK", "CALLS", "LAST", "CONNECTIONS")
	for _, row := range t.rows {
		tw.row(row.cells(row.Session == t.at)...)
	}
	_ = tw.Flush()
	size := t.a.size()
	lines := strings.Split(strings.TrimSuffix(rows.String(), "\n"), "\n")
	if len(t.rows) == 0 {
		lines = append(lines, "  there are no kept sessions; wisbox create makes one")
	}
	room := max(1, int(size.Rows)-3) // for sessions
	if from := t.find() + 1 - room; from > 0 {
		lines = append(lines[:1], lines[1+from:]...)
	}
	lines = append(lines[:min(len(lines), 1+room)], "", t.foot())
	var screen bytes.Buffer
	screen.WriteString("\x1b[H")
	for i, line := range lines {
		if runes := []rune(line); len(runes) >= int(size.Cols) {
			line = string(runes[:max(0, int(size.Cols)-1)])
		}
		screen.WriteString(line + "\x1b[K")
		if i < len(lines)-1 {
			screen.WriteString("\r\n")
		}
	}
	screen.WriteString("\x1b[J")
	if !bytes.Equal(screen.Bytes(), t.shown) {
		t.shown = screen.Bytes()
		_, _ = t.a.out.Write(t.shown)
	}
}

func (t *top) foot() string {
	if t.said != "" {
		return oneLine(t.said)
	}
	return "up/down choose  s shell  l log  x stop  q quit"
}

func (r topRow) cells(chosen bool) []any {
	mark, connections := "  ", strconv.Itoa(r.made)
	if chosen {
		mark = "> "
	}
	if r.denied > 0 {
		connections += fmt.Sprintf(", %d denied", r.denied)
	}
	memory, processes := r.takes()
	return []any{mark + streams.Printable(r.Session), streams.Printable(r.State), r.share, memory, processes, units.BytesSize(float64(r.Disk)),
		r.calls, oneLine(r.last), connections}
}

// key waits briefly for a key; "" if none came.
func (t *top) key(wait time.Duration) string {
	tty, _ := t.a.keyboard()
	fds := []unix.PollFd{{Fd: int32(tty.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int(min(max(0, wait), topWake).Milliseconds())+1)
	if err != nil || n == 0 {
		return ""
	}
	buf := make([]byte, 16)
	n, err = tty.Read(buf)
	if err != nil {
		return "q" // the terminal is gone
	}
	return string(buf[:n])
}

// asks reports whether the key is one of these and a session is chosen.
func (t *top) asks(key string, known ...string) bool {
	return slices.Contains(known, key) && t.find() >= 0
}

// act performs a key's command, and reports whether to quit.
func (t *top) act(ctx context.Context, key string) (end bool) {
	stop := t.stop
	t.said, t.stop = "", ""
	switch key {
	case "q", "\x03", "\x04":
		return true
	case "\x1b[A", "\x1bOA", "k":
		t.move(-1)
	case "\x1b[B", "\x1bOB", "j":
		t.move(1)
	case "x":
		if t.find() >= 0 {
			t.stop = t.at
			t.said = "stop " + t.at + "? its programs end, its files stay: y or n"
		}
	case "y":
		if stop != "" {
			t.said = "stopped " + stop
			if err := t.m.Stop(ctx, stop); err != nil {
				t.said = tool.AsError(err).Message
			}
			t.look(ctx)
		}
	}
	return false
}

func (t *top) move(by int) {
	if to := t.find() + by; to >= 0 && to < len(t.rows) {
		t.at = t.rows[to].Session
	}
}

// outside runs a command that needs the terminal, and returns the message to show afterwards.
func (t *top) outside(ctx context.Context, key string) string {
	args := []string{"shell", t.at}
	if key == "l" {
		args = []string{"log", "--tail", strconv.Itoa(max(1, int(t.a.size().Rows)-4)), t.at}
	}
	self, err := engine.Program()
	if err != nil {
		return "wisbox can't find its own binary; run: wisbox " + strings.Join(args, " ")
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"--cache", t.a.cache, "--podman", t.a.url}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &exit):
		return "the command can't be started; run: wisbox " + strings.Join(args, " ")
	case key == "l" || exit != nil && exit.ExitCode() == exitEngine: // there is something to read
		fmt.Fprint(t.a.out, "\nEnter goes back ")
		_, _ = t.a.in.Read(make([]byte, 256))
	}
	return ""
}
