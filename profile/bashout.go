package profile

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

var errBashTimeout = errors.New("the command ran too long")

// follow reads the shell's output until the mark, the shell's end or ctx's.
func (s *bash) follow(ctx context.Context, mark string) (bashResult, error) {
	var out bashOutput
	report := tool.Progress(ctx)
	for {
		l, err := s.look(ctx, bashWait)
		switch {
		case errors.Is(context.Cause(ctx), errBashTimeout):
			s.kill(ctx)
			return bashResult{Output: out.text(), ExitCode: 124, TimedOut: true, Note: "timed out after 120 s; the shell was ended, the next command starts a new one"}, nil
		case ctx.Err() != nil:
			s.kill(ctx)
			return bashResult{}, ctx.Err()
		case err != nil:
			s.kill(ctx)
			return bashResult{}, err
		}
		out.add(l.Output)
		if text, code, ended := out.until(mark); ended {
			return bashResult{Output: text, ExitCode: code}, nil
		}
		if l.State != "running" && !l.More {
			return s.ended(out.text(), l.Exit), nil
		}
		if report != nil {
			report(out.text())
		}
	}
}

func (s *bash) ended(output string, code *int) bashResult {
	s.id, s.read = "", 0
	r := bashResult{Output: output, ExitCode: -1, Note: "the shell ended; the next command starts a new one"}
	if code != nil {
		r.ExitCode = *code
	}
	return r
}

// bashOutput keeps the head and the tail of the output.
type bashOutput struct {
	head, tail string
	dropped    int
}

func (o *bashOutput) add(text string) {
	if room := maxBashOutput/2 - len(o.head); room > 0 && o.tail == "" {
		n := min(room, len(text))
		o.head, text = o.head+text[:n], text[n:]
	}
	o.tail += text
	if over := len(o.tail) - maxBashOutput/2; over > 0 {
		o.dropped += over
		o.tail = o.tail[over:]
	}
}

// until looks for the mark and the exit code after it.
func (o *bashOutput) until(mark string) (text string, code int, ended bool) {
	whole := o.text()
	text, rest, found := strings.Cut(whole, "\n"+mark+" ")
	number, _, complete := strings.Cut(rest, "\n")
	if !found || !complete {
		return "", 0, false
	}
	code, err := strconv.Atoi(number)
	if err != nil {
		code = -1
	}
	return text, code, true
}

func (o *bashOutput) text() string {
	if o.dropped == 0 {
		return strings.ToValidUTF8(o.head+o.tail, "\uFFFD")
	}
	return strings.ToValidUTF8(o.head, "") + fmt.Sprintf("\n[... %d bytes are missing here ...]\n", o.dropped) + strings.ToValidUTF8(o.tail, "")
}
