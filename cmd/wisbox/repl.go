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
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newReplCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "repl SESSION",
		Short: "A Python prompt on the session's kept interpreter",
		Long: `Reads Python, evaluates it in the session's kept interpreter and prints the value.
Names stay between lines, calls and prompts. Up and down go through the history, an
empty line ends a block, Ctrl-C ends what runs and keeps the names, Ctrl-D leaves.
Without a terminal the lines come from stdin.`,
		Args: exactArgs("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.runRepl(cmd.Context(), args[0]) },
	}
}

func (a *app) runRepl(ctx context.Context, name string) error {
	return a.withSession(ctx, name, func(s *wisbox.Session) error {
		if err := confirmKept(ctx, s); err != nil {
			return err
		}
		console, restore, err := a.newConsole(ctx)
		if err != nil {
			return err
		}
		defer restore()
		return a.replLoop(ctx, s, console)
	})
}

// confirmKept starts the interpreter, so that what is wrong is said before the
// first prompt.
func confirmKept(ctx context.Context, s *wisbox.Session) error {
	_, err := s.Call(ctx, "evaluate_python", json.RawMessage(`{"code":"None","state":"kept"}`))
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
		a.replEvaluate(ctx, s, c, source)
	}
}

// replEnd evaluates what the end of the input cut short, as a block.
func (a *app) replEnd(ctx context.Context, s *wisbox.Session, c *console, block []string) error {
	if source := strings.Join(block, "\n"); strings.TrimSpace(source) != "" {
		a.replEvaluate(ctx, s, c, source)
	}
	return nil
}

// incomplete asks Python whether the source goes on, as its own prompt does.
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
	res, err := s.Call(ctx, "evaluate_python", raw)
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
	raw, err := json.Marshal(map[string]any{"code": source, "state": "kept"})
	if err != nil {
		return
	}
	running, done := c.interruptible(ctx)
	res, err := s.Call(running, "evaluate_python", raw)
	interrupted := running.Err() != nil
	done()
	if err != nil && interrupted && ctx.Err() == nil {
		fmt.Fprintln(c, "KeyboardInterrupt")
		return
	}
	if err != nil {
		fmt.Fprintf(c, "wisbox: %s\n", printable(tool.AsError(err).Error()))
		return
	}
	e, err := evaluationOf(res)
	if err != nil {
		return
	}
	fmt.Fprint(c, printable(e.Stdout), printable(e.Stderr))
	if interrupted && ctx.Err() == nil {
		fmt.Fprintln(c, "KeyboardInterrupt")
		return
	}
	if e.Value != nil {
		fmt.Fprintln(c, printable(*e.Value))
	}
	if e.Message != "" {
		fmt.Fprintln(c, "wisbox:", printable(e.Message))
	}
}

var errInterrupt = errors.New("interrupted")

// console reads lines and keys: from a terminal with editing and history, or
// plainly from another input. One goroutine reads the input; its keys go to the
// line editor, or, while something runs, are looked through for Ctrl-C.
type console struct {
	io.Writer
	terminal *term.Terminal // nil without one
	keys     chan []byte
	ended    <-chan struct{} // the command's end: no more keys are waited for
	rest     []byte          // keys that are still to be given to the editor
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
	c.terminal.AutoCompleteCallback = indent
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

// clearLine goes to the end of the line and deletes all before.
const clearLine = "\x05\x15"

// Read gives the line editor its keys. Ctrl-C comes alone, when the editor has done
// with what was typed before, and as an error: the editor takes its own Ctrl-C for
// the end of the input, for ever.
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

// indent is what Tab does.
func indent(line string, pos int, key rune) (string, int, bool) {
	const width = "    "
	if key != '\t' {
		return "", 0, false
	}
	return line[:pos] + width + line[pos:], pos + len(width), true
}

func (c *console) line(prompt string) (string, error) {
	if c.terminal == nil {
		line, err := c.plain.ReadString('\n')
		if line != "" { // the last one may lack its newline
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

// interruptible is a context that Ctrl-C ends until done is called. Other keys are
// kept for the editor, but for those before a Ctrl-C, as a terminal does it.
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
