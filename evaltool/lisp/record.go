package lisp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// definition is the source of a top-level form that defines something, with the package in which it was read.
type definition struct {
	Operator string `json:"operator"` // DEFUN
	Name     string `json:"name"`
	Package  string `json:"package"`
	Source   string `json:"source"`
}

// what returns the definition without its source, as its identity: a new definition replaces an old one with the same
// identity.
func (d definition) what() definition {
	d.Source = ""
	return d
}

func (d definition) size() int { return len(d.Operator) + len(d.Name) + len(d.Package) + len(d.Source) }

// record holds the definitions of a session, oldest first and only the newest of each name. It has at most
// maxDefinitions bytes; further definitions are not recorded. If path is set, it is stored in that file.
type record struct {
	path  string
	defs  []definition
	bytes int
}

// add takes linear time, since an archive's record is untrusted.
func (r *record) add(defs []definition) {
	at := make(map[definition]int, len(r.defs)+len(defs))
	for i, d := range r.defs {
		at[d.what()] = i
	}
	all := slices.Clone(r.defs)
	replaced := make([]bool, len(all), len(all)+len(defs))
	for _, d := range defs {
		if i, known := at[d.what()]; known {
			r.bytes -= all[i].size()
			replaced[i] = true
			delete(at, d.what())
		}
		if r.bytes+d.size() <= maxDefinitions {
			at[d.what()] = len(all)
			all, replaced = append(all, d), append(replaced, false)
			r.bytes += d.size()
		}
	}
	r.defs = r.defs[:0:0]
	for i, d := range all {
		if !replaced[i] {
			r.defs = append(r.defs, d)
		}
	}
}

func (r *record) clear() { r.defs, r.bytes = nil, 0 }

// load reads the definitions from the file, if it exists.
func (r *record) load() error {
	if r.path == "" {
		return nil
	}
	f, err := os.Open(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the recorded definitions: %w", err)
	}
	defer f.Close()
	var defs []definition
	if err := json.NewDecoder(io.LimitReader(f, 8*maxDefinitions)).Decode(&defs); err != nil {
		return fmt.Errorf("read the recorded definitions: %w", err)
	}
	r.add(defs)
	return nil
}

// save replaces the file atomically.
func (r *record) save() error {
	switch {
	case r.path == "":
		return nil
	case len(r.defs) == 0:
		if err := os.Remove(r.path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	var data bytes.Buffer
	if err := json.NewEncoder(&data).Encode(r.defs); err != nil {
		return fmt.Errorf("record definitions: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(r.path), filepath.Base(r.path)+".*")
	if err != nil {
		return fmt.Errorf("record definitions: %w", err)
	}
	_, err = f.Write(data.Bytes())
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), r.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("record definitions: %w", err), os.Remove(f.Name()))
	}
	return nil
}
