package main

import (
	"fmt"
	"io"
	"io/fs"
	"strings"

	units "github.com/docker/go-units"
)

// progress draws a bar for the bytes that pass, on a terminal only.
type progress struct {
	out   io.Writer // nil without a terminal
	total int64     // an estimate; 0 if unknown
	done  int64
	shown int64
}

// newProgress takes the total as a function, which it calls only on a terminal.
func (a *app) newProgress(total func() int64) *progress {
	if !a.isLive() {
		return &progress{}
	}
	return &progress{out: a.err, total: total()}
}

// unknown is a total for progress of unknown length.
func unknown() int64 { return 0 }

const (
	progressStep  = 1 << 20 // bytes between two drawings
	progressWidth = 30      // characters
)

func (p *progress) Write(b []byte) (int, error) {
	p.done += int64(len(b))
	if p.out != nil && p.done-p.shown >= progressStep {
		p.shown = p.done
		fmt.Fprintf(p.out, "\r%s", p)
	}
	return len(b), nil
}

// String returns the bar and the number of bytes, or only the number if the total is unknown.
func (p *progress) String() string {
	done := fmt.Sprintf("%10s", units.HumanSize(float64(p.done)))
	if p.total == 0 {
		return done
	}
	return bar(p.done, p.total, progressWidth) + done
}

// bar draws part of a total, which must not be 0.
func bar(part, total, width int64) string {
	part = max(0, min(part, total))
	full := int(part * width / total)
	return fmt.Sprintf("[%s%s] %3d %% ", strings.Repeat("#", full), strings.Repeat(" ", int(width)-full), part*100/total)
}

func (p *progress) end() {
	if p.out != nil && p.shown > 0 {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// sizeBelow returns a function that counts the bytes of the files at name. Unreadable files count
// nothing.
func sizeBelow(files fs.FS, name string) func() int64 {
	return func() (sum int64) {
		_ = fs.WalkDir(files, name, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil // the copy itself reports it
			}
			if info, err := d.Info(); err == nil {
				sum += info.Size()
			}
			return nil
		})
		return sum
	}
}
