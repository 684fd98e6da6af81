package shelltool

import (
	"fmt"
	"strings"
	"unicode"
)

// Text returns the result for a model: stdout, stderr under a heading, and a last line with the
// status.
func (r ExecuteResult) Text() string {
	var b strings.Builder
	block(&b, "", r.Stdout)
	block(&b, "[stderr]", r.Stderr)
	if r.Status == stateRunning {
		fmt.Fprintf(&b, "[still running after %d ms; process_read with process_id %s gives its output]", r.DurationMS, r.ProcessID)
		notices(&b, r.Notices)
		denials(&b, r.NetworkDenied)
		return b.String()
	}
	fmt.Fprintf(&b, "[%s, %d ms]", ending(string(r.Status), r.ExitCode, r.Signal), r.DurationMS)
	if n := r.StdoutDropped + r.StderrDropped; n > 0 {
		fmt.Fprintf(&b, "\n[%d bytes of output are not shown", n)
		if r.OutputID != "" {
			fmt.Fprintf(&b, "; read_output with output_id %s reads all of it, up to 8 MiB per stream", r.OutputID)
		}
		b.WriteString("]")
	}
	notices(&b, r.Notices)
	denials(&b, r.NetworkDenied)
	return b.String()
}

// Text returns the part, and the offset to continue with.
func (r ReadOutputResult) Text() string {
	var b strings.Builder
	block(&b, "", r.Content)
	fmt.Fprintf(&b, "[%s: bytes %d to %d of %d", r.Stream, r.Offset, r.NextOffset, r.TotalBytes)
	if r.Truncated {
		fmt.Fprintf(&b, "; continue with offset %d", r.NextOffset)
	}
	b.WriteString("]")
	notices(&b, r.Notices)
	return b.String()
}

// Text returns the output and the state.
func (r ReadResult) Text() string {
	var b strings.Builder
	if r.LostBytes > 0 {
		fmt.Fprintf(&b, "[%d older bytes are no longer kept]\n", r.LostBytes)
	}
	block(&b, "", r.Output)
	fmt.Fprintf(&b, "[%s; next offset %d", r.summary(), r.NextOffset)
	if r.Truncated {
		b.WriteString(", where there is more already")
	}
	b.WriteString("]")
	notices(&b, r.Notices)
	return b.String()
}

// Text returns one line about the process.
func (p ProcessInfo) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "process %s: %s, %d bytes of output", p.ProcessID, p.summary(), p.OutputBytes)
	if p.Listens != nil && *p.Listens {
		b.WriteString(", its port listens")
	}
	notices(&b, p.Notices)
	return b.String()
}

// Text returns a line for each process.
func (r ListResult) Text() string {
	if len(r.Processes) == 0 {
		return "no processes"
	}
	lines := make([]string, len(r.Processes))
	for i, p := range r.Processes {
		lines[i] = fmt.Sprintf("%s  %s  %s", p.ProcessID, p.summary(), visible(strings.Join(p.Command, " ")))
	}
	return strings.Join(lines, "\n")
}

// Text returns one line about the write.
func (r WriteResult) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d bytes written to process %s (%s)", r.WrittenBytes, r.ProcessID, r.State)
	notices(&b, r.Notices)
	return b.String()
}

func (p ProcessInfo) summary() string {
	if p.ExitCode == nil {
		return p.State
	}
	return ending(p.State, *p.ExitCode, p.Signal)
}

func ending(status string, code int, signal string) string {
	switch {
	case status == "exited":
		return fmt.Sprintf("exit code %d", code)
	case signal != "":
		return fmt.Sprintf("%s by %s, exit code %d", status, signal, code)
	}
	return fmt.Sprintf("%s, exit code %d", status, code)
}

func block(b *strings.Builder, heading, text string) {
	if text == "" {
		return
	}
	if heading != "" {
		b.WriteString(heading + "\n")
	}
	b.WriteString(visible(text))
	if !strings.HasSuffix(text, "\n") {
		b.WriteString("\n")
	}
}

func notices(b *strings.Builder, lines []string) {
	for _, line := range lines {
		fmt.Fprintf(b, "\n[%s]", line)
	}
}

func denials(b *strings.Builder, lines []string) {
	for _, line := range lines {
		fmt.Fprintf(b, "\n[network denied: %s]", visible(line))
	}
}

// visible escapes characters that could disturb a terminal or mislead a reader: control characters
// except newline and tab, and those that change the direction of text. The fields of a result keep
// the exact text.
func visible(text string) string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if !strings.ContainsFunc(text, hidden) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !hidden(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func hidden(r rune) bool {
	return r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}
