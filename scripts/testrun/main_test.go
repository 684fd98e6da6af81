package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func summaryOf(events ...event) (string, int) {
	r := &run{began: time.Now(), out: map[string][]byte{}, slowest: map[string]float64{}}
	for _, e := range events {
		e.Package = "github.com/wisbox/wisbox/" + e.Package
		r.event("", e)
	}
	var b strings.Builder
	code := r.summary(&b)
	return b.String(), code
}

func TestTheLastLinesNameWhatFailedAndHowToRunIt(t *testing.T) {
	var events []event
	for i := range 12 {
		test := fmt.Sprintf("TestNumber%d", i)
		for line := range 30 {
			events = append(events, event{Action: "output", Package: "vfs", Test: test + "/part", Output: fmt.Sprintf("line %d of %d\n", line, i)})
		}
		events = append(events, event{Action: "fail", Package: "vfs", Test: test + "/part"}, event{Action: "fail", Package: "vfs", Test: test})
	}
	events = append(events, event{Action: "output", Package: "rlm", Output: "panic: out of luck\n"}, event{Action: "fail", Package: "rlm"}, event{Action: "pass", Package: "vfs", Test: "TestGood"})
	text, code := summaryOf(events...)
	require.Equal(t, 1, code)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := strings.Join(lines[len(lines)-lastLines:], "\n")
	assert.Contains(t, last, "13 failed, 1 tests passed, 0 skipped")
	assert.Contains(t, last, "vfs TestNumber11/part")
	assert.Contains(t, last, "line 29 of 11")
	assert.Contains(t, last, "panic: out of luck")
	assert.Contains(t, last, "make test-one PKG=./rlm\n")
	assert.Contains(t, last, "make test-one PKG=./vfs RUN='^(TestNumber0|TestNumber1|")
	assert.Contains(t, text, "line 5 of 3", "before them, the outputs are whole")
}

func TestAPackageThatDoesNotCompileIsAFailureWithItsErrors(t *testing.T) {
	text, code := summaryOf(
		event{Action: "build-output", ImportPath: "x [x.test]", Output: "x.go:1: undefined: y\n"}, event{Action: "build-fail", ImportPath: "x [x.test]"},
		event{Action: "fail", Package: "x", FailedBuild: "x [x.test]"})
	assert.Equal(t, 1, code)
	assert.Contains(t, text, "undefined: y")
}

func TestACommandThatIsWrongIsAFailure(t *testing.T) {
	r := &run{began: time.Now(), out: map[string][]byte{}, slowest: map[string]float64{}}
	r.command("", exec.Command("go", "test", "-json", "./nosuch"))
	var b strings.Builder
	assert.Equal(t, 1, r.summary(&b))
	assert.Contains(t, b.String(), "nosuch")
}

func TestAGoodRunNamesTheSlowest(t *testing.T) {
	text, code := summaryOf(event{Action: "pass", Package: "a", Test: "TestA", Elapsed: 7}, event{Action: "skip", Package: "a", Test: "TestB"}, event{Action: "pass", Package: "a"})
	assert.Zero(t, code)
	assert.Contains(t, text, "a TestA (7 s)")
	assert.Contains(t, text, "1 tests passed, 1 skipped")
}
