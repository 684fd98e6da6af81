// Package builds writes the Containerfile of a template that a server's client describes, and reads
// the files that the client sends with it. No text of a client can end a line or an argument there,
// and none of its files is outside of the build's context.
package builds

import (
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/wisbox/wisbox/tool"
	"sync"
)

// Kinds of steps. Args are as clients of E2B send them: RUN has a command for bash and an optional
// user; COPY a source, a destination, an optional user and mode; ENV alternating names and values;
// USER and WORKDIR one argument.
const (
	Run     = "RUN"
	Copy    = "COPY"
	Env     = "ENV"
	User    = "USER"
	Workdir = "WORKDIR"
)

// Step is one step of a recipe.
type Step struct {
	Kind string
	Args []string
	// Files is the path of the archive that [Clean] wrote for a COPY.
	Files string
}

// Recipe describes how to build a template.
type Recipe struct {
	Steps []Step
	// Inherit means that the build begins in the directory where the build of its base, also a
	// template, ended.
	Inherit bool
}

// Bounds of a recipe.
const (
	MaxSteps = 200
	maxArg   = 32 << 10 // bytes of an argument
	maxLine  = 60 << 10 // bytes of a line; Podman's parser takes at most 64 KiB
	maxPairs = 256      // of one ENV
)

const (
	defaultUser = "user"
	// Home has the content of /home/user for a template's sandboxes. A sandbox hides the image's
	// own files there, so the last step of a build copies them to Home.
	Home = "/usr/local/lib/wisbox/home"
)

var (
	kinds    = map[string][2]int{Run: {1, 2}, Copy: {2, 4}, Env: {2, 2 * maxPairs}, User: {1, 1}, Workdir: {1, 1}}
	userForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,31})?$`)
	})
	modeForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^0?[0-7]{3}$`) })
	nameForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`) })
)

// Check reports an error of the recipe. Its message begins with the field.
func (r *Recipe) Check() error {
	if len(r.Steps) > MaxSteps {
		return tool.Errorf(tool.Invalid, "steps has %d entries; the maximum is %d", len(r.Steps), MaxSteps).In("steps")
	}
	for i, s := range r.Steps {
		if err := s.check(); err != nil {
			return tool.Errorf(tool.Invalid, "steps[%d]: %s", i, tool.AsError(err).Message).In("steps")
		}
	}
	return nil
}

func (s *Step) check() error {
	count, ok := kinds[s.Kind]
	switch {
	case !ok:
		return tool.Errorf(tool.Invalid, "unknown type %q; it must be RUN, COPY, ENV, USER or WORKDIR", clipped(s.Kind))
	case len(s.Args) < count[0] || len(s.Args) > count[1]:
		return tool.Errorf(tool.Invalid, "%s has %d arguments; it must have %d to %d", s.Kind, len(s.Args), count[0], count[1])
	}
	for _, arg := range s.Args {
		switch {
		case len(arg) > maxArg:
			return tool.Errorf(tool.Invalid, "an argument of %s has %d bytes; the maximum is %d: copy a file, and run that", s.Kind, len(arg), maxArg)
		case strings.Contains(arg, "\x00") || !utf8.ValidString(arg):
			return tool.Errorf(tool.Invalid, "an argument of %s has a NUL or is not UTF-8; leave it out", s.Kind)
		case s.Kind != Run && strings.ContainsFunc(arg, func(c rune) bool { return c < ' ' || c == 0x7f }):
			return tool.Errorf(tool.Invalid, "an argument of %s has a line break or control character; leave it out, or have a command of RUN write a file", s.Kind)
		}
	}
	if err := s.checkArgs(); err != nil {
		return err
	}
	unread := *s // the build reads a COPY's archive; the names here don't matter any more
	unread.Files = ""
	for _, line := range unread.lines("0", defaultUser) {
		if len(line) > maxLine {
			return tool.Errorf(tool.Invalid, "%s has %d bytes after escaping; the maximum is %d: copy a file, and run that", s.Kind, len(line), maxLine)
		}
	}
	return nil
}

func (s *Step) checkArgs() error {
	switch s.Kind {
	case Run:
		if strings.TrimSpace(s.Args[0]) == "" {
			return tool.Errorf(tool.Invalid, "RUN has an empty command; give one, or leave the step out")
		}
		return checkUser(s.arg(1))
	case User:
		if s.Args[0] == "" {
			return tool.Errorf(tool.Invalid, "USER has no name; give one")
		}
		return checkUser(s.Args[0])
	case Env:
		if len(s.Args)%2 != 0 {
			return tool.Errorf(tool.Invalid, "ENV has a name without a value; give one")
		}
		for i := 0; i < len(s.Args); i += 2 {
			if !nameForm().MatchString(s.Args[i]) {
				return tool.Errorf(tool.Invalid, "ENV has the name %q; it must be letters, digits and _", clipped(s.Args[i]))
			}
		}
	case Workdir:
		if s.Args[0] == "" {
			return tool.Errorf(tool.Invalid, "WORKDIR has no path; give one")
		}
	case Copy:
		if s.Args[1] == "" {
			return tool.Errorf(tool.Invalid, "COPY has no destination; give one")
		}
		if mode := s.arg(3); mode != "" && !modeForm().MatchString(mode) {
			return tool.Errorf(tool.Invalid, "COPY has the mode %q; it must be octal, as 0755", clipped(mode))
		}
		if !isLocal(path.Clean(s.Args[0])) {
			return tool.Errorf(tool.Invalid, "COPY has the source %q; it must be a path below the context", clipped(s.Args[0]))
		}
		return checkUser(s.arg(2))
	}
	return nil
}

func checkUser(name string) error {
	if name != "" && !userForm().MatchString(name) {
		return tool.Errorf(tool.Invalid, "the user is %q; it must be a name or number, maybe with a group as user:group", clipped(name))
	}
	return nil
}

func (s *Step) arg(i int) string {
	if i < len(s.Args) {
		return s.Args[i]
	}
	return ""
}

// String returns a step on one line, as a person would write it.
func (s *Step) String() string {
	n := len(s.Args)
	if s.Kind == Run {
		n = 1
	}
	return clipped(s.Kind + " " + strings.Join(strings.Fields(strings.Join(s.Args[:n], " ")), " "))
}

const maxShown = 200 // bytes of a client's text in a message

func clipped(s string) string {
	if len(s) > maxShown {
		return strings.ToValidUTF8(s[:maxShown], "") + "…"
	}
	return s
}

// begin creates the user and the home of sandboxes and restores a base template's home.
const begin = `set -e
line() { f=/etc/$1; { echo "$2"; [ ! -f $f ] || sed '/^user:/d' $f; } >/tmp/.wisbox; cat /tmp/.wisbox >$f; rm /tmp/.wisbox; }
line passwd 'user:x:1000:1000::/home/user:/bin/bash'
line group 'user:x:1000:'
if [ -d ` + Home + ` ]; then rm -rf /home/user; mkdir -p /home; mv ` + Home + ` /home/user; fi
mkdir -p /home/user
chown 1000:1000 /home/user`

// end copies the home to the place where a session finds it, readable by all users.
const end = `set -e
rm -rf ` + Home + `
mkdir -p /home/user ` + Home + `
rmdir ` + Home + `
mv /home/user ` + Home + `
chown -Rh 1000:1000 ` + Home + `
chmod u+rwx ` + Home + `
mkdir /home/user
chown 1000:1000 /home/user`

// Containerfile returns the Containerfile for a base, the ID of an image. stepOf has, for each of
// its instructions, as Podman counts them from 1, the number of the step that it belongs to: 0 for
// those before the first step, len(Steps)+1 for those after the last.
func (r *Recipe) Containerfile(base string) (text []byte, stepOf []int) {
	var b strings.Builder
	stepOf = []int{0}
	put := func(step int, lines ...string) {
		for _, line := range lines {
			b.WriteString(line + "\n")
			stepOf = append(stepOf, step)
		}
	}
	put(0, "FROM "+base, "USER root", run("/bin/sh", "-c", begin))
	if !r.Inherit {
		put(0, "WORKDIR /home/user")
	}
	user := defaultUser
	put(0, "USER "+user)
	for i, s := range r.Steps {
		as := s.arg(1)
		if s.Kind != Run || as == "" {
			as = user
		}
		if as != user {
			put(i+1, "USER "+as)
		}
		put(i+1, s.lines(strconv.Itoa(i), user)...)
		if as != user {
			put(i+1, "USER "+user)
		}
		if s.Kind == User {
			user = s.Args[0]
		}
	}
	put(len(r.Steps)+1, "USER root", run("/bin/sh", "-c", end))
	return []byte(b.String()), stepOf
}

// lines returns a step's instructions. dir is the directory of a COPY's files in the context.
func (s *Step) lines(dir, user string) (all []string) {
	switch s.Kind {
	case Run:
		return []string{run("/bin/bash", "-l", "-c", s.Args[0])}
	case Copy:
		return []string{s.copyLine(dir, user)}
	case User:
		return []string{"USER " + s.Args[0]}
	case Workdir:
		return []string{"WORKDIR " + quoted(s.Args[0])}
	}
	for i := 0; i+1 < len(s.Args); i += 2 { // one by one, because a value may refer to the variable before it
		all = append(all, "ENV "+s.Args[i]+"="+quoted(s.Args[i+1]))
	}
	return all
}

func (s *Step) copyLine(dir, user string) string {
	if s.arg(2) != "" {
		user = s.Args[2]
	}
	flags := " --chown=" + user
	if mode := s.arg(3); mode != "" {
		flags += " --chmod=" + mode
	}
	from := dir + "/"
	if base := path.Base(path.Clean(s.Args[0])); s.Files != "" && oneFile(s.Files, path.Clean(s.Args[0])) {
		from += literal(glob(base))
	}
	return "COPY" + flags + " " + jsonWords(from, literal(s.Args[1]))
}

// run returns a RUN instruction with exactly these arguments.
func run(argv ...string) string { return "RUN " + jsonWords(argv...) }

// jsonWords returns a JSON array. It escapes each character that a parser of Containerfiles could
// interpret.
func jsonWords(words ...string) string {
	var b strings.Builder
	for i, word := range words {
		b.WriteString([]string{"[", ","}[min(i, 1)])
		b.WriteByte('"')
		for _, c := range word {
			writeEscaped(&b, c)
		}
		b.WriteByte('"')
	}
	return b.String() + "]"
}

func writeEscaped(b *strings.Builder, c rune) {
	plain := c < utf8.RuneSelf && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(" ./_:=+,-", c))
	switch {
	case plain:
		b.WriteRune(c)
	case c > 0xffff:
		c -= 0x10000
		fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
	default:
		fmt.Fprintf(b, `\u%04x`, c)
	}
}

// quoted returns a word in which only variables of the image are expanded. \$ is a $.
func quoted(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `\\$`, `\$`)
	return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"`
}

// literal returns a word for COPY without special characters.
func literal(s string) string { return escaped(s, `\$'"`) }

// glob returns a pattern that only matches s.
func glob(s string) string { return escaped(s, `\*?[`) }

func escaped(s, special string) string {
	var b strings.Builder
	for _, c := range s {
		if strings.ContainsRune(special, c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// StepError is the error of a failed step: 0 stands for the instructions before the first,
// len(Steps)+1 for those after the last.
type StepError struct {
	Step int
	Err  error
}

func (e *StepError) Error() string { return e.Err.Error() }
func (e *StepError) Unwrap() error { return e.Err }
