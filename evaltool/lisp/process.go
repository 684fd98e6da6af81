package lisp

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/wisbox/wisbox/evaltool/lisp/driver"
	"github.com/wisbox/wisbox/internal/interp"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

const (
	// stackSize of every thread, in MiB.
	stackSize = 8
)

// startWait bounds the start, which compiles the driver if the image has no core.
var startWait = patience.For(30 * time.Second)

// startScript runs the saved core $1 or, if that doesn't exist, loads the source from
// stdin.
const startScript = `core=$1; shift
command -v sbcl >/dev/null || exit 127
[ -r "$core" ] && exec sbcl --core "$core" "$@"
exec sbcl "$@" --no-sysinit --no-userinit --eval '(load sb-sys:*stdin*)' --eval '(wisbox.driver:main)'`

func startCmd(core string, memory int64) sandbox.Cmd {
	return sandbox.Cmd{
		Argv: []string{
			"sh", "-c", startScript, "lisp", core, "--noinform", "--disable-ldb",
			"--dynamic-space-size", strconv.FormatInt(max(memory/2>>20, 64), 10) + "MB",
			"--control-stack-size", strconv.Itoa(stackSize) + "MB", "--end-runtime-options",
		},
		Stdin: strings.NewReader(driver.Source()),
	}
}

// process is one SBCL with the driver in its loop. Its methods are called by one
// goroutine at a time.
type process struct {
	*interp.Process[*head]
}

// start returns when SBCL is ready for requests.
func start(ctx context.Context, runner func(context.Context) (sandbox.Runner, error), core string, memory int64) (*process, error) {
	r, err := runner(ctx)
	if err != nil {
		return nil, err
	}
	p, err := launch(ctx, r, startCmd(core, memory))
	if err == nil && p.Ended() { // the core belongs to another version of SBCL
		p, err = launch(ctx, r, startCmd("", memory))
	}
	if err == nil && p.Ended() {
		return nil, p.notStarted()
	}
	return p, err
}

// launch returns a process that is ready, or that has ended before that.
func launch(ctx context.Context, r sandbox.Runner, cmd sandbox.Cmd) (*process, error) {
	started, err := interp.Start(ctx, r, cmd, maxMessage, func() *head { return &head{} })
	if err != nil {
		return nil, err
	}
	p := &process{started}
	ready, late := p.Await(ctx, startWait, func(message []byte) bool {
		_, err := parseAnswer(message, readyID)
		return err == nil
	})
	if ready {
		p.Output() // discard SBCL's output at its start
		return p, nil
	}
	p.Kill()
	if late == sandbox.StatusCancelled {
		return nil, ctx.Err()
	}
	return p, nil
}

func (p *process) notStarted() error {
	res := p.Result()
	if res.Status == sandbox.StatusExited && res.ExitCode == sandbox.ExitNotFound {
		return tool.Errorf(tool.Unsupported, "this image has no SBCL: install the package sbcl in it")
	}
	return tool.Errorf(tool.Unavailable, "SBCL did not start: %s; give the session more memory or call again", how(res))
}

// ask sends one request and waits for its reply with the outcome. After StatusEnded the process is gone.
func (p *process) ask(ctx context.Context, r request) (*reply, error) {
	id := secret()
	var a *answer
	var err error
	_, late := p.Ask(ctx, interp.Request{
		Message: bytes.NewReader(r.encode(id, p.Interrupts())), Timeout: r.timeout,
		Accept: func(message []byte) bool { a, err = parseAnswer(message, id); return err == nil },
	})
	return p.reply(r, a, Status(late))
}

// how describes the end of the process.
func how(r sandbox.Result) string {
	switch r.Status {
	case sandbox.StatusExited:
		return fmt.Sprintf("it ended with exit code %d", r.ExitCode)
	case sandbox.StatusSignaled:
		return "it was ended by signal " + r.Signal
	case sandbox.StatusSandboxLost:
		return "its sandbox was lost"
	}
	return "it was ended: " + string(r.Status)
}
