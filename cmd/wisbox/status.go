package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/mattn/go-runewidth"
)

// status is one line on a terminal that says how far something is, and is taken away at the
// end. Elsewhere each line stays. It has no colours. One goroutine uses it.
type status struct {
	out   io.Writer
	live  bool
	width int      // columns that a line may have, so that none wraps and stays
	steps string   // the bar of a build
	last  []string // said on a terminal, the newest
}

// isLive reports whether lines of stderr can be drawn anew.
func (a *app) isLive() bool { return isTerminal(a.err) && os.Getenv("TERM") != "dumb" }

func (a *app) newStatus() *status {
	s := &status{out: a.err, live: a.isLive()}
	if s.live {
		s.width = int(a.size().Cols) - 1
	}
	return s
}

// draw shows a text in place of the last one; on a terminal only.
func (s *status) draw(text string) {
	if s.live {
		fmt.Fprintf(s.out, "\r\x1b[K%s", firstColumns(blanks.Replace(printable(text)), s.width))
	}
}

const statusLast = 20 // lines that an error leaves on the terminal

// say says a line of what a program writes, behind the bar of the steps that it counts.
func (s *status) say(line string) {
	if !s.live {
		fmt.Fprintln(s.out, printable(line))
		return
	}
	if s.last = append(s.last, line); len(s.last) > statusLast {
		s.last = s.last[1:]
	}
	if m := buildStep.FindStringSubmatch(line); m != nil {
		n, _ := strconv.ParseInt(m[1], 10, 64)
		of, _ := strconv.ParseInt(m[2], 10, 64)
		s.steps = bar(n-1, of, stepsWidth) + " "
	}
	s.draw(s.steps + line)
}

// buildStep is how Podman counts the steps of a Containerfile.
var buildStep = regexp.MustCompile(`^STEP ([0-9]{1,4})/([0-9]{1,4}):`)

const stepsWidth = 10 // characters of the bar of steps

// end takes the line away. After an error the newest lines stay: they say what led to it.
func (s *status) end(err error) {
	if !s.live {
		return
	}
	fmt.Fprint(s.out, "\r\x1b[K")
	if err != nil {
		for _, line := range s.last {
			fmt.Fprintln(s.out, printable(line))
		}
	}
	s.last = nil
}

// watched does something that says lines, and shows them.
func (a *app) watched(do func(say func(line string)) error) error {
	s := a.newStatus()
	err := do(s.say)
	s.end(err)
	return err
}

// blanks has a blank for each tab and each line end.
var blanks = strings.NewReplacer("\t", " ", "\n", " ")

// firstColumns is as much of a text as fits in n columns. A sign of several characters counts as
// the sum of them: a terminal may draw each.
func firstColumns(s string, n int) string {
	for i, r := range s {
		if n -= runewidth.RuneWidth(r); n < 0 {
			return s[:i]
		}
	}
	return s
}
