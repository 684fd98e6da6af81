package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// manPages returns the pages of all visible commands, by file name. A test makes them, so that the
// command doesn't link their generator.
func manPages(t *testing.T) map[string]string {
	t.Helper()
	epoch, err := strconv.ParseInt(cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), "0"), 10, 64)
	require.NoError(t, err)
	date := time.Unix(epoch, 0).UTC()
	root := (&app{in: strings.NewReader(""), out: io.Discard, err: io.Discard}).newRootCmd()
	root.InitDefaultCompletionCmd()
	var all []*cobra.Command
	everyCommand(root, func(cmd *cobra.Command) { all = append(all, cmd) })
	pages := map[string]string{}
	for _, cmd := range all { // which get help below them by what makes the pages
		cmd.DisableAutoGenTag = true
		cmd.InitDefaultHelpFlag()
		cmd.Long = manText(cmd.Long)
		cmd.LocalFlags().VisitAll(manFlag)
		var page bytes.Buffer
		require.NoError(t, doc.GenMan(cmd, &doc.GenManHeader{Date: &date, Source: "wisbox", Manual: "wisbox"}, &page))
		pages[strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"] = flagWithoutValue.ReplaceAllString(page.String(), "$1\n")
	}
	return pages
}

// manText returns help as Markdown: paragraphs flow; indented lines and tables stay.
func manText(help string) string {
	var b strings.Builder
	asItIs := false
	for line := range strings.Lines(help) {
		text := strings.TrimSuffix(line, "\n")
		if wide := strings.Contains(text, "  ") || strings.HasPrefix(text, "\t"); wide != asItIs && text != "" {
			b.WriteString("\n")
			asItIs = wide
		}
		switch {
		case asItIs && text != "":
			b.WriteString("    " + text + "\n")
		default:
			b.WriteString(markdownSigns.Replace(text) + "\n")
		}
	}
	return b.String()
}

var markdownSigns = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "<", `\<`, "[", `\[`, "]", `\]`)

// manValue is a flag's value whose name the page shows, such as DIR, without a default.
type manValue struct{ pflag.Value }

func (manValue) Type() string { return "" }

var flagWithoutValue = regexp.MustCompile(`(?m)(\\fB--[a-z0-9-]+\\fP)=$\n`)

func manFlag(f *pflag.Flag) {
	if _, done := f.Value.(manValue); done {
		return
	}
	name, usage := pflag.UnquoteUsage(f)
	if f.DefValue != "" && !strings.Contains(usage, "(default") && !slices.Contains([]string{"false", "0", "0s", "[]"}, f.DefValue) {
		usage += fmt.Sprintf(" (default %s)", f.DefValue)
	}
	f.Usage, f.DefValue, f.NoOptDefVal, f.Value = markdownSigns.Replace(usage), name, "", manValue{f.Value}
}

var emptySection = regexp.MustCompile(`(?m)^\.SH .*\n(\.(PP|RS|nf|EX|EE|fi|RE)\n|\s*\n)*(\.SH|\z)`)

// TestManPages makes the pages and writes them to $WISBOX_MAN, for make dist.
func TestManPages(t *testing.T) {
	pages := manPages(t)
	assert.NotContains(t, pages, "wisbox-session-help.1")
	everyCommand((&app{}).newRootCmd(), func(cmd *cobra.Command) {
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		page := pages[name]
		assert.Contains(t, page, ".SH DESCRIPTION\n", name)
		assert.Equal(t, cmd.Example != "", strings.Contains(page, ".SH EXAMPLE\n"), name)
		assert.NotRegexp(t, emptySection, page)
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			assert.Equal(t, !f.Hidden, strings.Contains(page, `\fB--`+f.Name+`\fP`), "%s --%s", name, f.Name)
		})
		for _, other := range regexp.MustCompile(`\\fB(wisbox[a-z-]*)\(1\)\\fP`).FindAllStringSubmatch(page, -1) {
			assert.Contains(t, pages, other[1]+".1", "%s refers to it", name)
		}
	})
	dir := os.Getenv("WISBOX_MAN")
	if dir == "" {
		return
	}
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, page := range pages {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(page), 0o644))
	}
}

// TestTheUnitStartsWhatThereIs compares the packages' systemd unit with the command line, the pages
// and the documents, and lets systemd check it if it is installed.
func TestTheUnitStartsWhatThereIs(t *testing.T) {
	raw, err := os.ReadFile("../../packaging/wisbox-serve.service")
	require.NoError(t, err)
	unit := string(raw)
	started := regexp.MustCompile(`(?m)^ExecStart=/usr/bin/wisbox (.*)$`).FindStringSubmatch(unit)
	require.NotNil(t, started, unit)
	cmd, rest, err := (&app{}).newRootCmd().Find(strings.Fields(started[1]))
	require.NoError(t, err)
	require.NoError(t, cmd.ParseFlags(rest))
	require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()))
	page := regexp.MustCompile(`man:([a-z-]+)\(1\)`).FindStringSubmatch(unit)
	require.NotNil(t, page, unit)
	assert.Contains(t, manPages(t), page[1]+".1")
	document := regexp.MustCompile(`file:///usr/share/doc/wisbox/(\S+)`).FindStringSubmatch(unit)
	require.NotNil(t, document, unit)
	assert.FileExists(t, "../../"+document[1])
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		return
	}
	here := filepath.Join(t.TempDir(), "wisbox-serve.service")
	self, err := os.Executable()
	require.NoError(t, err)
	unit = regexp.MustCompile(`(?m)^Documentation=.*\n`).ReplaceAllString(strings.ReplaceAll(unit, "/usr/bin/wisbox", self), "")
	require.NoError(t, os.WriteFile(here, []byte(unit), 0o644))
	verify := exec.Command("systemd-analyze", "--user", "verify", here)
	verify.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	out, err := verify.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.NotContains(t, string(out), "wisbox-serve.service:", "a line that systemd doesn't understand")
}
