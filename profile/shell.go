package profile

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// run is what of shell_execute's result is used here.
type run struct {
	ExitCode int    `json:"exit_code"`
	Status   string `json:"status"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`

	StdoutDropped int64 `json:"stdout_dropped"`
	StderrDropped int64 `json:"stderr_dropped"`
}

// shorten keeps head and tail of a text that has more than most characters, with
// a line between that says how much is missing.
func shorten(text string, most int) string {
	n := utf8.RuneCountInString(text)
	if n <= most {
		return text
	}
	runes := []rune(text)
	head := most / 2
	return string(runes[:head]) + fmt.Sprintf("\n[... %d characters are missing here ...]\n", n-most) + string(runes[n-most+head:])
}

// ended gives a text that isn't empty the newline that its last line may lack.
func ended(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}
