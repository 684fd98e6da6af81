// Command testrun runs several `go test` commands beside each other and prints one line for each package that ends. Its
// last lines say which tests failed, with the ends of their outputs, and how to run just them.
//
//	testrun [-label=]'ARGUMENTS OF go test' …
//
// A label tells apart two runs of one package. An argument unit: stands for the packages outside of ./integration. An
// argument slow:DIR stands for the tests below DIR that call
// [hosttest.Slow], and for their packages. The exit code is 1 if anything failed.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const module = "github.com/wisbox/wisbox"

const (
	lastLines   = 40 // of a run that failed: they name the failures
	inFull      = 200
	interrupted = 30 * time.Second // for tests to remove what they made
)

func main() {
	r := &run{began: time.Now(), out: map[string][]byte{}, slowest: map[string]float64{}}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	var all sync.WaitGroup
	for _, arg := range os.Args[1:] {
		label := ""
		if rest, ok := strings.CutPrefix(arg, "-label="); ok {
			label, arg, _ = strings.Cut(rest, " ")
		}
		args, err := expand(strings.Fields(arg))
		if err != nil {
			fmt.Fprintln(os.Stderr, "testrun:", err)
			os.Exit(2)
		}
		cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...) //nolint:gosec // the Makefile's
		all.Go(func() { r.command(label, cmd) })
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-stop: // the tests have it, too
		r.add(failure{"", "make", "", []byte("interrupted: tests that had not ended don't count")})
		select {
		case <-ended:
		case <-time.After(interrupted):
		}
	}
	os.Exit(r.summary(os.Stdout))
}

var (
	testFunc = regexp.MustCompile(`^func (Test\w+)\(`)
	slowCall = regexp.MustCompile(`\bhosttest\.Slow\(`)
)

// expand replaces unit: and slow:DIR.
func expand(args []string) (out []string, err error) {
	for _, arg := range args {
		more := []string{arg}
		if dir, ok := strings.CutPrefix(arg, "slow:"); ok {
			more, err = slow(dir)
		} else if arg == "unit:" {
			more, err = unit()
		}
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

func unit() ([]string, error) {
	all, err := exec.Command("go", "list", "./...").Output()
	return slices.DeleteFunc(strings.Fields(string(all)), func(p string) bool { return strings.Contains(p, "/integration") }), err
}

// slow returns the arguments for the slow tests below a directory.
func slow(dir string) ([]string, error) {
	var tests, packages []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != "."):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		found, err := slowTests(path)
		if pkg := "./" + filepath.Dir(path); len(found) > 0 && !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
		}
		tests = append(tests, found...)
		return err
	})
	if err == nil && len(tests) == 0 {
		err = fmt.Errorf("%s has no slow tests", dir)
	}
	return append([]string{"-run=^(" + strings.Join(tests, "|") + ")$"}, packages...), err
}

func slowTests(path string) (found []string, err error) {
	text, err := os.ReadFile(path)
	test := ""
	for line := range strings.Lines(string(text)) {
		if m := testFunc.FindStringSubmatch(line); m != nil {
			test = m[1]
		}
		if slowCall.MatchString(line) && !slices.Contains(found, test) {
			found = append(found, test)
		}
	}
	return found, err
}

// event is a line of `go test -json`; see `go doc test2json`, and `go help buildjson`.
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
	FailedBuild                               string
}

// failure is a test that failed, or a package without one: its build, a panic, its time limit.
type failure struct {
	label, pkg, test string
	output           []byte
}

type run struct {
	began time.Time

	mu      sync.Mutex
	out     map[string][]byte // by command, package and test
	failed  []failure
	passed  int
	skipped int
	slowest map[string]float64
}

// command runs one go test.
func (r *run) command(label string, cmd *exec.Cmd) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.add(failure{label, "go test", "", []byte(err.Error())})
		return
	}
	explained := false
	lines := bufio.NewReaderSize(stdout, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil {
			r.event(label, e)
			explained = explained || e.Action == "fail"
		} else if len(bytes.TrimSpace(line)) > 0 {
			stderr.Write(line)
		}
		if err != nil {
			break
		}
	}
	if err := cmd.Wait(); err != nil && !explained {
		r.add(failure{label, strings.Join(cmd.Args[3:], " "), "", append(stderr.Bytes(), err.Error()...)})
	}
}

func (r *run) add(f failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = append(r.failed, f)
}

func (r *run) event(label string, e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pkg := strings.TrimPrefix(strings.TrimPrefix(e.Package, module), "/")
	key := label + "\x00" + e.Package + "\x00" + e.Test
	switch e.Action {
	case "output":
		if !isFrame(e.Output) {
			r.out[key] = append(r.out[key], e.Output...)
		}
	case "build-output":
		r.out[e.ImportPath] = append(r.out[e.ImportPath], e.Output...)
	case "pass", "skip", "fail":
		if e.Test != "" {
			r.test(label, pkg, e, r.out[key])
			delete(r.out, key)
			return
		}
		r.pkg(label, pkg, e, append(r.out[e.FailedBuild], r.out[key]...))
	}
}

// isFrame reports whether a line is only the testing package's own.
func isFrame(line string) bool {
	for _, prefix := range []string{"=== RUN", "=== PAUSE", "=== CONT", "=== NAME", "--- PASS", "PASS", "ok  \t"} {
		if strings.HasPrefix(strings.TrimLeft(line, " "), prefix) {
			return true
		}
	}
	return false
}

func (r *run) test(label, pkg string, e event, output []byte) {
	isPart := func(f failure) bool { return f.label == label && f.pkg == pkg && strings.HasPrefix(f.test, e.Test+"/") }
	switch top := !strings.Contains(e.Test, "/"); {
	case e.Action == "fail" && !slices.ContainsFunc(r.failed, isPart): // a failed part says more than the whole
		r.failed = append(r.failed, failure{label, pkg, e.Test, output})
	case e.Action == "skip" && top:
		r.skipped++
	case e.Action == "pass" && top:
		r.passed++
		r.slowest[strings.TrimSpace(label+" "+pkg)+" "+e.Test] = e.Elapsed
	}
}

func (r *run) pkg(label, pkg string, e event, output []byte) {
	name := strings.TrimSpace(label + " " + pkg)
	if e.Action == "fail" && !slices.ContainsFunc(r.failed, func(f failure) bool { return f.label == label && f.pkg == pkg }) {
		r.failed = append(r.failed, failure{label, pkg, "", output})
	}
	if e.Action == "skip" {
		return // it has no tests
	}
	note := ""
	if bytes.Contains(output, []byte("(cached)")) {
		note = ", as before"
	}
	fmt.Printf("%-4s  %-32s %6.1f s%s\n", map[string]string{"pass": "ok", "fail": "FAIL"}[e.Action], name, e.Elapsed, note)
}

var names = regexp.MustCompile(`[^\w/]`)

// summary prints the end of a run, and returns its exit code.
func (r *run) summary(w io.Writer) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	took := time.Since(r.began).Round(time.Second)
	if len(r.failed) == 0 {
		var all []string
		for name := range r.slowest {
			all = append(all, name)
		}
		slices.SortFunc(all, func(a, b string) int { return int(1000 * (r.slowest[b] - r.slowest[a])) })
		fmt.Fprintf(w, "\nthe slowest:")
		for _, name := range all[:min(10, len(all))] {
			fmt.Fprintf(w, " %s (%.0f s)", name, r.slowest[name])
		}
		fmt.Fprintf(w, "\n%d tests passed, %d skipped, in %s\n", r.passed, r.skipped, took)
		return 0
	}
	for _, f := range r.failed {
		fmt.Fprintf(w, "\n=== %s\n%s", f.name(), tail(f.output, inFull))
	}
	fmt.Fprintf(w, "\n%d failed, %d tests passed, %d skipped, in %s:\n", len(r.failed), r.passed, r.skipped, took)
	commands := r.again()
	each := max((lastLines-2-len(r.failed)-len(commands))/len(r.failed), 1)
	for _, f := range r.failed[:min(len(r.failed), lastLines/2)] {
		fmt.Fprintf(w, "  %s\n%s", f.name(), tail(f.output, each))
	}
	fmt.Fprintf(w, "to run just these:\n")
	for _, c := range commands {
		fmt.Fprintln(w, "  "+c)
	}
	return 1
}

func (f failure) name() string {
	return strings.TrimSpace(strings.Join([]string{f.label, f.pkg, f.test}, " "))
}

// again returns a command for each package with failures.
func (r *run) again() (commands []string) {
	tests := map[string][]string{}
	for _, f := range r.failed {
		top, _, _ := strings.Cut(f.test, "/")
		if f.label == "rootless" { // it runs the tests of its package again
			top = "TestRootless"
		}
		if top != "" && !slices.Contains(tests[f.pkg], top) {
			tests[f.pkg] = append(tests[f.pkg], names.ReplaceAllString(top, "."))
		} else if tests[f.pkg] == nil {
			tests[f.pkg] = []string{}
		}
	}
	for pkg, all := range tests {
		pattern := ""
		if len(all) > 0 {
			pattern = " RUN='^(" + strings.Join(all, "|") + ")$'"
		}
		commands = append(commands, "make test-one PKG=./"+pkg+pattern)
	}
	slices.Sort(commands)
	return commands
}

// tail returns the last n lines, each with an indent.
func tail(text []byte, n int) string {
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	if cut := len(lines) - n; cut > 0 {
		lines = lines[cut:]
	}
	var b strings.Builder
	for _, line := range lines {
		if line != "" {
			b.WriteString("    " + strings.TrimRight(line, " \t") + "\n")
		}
	}
	return b.String()
}
