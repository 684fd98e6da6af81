package agent

import (
	"io"
	"sync"

	"github.com/wisbox/wisbox/agent/wire"
)

// frameWriter writes frames, one Write each, from many goroutines.
type frameWriter struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte // guarded by mu
}

func (fw *frameWriter) write(typ wire.Type, call uint32, payload []byte) error {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	fw.buf = wire.Append(fw.buf[:0], typ, call, payload)
	_, err := fw.w.Write(fw.buf)
	return err
}

// writeAll writes frames.
func (fw *frameWriter) writeAll(frames []byte) error {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	_, err := fw.w.Write(frames)
	return err
}
