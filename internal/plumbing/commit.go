package plumbing

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/wisbox/wisbox/tool"
)

// Import is a commit that is being written.
type Import struct{ out *bufio.Writer }

// made is the ref of the new commit, in our own directory.
const made = "refs/heads/made"

// Commit writes a commit on top of another one by git fast-import, which reads no attributes and no
// working tree. No ref of the repository points to it yet. Its objects come into the repository when all are written.
func (r *Repo) Commit(ctx context.Context, base, message string, fill func(*Import) error) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fresh, err := r.newObjects()
	if err != nil {
		return "", err
	}
	defer fresh.Close()
	cmd := fresh.command(r.apart(ctx, "fast-import", "--quiet", "--done", "--date-format=now"))
	var says bytes.Buffer
	cmd.Stderr = &says
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	w := &Import{out: bufio.NewWriter(in)}
	fmt.Fprintf(w.out, "commit %s\ncommitter %s <%s> now\ndata %d\n%s\nfrom %s\n", made, r.who.name, r.who.mail, len(message), message, base)
	err = fill(w)
	if err == nil {
		fmt.Fprint(w.out, "\ndone\n")
		err = w.out.Flush()
	}
	if err != nil {
		cancel() // without "done" git refuses the stream, so there is never half a commit
	}
	_ = in.Close()
	ended := cmd.Wait()
	if te := (*tool.Error)(nil); errors.As(err, &te) {
		return "", te
	}
	if ended != nil && isFull(says.Bytes()) {
		return "", errFull(errors.Join(err, ended))
	}
	if ended != nil {
		return "", tool.Errorf(tool.Unavailable, "the commit can't be written: %s", said(withStderr(ended, says.Bytes()))).Because(errors.Join(err, ended))
	}
	out, err := output(fresh.command(r.apart(ctx, "rev-parse", "--verify", made)), nil)
	if err == nil {
		err = fresh.moveIn()
	}
	return strings.TrimSpace(string(out)), err
}

func withStderr(err error, says []byte) error {
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		ended.Stderr = says
	}
	return err
}

// Remove removes a path.
func (w *Import) Remove(path string) { fmt.Fprintf(w.out, "D %s\n", quote(path)) }

// Put writes a file or link at a path; write must write exactly size bytes.
func (w *Import) Put(path, mode string, size int64, write func(io.Writer) error) error {
	fmt.Fprintf(w.out, "M %s inline %s\ndata %d\n", mode, quote(path), size)
	counted := &counter{w: w.out}
	if err := write(counted); err != nil {
		return err
	}
	if counted.n != size {
		return fmt.Errorf("%d bytes in place of %d", counted.n, size)
	}
	_, err := w.out.WriteString("\n")
	return err
}

type counter struct {
	w io.Writer
	n int64
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// quote returns a path in fast-import's form, whatever bytes it has.
func quote(path string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(path) {
		switch c := path[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
