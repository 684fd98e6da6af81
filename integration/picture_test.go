package integration

import (
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pictured are the commands of the README's picture of a terminal.
var pictured = []string{
	"wisbox create box --mount ./examples/project",
	"wisbox exec box -- python3 -m unittest 2>&1 | tail -n 3",
	"wisbox exec box -- curl -sS https://example.com",
	"wisbox exec box -- rm -r tests",
	"wisbox diff box",
	"wisbox undo box",
	"wisbox diff box",
	"wisbox rm box",
}

// TestThePictureOfATerminalIsARealRun compares the picture with the commands' present output. WISBOX_UPDATE=1 updates
// it.
func TestThePictureOfATerminalIsARealRun(t *testing.T) {
	h := newHome(t)
	examples, err := filepath.Abs("../examples")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(examples, filepath.Join(dir, "examples")))
	require.NoError(t, os.Symlink(binary(t), filepath.Join(dir, "wisbox")))
	var lines []string
	for _, line := range pictured {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", line)
		cmd.Dir, cmd.Env = dir, slices.Concat(h.command().Env, []string{"PATH=" + dir + ":" + os.Getenv("PATH")})
		out, _ := cmd.CombinedOutput() // some exit with a program's exit code
		lines = append(lines, "$ "+line)
		if text := strings.TrimRight(steady(string(out)), "\n"); text != "" {
			lines = append(lines, strings.Split(text, "\n")...)
		}
	}
	const path = "../docs/pictures/terminal.svg"
	if os.Getenv("WISBOX_UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(terminalPicture(lines)), 0o644))
	}
	picture, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, terminalPicture(lines), string(picture), "make it again: WISBOX_UPDATE=1 go test -run TestThePictureOfATerminal ./integration")
}

// steady replaces times and IDs, which differ between runs.
func steady(text string) string {
	text = regexp.MustCompile(` in [0-9.]+s`).ReplaceAllString(text, " in 0.002s")
	return regexp.MustCompile(`\b01[0-9a-z]{24}\b`).ReplaceAllString(text, "01m840ab5n5tnfnx43zdt96cbz")
}

func terminalPicture(lines []string) string {
	const height, width, margin = 20, 900, 20
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="ui-monospace, monospace" font-size="14">`+"\n", width, height*len(lines)+2*margin)
	b.WriteString(`<rect width="100%" height="100%" rx="8" fill="#16181d"/>` + "\n")
	for n, line := range lines {
		colour := "#c8ccd4"
		if strings.HasPrefix(line, "$ ") {
			colour = "#8fd694"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s" xml:space="preserve">%s</text>`+"\n", margin, margin+height*n+14, colour, html.EscapeString(line))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
