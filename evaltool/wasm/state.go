package wasm

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// stateHeader begins a state file: its JSON on one line, then the module, the memory, and the SHA-256 of everything
// before.
type stateHeader struct {
	entry
	Module int `json:"module"` // bytes
	Memory int `json:"memory"`
}

var errState = errors.New("the state file is damaged")

func loadStarted(path string) (*started, error) {
	data, err := readModule(path)
	if err != nil {
		return nil, err
	}
	if len(data) < sha256.Size {
		return nil, errState
	}
	body, sum := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	if sha256.Sum256(body) != [sha256.Size]byte(sum) {
		return nil, errState
	}
	line, rest, _ := bytes.Cut(body, []byte("\n"))
	var h stateHeader
	if json.Unmarshal(line, &h) != nil || h.Module < 0 || h.Memory < 0 || h.Module+h.Memory != len(rest) {
		return nil, errState
	}
	return &started{entry: h.entry, module: rest[:h.Module], memory: rest[h.Module:]}, nil
}

// save writes the complete file before it gets its name.
func (s *started) save(path string) error {
	line, err := json.Marshal(stateHeader{s.entry, len(s.module), len(s.memory)})
	if err != nil {
		return err
	}
	data := bytes.Join([][]byte{append(line, '\n'), s.module, s.memory}, nil)
	sum := sha256.Sum256(data)
	return writeFile(path, append(data, sum[:]...))
}

// writeFile writes a file for the owner only, and renames it into place.
func writeFile(path string, data []byte) error { return writeFrom(path, bytes.NewReader(data)) }

// writeFrom is like writeFile, with the content of r.
func writeFrom(path string, r io.Reader) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("write cache: %w", err)
	}
	_, err = io.Copy(f, r)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write cache: %w", err)
	}
	return nil
}
