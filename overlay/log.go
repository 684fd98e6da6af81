package overlay

import (
	"encoding/json"
	"io"
	"os"

	"github.com/wisbox/wisbox/tool"
)

const logFile = "log.jsonl"

// AppendLog adds one record to log.jsonl as a line of JSON, in one write, so that
// the records of many clients never mix. It waits for no disk: [Dir.SyncLog]
// does. A record that a crash cut short is ended by the next one.
func (d *Dir) AppendLog(record any) error {
	line, err := json.Marshal(record)
	if err != nil {
		return tool.Errorf(tool.Internal, "a record of the log can't be written as JSON").Because(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return tool.Errorf(tool.Closed, "the session is closed").In("session")
	}
	if d.log == nil {
		if err := d.openLog(); err != nil {
			return ioError(err, "open the session's log")
		}
	}
	line = append(line, '\n')
	if d.torn {
		line = append([]byte{'\n'}, line...)
	}
	_, err = d.log.Write(line)
	d.torn = err != nil
	return ioError(err, "write the session's log")
}

// openLog also looks whether the last record is whole.
func (d *Dir) openLog() error {
	f, err := d.dir.OpenFile(logFile, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	d.log = f
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, size-1); err != nil {
		return err
	}
	d.torn = last[0] != '\n'
	return nil
}

// SyncLog returns when every record that this Dir appended is on disk.
func (d *Dir) SyncLog() error {
	d.mu.Lock()
	f := d.log
	d.mu.Unlock()
	if f == nil {
		return nil
	}
	return ioError(f.Sync(), "write the session's log")
}
