package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/mattn/go-runewidth"
	"sync"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
)

// status is a line of progress on a terminal, removed at the end. Elsewhere each line stays. It has
// no colours. It is for one goroutine.
type status struct {
	out   io.Writer
	live  bool
	width int      // maximum columns of a line, so that none wraps
	steps string   // the bar of a build
	last  []string // the newest lines shown on a terminal
}

// isLive reports whether lines on stderr can be redrawn.
func (a *app) isLive() bool { return isTerminal(a.err) && os.Getenv("TERM") != "dumb" }

func (a *app) newStatus() *status {
	s := &status{out: a.err, live: a.isLive()}
	if s.live {
		s.width = int(a.size().Cols) - 1
	}
	return s
}

// draw replaces the line; on a terminal only.
func (s *status) draw(text string) {
	if s.live {
		fmt.Fprintf(s.out, "\r\x1b[K%s", firstColumns(blanks.Replace(streams.Printable(text)), s.width))
	}
}

const statusLast = 20 // lines that stay on the terminal after an error

// say shows a line of a program's output, after the bar of the steps that it counts.
func (s *status) say(line string) {
	if !s.live {
		fmt.Fprintln(s.out, streams.Printable(line))
		return
	}
	if s.last = append(s.last, line); len(s.last) > statusLast {
		s.last = s.last[1:]
	}
	if m := buildStep().FindStringSubmatch(line); m != nil {
		n, _ := strconv.ParseInt(m[1], 10, 64)
		of, _ := strconv.ParseInt(m[2], 10, 64)
		s.steps = bar(n-1, of, stepsWidth) + " "
	}
	s.draw(s.steps + line)
}

// buildStep matches how Podman counts the steps of a Containerfile.
var buildStep = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^STEP ([0-9]{1,4})/([0-9]{1,4}):`) })

const stepsWidth = 10 // characters of the bar

// end removes the line. After an error it leaves the newest lines, which explain it.
func (s *status) end(err error) {
	if !s.live {
		return
	}
	fmt.Fprint(s.out, "\r\x1b[K")
	if err != nil {
		for _, line := range s.last {
			fmt.Fprintln(s.out, streams.Printable(line))
		}
	}
	s.last = nil
}

// watched calls do and shows the lines that it reports.
func (a *app) watched(do func(say func(line string)) error) error {
	s := a.newStatus()
	err := do(s.say)
	s.end(err)
	return err
}

// blanks replaces tabs and line ends with blanks.
var blanks = strings.NewReplacer("\t", " ", "\n", " ")

// firstColumns returns the beginning of a text that fits in n columns. A grapheme of several
// characters counts as their sum: a terminal may draw each one.
func firstColumns(s string, n int) string {
	for i, r := range s {
		if n -= runewidth.RuneWidth(r); n < 0 {
			return s[:i]
		}
	}
	return s
}
