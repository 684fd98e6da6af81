package profile

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// run is the part of shell_execute's result that is used here.
type run struct {
	ExitCode int    `json:"exit_code"`
	Status   string `json:"status"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`

	StdoutDropped int64 `json:"stdout_dropped"`
	StderrDropped int64 `json:"stderr_dropped"`
}

// shorten keeps the head and the tail of a text of more than most characters, with a line in
// between about the missing part.
func shorten(text string, most int) string {
	n := utf8.RuneCountInString(text)
	if n <= most {
		return text
	}
	runes := []rune(text)
	head := most / 2
	return string(runes[:head]) + fmt.Sprintf("\n[... %d characters are missing here ...]\n", n-most) + string(runes[n-most+head:])
}

// ended adds a newline to a text whose last line lacks it, unless the text is empty.
func ended(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}
