package overlay

import (
	"errors"
	"io/fs"
	"os"

	"github.com/wisbox/wisbox/internal/audit"
	"github.com/wisbox/wisbox/tool"
)

const (
	logFile    = "log.jsonl"
	egressFile = "egress.jsonl" // a chain of its own: a flood there turns no call over
)

// LogReport is what [Store.VerifyLog] found.
type LogReport = audit.Report

// AppendLog adds one record to log.jsonl as a line of JSON that holds the hash of
// the line before. The records of many clients follow one another in one chain.
// It waits for no disk: [Dir.SyncLog] does. A record that a crash cut short is
// ended by the next one.
func (d *Dir) AppendLog(record any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return tool.Errorf(tool.Closed, "the session is closed").In("session")
	}
	return d.appendTo(&d.log, logFile, record)
}

// AppendEgress adds one record to egress.jsonl, as AppendLog does.
func (d *Dir) AppendEgress(record any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return tool.Errorf(tool.Closed, "the session is closed").In("session")
	}
	return d.appendTo(&d.egress, egressFile, record)
}

// appendTo opens a log when it is first written to. mu is held.
func (d *Dir) appendTo(log **audit.Log, name string, record any) error {
	if *log == nil {
		opened, err := audit.Open(d.dir, name, nil)
		if err != nil {
			return ioError(err, "open the session's log")
		}
		*log = opened
	}
	return ioError((*log).Append(record), "write the session's log")
}

// SyncLog returns when every record that this Dir appended is on disk.
func (d *Dir) SyncLog() error {
	d.mu.Lock()
	log := d.log
	d.mu.Unlock()
	if log == nil {
		return nil
	}
	return ioError(log.Sync(), "write the session's log")
}

// Log gives each whole record of a session's log, the oldest first, as the JSON
// of its line. The session may be in use, or lost. An unknown name is not_found.
func (s *Store) Log(id string, each func(line []byte) error) error {
	return s.withLog(id, func(dir *os.Root) error { return audit.Records(dir, logFile, each) })
}

// EgressLog gives each whole record of a session's connections, as Log does of its calls.
func (s *Store) EgressLog(id string, each func(line []byte) error) error {
	return s.withLog(id, func(dir *os.Root) error { return audit.Records(dir, egressFile, each) })
}

// LastLog gives the last whole records of a session's log, at most n of them, the oldest
// first. It reads about as much as they are.
func (s *Store) LastLog(id string, n int, each func(line []byte) error) error {
	return s.withLog(id, func(dir *os.Root) error { return audit.Last(dir, logFile, n, each) })
}

// LastEgressLog is LastLog for the session's connections.
func (s *Store) LastEgressLog(id string, n int, each func(line []byte) error) error {
	return s.withLog(id, func(dir *os.Root) error { return audit.Last(dir, egressFile, n, each) })
}

// VerifyEgressLog is VerifyLog for the session's connections.
func (s *Store) VerifyEgressLog(id string) (report *LogReport, err error) {
	err = s.withLog(id, func(dir *os.Root) error {
		report, err = audit.Verify(dir, egressFile)
		return err
	})
	return report, err
}

// VerifyLog reports where a session's log isn't what was written: records that were
// changed, removed, added or cut short. An unknown name is not_found.
func (s *Store) VerifyLog(id string) (report *LogReport, err error) {
	err = s.withLog(id, func(dir *os.Root) error {
		report, err = audit.Verify(dir, logFile)
		return err
	})
	return report, err
}

func (s *Store) withLog(id string, do func(*os.Root) error) error {
	if err := CheckID(id); err != nil {
		return err
	}
	dir, err := s.openSession(id)
	if err != nil {
		return err
	}
	defer dir.Close()
	err = do(dir)
	if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
		return notFound(id)
	}
	return ioError(err, "read the session's log")
}
