package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/evaltool"
)

// pictures saves objects that a prompt can't show as files 1.png, 2.svg, … in a directory, which it
// creates for the first one. It never replaces a file.
type pictures struct {
	dir  string // "" for a new temporary one
	root *os.Root
	n    int
}

// save writes a picture or document and returns the name of its file; "" for other types.
func (p *pictures) save(d evaltool.Display) (string, error) {
	ext := displayExt[d.MIME]
	if ext == "" || !strings.HasPrefix(d.MIME, "image/") && d.MIME != "application/pdf" {
		return "", nil
	}
	data := []byte(d.Data)
	var err error
	if evaltool.IsBinary(d.MIME) {
		if data, err = base64.StdEncoding.DecodeString(d.Data); err != nil {
			return "", nil // not a picture
		}
	}
	if err := p.open(); err != nil {
		return "", hostError(err)
	}
	for {
		p.n++
		name := fmt.Sprintf("%d%s", p.n, ext)
		f, err := p.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", hostError(err)
		}
		_, err = f.Write(data)
		if err = errors.Join(err, f.Close()); err != nil {
			return "", hostError(errors.Join(err, p.root.Remove(name)))
		}
		return filepath.Join(p.dir, name), nil
	}
}

// open opens the directory once.
func (p *pictures) open() (err error) {
	if p.root != nil {
		return nil
	}
	if p.dir == "" {
		p.dir, err = os.MkdirTemp("", "wisbox-repl-")
	} else {
		err = os.MkdirAll(p.dir, 0o755)
	}
	if err == nil {
		p.root, err = os.OpenRoot(p.dir)
	}
	return err
}

func (p *pictures) close() {
	if p.root != nil {
		_ = p.root.Close()
	}
}

// show saves the pictures of an object and prints the names of their files.
func (p *pictures) show(c *console, o *evaltool.Object) {
	for _, d := range o.Display {
		switch path, err := p.save(d); {
		case err != nil:
			fmt.Fprintf(c, "wisbox: %s\n", streams.Printable(err.Error()))
		case path != "":
			fmt.Fprintln(c, "wisbox: saved", streams.Printable(path))
		}
	}
}
