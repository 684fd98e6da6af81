package main

import (
	"fmt"
	"io"
	"strings"
)

const defaultDetachKeys = "ctrl-p,ctrl-q"

// parseKeys parses a key sequence in docker's form: characters and ctrl-X, separated by commas.
func parseKeys(text string) (sequence []byte, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		key, ctrl := strings.CutPrefix(strings.ToLower(part), "ctrl-")
		switch {
		case ctrl && len(key) == 1 && strings.ContainsAny(key, "abcdefghijklmnopqrstuvwxyz@[\\]^_"):
			sequence = append(sequence, strings.ToUpper(key)[0]&0x1f)
		case !ctrl && len(part) == 1:
			sequence = append(sequence, part[0])
		default:
			return nil, fmt.Errorf("--detach-keys has %q; write keys as a or ctrl-a, separated by commas", part)
		}
	}
	return sequence, nil
}

// detachKeys passes keys on until the sequence is complete. Keys that may begin the sequence wait
// for the next key.
type detachKeys struct {
	from     io.Reader
	sequence []byte // empty if there is none
	found    func()

	matched int // keys of the sequence that wait
	ready   []byte
	over    error
}

func (d *detachKeys) Read(p []byte) (int, error) {
	buf := make([]byte, len(p))
	for len(d.ready) == 0 && d.over == nil {
		n, err := d.from.Read(buf)
		d.take(buf[:n])
		if err != nil && d.over == nil {
			d.over = err
		}
	}
	n := copy(p, d.ready)
	d.ready = d.ready[n:]
	if n > 0 {
		return n, nil
	}
	return 0, d.over
}

// errKeys ends the input at the key sequence; it is different from the end of the file.
var errKeys = fmt.Errorf("left by keys")

func (d *detachKeys) take(keys []byte) {
	for _, key := range keys {
		if len(d.sequence) == 0 {
			d.ready = append(d.ready, key)
			continue
		}
		d.step(key)
		if d.matched == len(d.sequence) {
			d.over = errKeys
			d.found()
			return
		}
	}
}

// step adds a key, and moves the keys that can no longer begin the sequence to ready.
func (d *detachKeys) step(key byte) {
	typed := append(append([]byte(nil), d.sequence[:d.matched]...), key)
	for len(typed) > 0 && !strings.HasPrefix(string(d.sequence), string(typed)) {
		d.ready = append(d.ready, typed[0])
		typed = typed[1:]
	}
	d.matched = len(typed)
}
