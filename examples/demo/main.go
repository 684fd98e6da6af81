// Command demo runs wisbox's main job through its command line, as a person would, and checks every
// answer: it mounts a Python project, finds its bug, fixes it in the session's copy, evaluates
// Python over its data, reaches the limits, and leaves nothing behind.
//
//	go run ./examples/demo bin/wisbox
//
// With WISBOX_DEMO_BREAK=n the answers of step n are emptied before they are checked: the demo must
// then fail there, which shows that the step checks them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const demoDeadline = 10 * time.Minute

func main() {
	count := flag.Bool("steps", false, "print the number of steps and end")
	flag.Parse()
	if *count {
		fmt.Println(len(steps))
		return
	}
	if err := run(flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

func run(program string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, demoDeadline)
	defer cancel()
	d, err := newDemo(program)
	if err != nil {
		return err
	}
	defer d.cleanUp()
	broken, _ := strconv.Atoi(os.Getenv("WISBOX_DEMO_BREAK"))
	start := time.Now()
	for i, s := range steps {
		d.broken = broken == i+1
		fmt.Printf("\n%d. %s\n", i+1, s.title)
		if err := s.run(d, ctx); err != nil {
			return fmt.Errorf("step %d failed: %s: %w", i+1, s.title, err)
		}
	}
	fmt.Printf("\nall %d steps hold (%.1f s)\n", len(steps), time.Since(start).Seconds())
	return nil
}

// demo is one run, with its own session and state root.
type demo struct {
	program string // bin/wisbox
	project string // examples/project
	state   string // the state root: a fresh directory
	session string
	broken  bool // empty the answers of this step
}

func newDemo(program string) (*demo, error) {
	if program == "" {
		program = "bin/wisbox"
	}
	program, err := filepath.Abs(program)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("%s is not there: make build", program)
	}
	project := filepath.Join("examples", "project")
	if _, err := os.Stat(project); err != nil {
		return nil, fmt.Errorf("%s is not there: run this in wisbox's source directory", project)
	}
	state, err := os.MkdirTemp("", "wisbox-demo-")
	if err != nil {
		return nil, err
	}
	return &demo{program: program, project: project, state: state, session: fmt.Sprintf("demo-%d", os.Getpid())}, nil
}

// cleanUp removes the remains of a failed run; after a successful one there are none.
func (d *demo) cleanUp() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if d.sessionDirs() != nil {
		_ = d.command(ctx, "session", "rm", d.session).Run()
	}
	_ = os.RemoveAll(d.state)
}
