package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newReplCmd() *cobra.Command {
	var name, out string
	cmd := &cobra.Command{
		Use:   "repl [flags] SESSION",
		Short: "Start a Python prompt on the session's kept interpreter",
		Long: `Reads Python, evaluates it in the session's kept interpreter and prints the value.
Notebook syntax works too, except %%magic: !command, %time, object?, display().
Names stay between lines, calls and prompts. It saves pictures to files and prints their
names. Up and down go through the history, which is kept for the next prompt; Tab
completes a name; an empty line ends a block; Ctrl-C interrupts the code and keeps the
names; Ctrl-D or exit() leaves; help() shows this. Without a terminal the lines come from stdin.`,
		Args: exactArgs("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.runRepl(cmd.Context(), args[0], name, out) },
	}
	cmd.Flags().StringVar(&name, "context", "", "use the context of this `NAME`; see: wisbox lab context")
	cmd.Flags().StringVar(&out, "out", "", "save pictures in this `DIR` (default: a new one in the temporary directory)")
	return cmd
}

func (a *app) runRepl(ctx context.Context, name, in, out string) error {
	return a.withSession(ctx, name, func(s *wisbox.Session) error {
		if err := confirmPython(ctx, s, in); err != nil {
			return err
		}
		if err := confirmKept(ctx, s, in); err != nil {
			return err
		}
		console, restore, err := a.newConsole(ctx)
		if err != nil {
			return err
		}
		defer restore()
		console.context, console.pictures = in, &pictures{dir: out}
		defer console.pictures.close()
		console.names = completer(ctx, s.Evaluate, in)
		return a.replLoop(ctx, s, console)
	})
}

// confirmPython refuses a context of another language.
func confirmPython(ctx context.Context, s *wisbox.Session, in string) error {
	all, err := s.Contexts(ctx)
	if err != nil {
		return err
	}
	return otherLanguage(all, in)
}

func otherLanguage(all []evaltool.Context, in string) error {
	for _, c := range all {
		if c.Name == in && c.Language != evaltool.LanguagePython {
			return tool.Errorf(tool.Unsupported, "the context %s is of %s, and this prompt is Python's; use: wisbox eval python --session SESSION --context %[1]s CODE", c.Name, c.Language).In("context")
		}
	}
	return nil
}

// confirmKept starts the interpreter, so that errors appear before the first prompt.
func confirmKept(ctx context.Context, s *wisbox.Session, in string) error {
	_, err := s.Evaluate(ctx, evaltool.Run{Params: evaltool.Params{Code: "None", State: "kept", Context: in}}, func(evaltool.Part) {})
	return err
}

func (a *app) replLoop(ctx context.Context, s *wisbox.Session, c *console) error {
	var block []string
	for {
		prompt := ">>> "
		if len(block) > 0 {
			prompt = "... "
		}
		line, err := c.line(prompt)
		if errors.Is(err, errInterrupt) {
			block = nil
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return a.replEnd(ctx, s, c, block)
		}
		block = append(block, line)
		source := strings.Join(block, "\n")
		if strings.TrimSpace(source) != "" && incomplete(ctx, s, source) {
			continue
		}
		block = nil
		switch strings.TrimSpace(source) {
		case "exit", "exit()", "quit", "quit()":
			return nil
		case "help", "help()":
			_, _ = io.WriteString(c, replHelp+"\n")
			continue
		}
		a.replEvaluate(ctx, s, c, source)
	}
}

const replHelp = `Python in the session's sandbox; names stay.
  object?        describes an object      Tab      completes a name
  !command       a command for bash       Up       the line before
  %time, %cd ... magics, as in IPython    Ctrl-C   interrupts code, keeps the names
  help(object)   Python's own help        exit()   leaves, as Ctrl-D does`

// replEnd evaluates the block that the end of the input cut off.
func (a *app) replEnd(ctx context.Context, s *wisbox.Session, c *console, block []string) error {
	if source := strings.Join(block, "\n"); strings.TrimSpace(source) != "" {
		a.replEvaluate(ctx, s, c, source)
	}
	return nil
}

// incomplete asks Python, as its own prompt does, whether the source is incomplete.
func incomplete(ctx context.Context, s *wisbox.Session, source string) bool {
	text, err := json.Marshal(source)
	if err != nil {
		return false
	}
	raw, err := json.Marshal(map[string]any{
		"code":    "import codeop\ntry:\n    more = codeop.compile_command(source) is None\nexcept (SyntaxError, ValueError, OverflowError):\n    more = False\nmore",
		"globals": map[string]string{"source": string(text)},
	})
	if err != nil {
		return false
	}
	res, err := s.CallOwn(ctx, "evaluate_python", raw)
	if err != nil {
		return false
	}
	e, err := evaluationOf(res)
	return err == nil && e.Value != nil && *e.Value == "True"
}

func (a *app) replEvaluate(ctx context.Context, s *wisbox.Session, c *console, source string) {
	if strings.TrimSpace(source) == "" {
		return
	}
	shown := &liveOutput{out: c, err: c, object: func(o *evaltool.Object) { c.pictures.show(c, o) }}
	running, done := c.interruptible(ctx)
	res, err := s.Evaluate(running, evaltool.Run{Params: evaltool.Params{Code: source, State: "kept", Context: c.context}}, shown.part)
	interrupted := running.Err() != nil
	done()
	if err != nil && interrupted && ctx.Err() == nil {
		fmt.Fprintln(c, "KeyboardInterrupt")
		return
	}
	if err != nil {
		fmt.Fprintf(c, "wisbox: %s\n", streams.Printable(tool.AsError(err).Error()))
		return
	}
	if interrupted && ctx.Err() == nil {
		shown.line("KeyboardInterrupt")
		return
	}
	_ = shown.end(res)
}

var errInterrupt = errors.New("interrupted")

// console reads lines and keys from a terminal, with editing and history, or plain lines from
// another input. One goroutine reads the input. It passes keys to the line editor or, during an
// evaluation, searches them for Ctrl-C.
type console struct {
	io.Writer
	context  string // the context for evaluations
	pictures *pictures
	names    func(text string) (found []string, problem string) // completes a name; nil for none
	terminal *term.Terminal                                     // nil without a terminal
	keys     chan []byte
	ended    <-chan struct{} // closed at the command's end
	rest     []byte          // keys for the editor
	plain    *bufio.Reader
}

func (a *app) newConsole(ctx context.Context) (*console, func(), error) {
	f, ok := a.in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return &console{Writer: a.out, plain: bufio.NewReader(a.in)}, func() {}, nil
	}
	state, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, nil, tool.Errorf(tool.Unsupported, "this terminal has no raw mode").Because(err)
	}
	c := &console{keys: make(chan []byte), ended: ctx.Done()}
	c.terminal = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{c, a.out}, "")
	c.terminal.AutoCompleteCallback = c.complete
	c.terminal.History = openHistory(historyFile())
	c.Writer = c.terminal
	go c.readKeys(f)
	return c, func() { _ = term.Restore(int(f.Fd()), state) }, nil
}

func (c *console) readKeys(in io.Reader) {
	defer close(c.keys)
	for {
		buf := make([]byte, 256)
		n, err := in.Read(buf)
		if n > 0 {
			c.keys <- buf[:n]
		}
		if err != nil {
			return
		}
	}
}

const keyCtrlC = 3

// clearLine moves to the end of the line and deletes everything before it.
const clearLine = "\x05\x15"

// Read passes keys to the line editor. It returns Ctrl-C as an error, by itself, once the editor
// has handled the keys typed before it: the editor would take Ctrl-C for the end of the input, for
// good.
func (c *console) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		select {
		case keys, ok := <-c.keys:
			if !ok {
				return 0, io.EOF
			}
			c.rest = keys
		case <-c.ended:
			return 0, io.EOF
		}
	}
	at := bytes.IndexByte(c.rest, keyCtrlC)
	if at == 0 {
		c.rest = c.rest[1:]
		return copy(p, clearLine), errInterrupt
	}
	if at < 0 {
		at = len(c.rest)
	}
	n := copy(p, c.rest[:at])
	c.rest = c.rest[n:]
	return n, nil
}

func (c *console) line(prompt string) (string, error) {
	if c.terminal == nil {
		line, err := c.plain.ReadString('\n')
		if line != "" { // the last line may lack its newline
			err = nil
		}
		return strings.TrimSuffix(line, "\n"), err
	}
	c.terminal.SetPrompt(prompt)
	line, err := c.terminal.ReadLine()
	if errors.Is(err, errInterrupt) {
		fmt.Fprintln(c.terminal, "KeyboardInterrupt")
	}
	if errors.Is(err, term.ErrPasteIndicator) {
		err = nil
	}
	return line, err
}

// interruptible returns a context that ends at Ctrl-C, until done is called. Keys typed before
// Ctrl-C are discarded, as a terminal does; others are kept for the editor.
func (c *console) interruptible(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	if c.terminal == nil {
		return ctx, cancel
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case keys, ok := <-c.keys:
				at := bytes.LastIndexByte(keys, keyCtrlC)
				if at >= 0 {
					c.rest = nil
				}
				c.rest = append(c.rest, keys[at+1:]...)
				if !ok || at >= 0 {
					cancel()
					return
				}
			case <-stop:
				return
			}
		}
	}()
	return ctx, func() { close(stop); <-stopped; cancel() }
}
