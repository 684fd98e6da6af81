package overlay

import (
	"errors"
	"io/fs"
	"os"

	"github.com/wisbox/wisbox/internal/audit"
	"github.com/wisbox/wisbox/tool/answer"
)

const (
	logFile    = "log.jsonl"
	egressFile = "egress.jsonl" // its own chain, so that a flood of connections doesn't rotate calls away
)

// LogReport is the result of [Store.VerifyLog].
type LogReport = audit.Report

// AppendLog appends a record to log.jsonl as a line of JSON with the hash of the previous line. The records of all
// clients form one chain. It doesn't sync the file; [Dir.SyncLog] does. The next record terminates a line that a crash
// cut short.
func (d *Dir) AppendLog(record any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return answer.Errorf(answer.Closed, "the session is closed").In("session")
	}
	return d.appendTo(&d.log, logFile, record)
}

// AppendEgress is like AppendLog for egress.jsonl.
func (d *Dir) AppendEgress(record any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return answer.Errorf(answer.Closed, "the session is closed").In("session")
	}
	return d.appendTo(&d.egress, egressFile, record)
}

// appendTo opens a log at its first record. The caller holds mu.
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

// Log calls each with every complete record of a session's log, the oldest first, as the JSON of its line. The session
// may be in use, or lost. For an unknown name the error is not_found.
func (s *Store) Log(id string, each func(line []byte) error) error {
	return s.withLog(id, func(dir *os.Root) error { return audit.Records(dir, logFile, each) })
}

// EgressLog is like Log for the session's connections.
func (s *Store) EgressLog(id string, each func(line []byte) error) error {
	return s.withLog(id, func(dir *os.Root) error { return audit.Records(dir, egressFile, each) })
}

// LastLog is like Log for the last n records. It reads little more than these.
func (s *Store) LastLog(id string, n int, each func(line []byte) error) error {
	return s.withLog(id, func(dir *os.Root) error { return audit.Last(dir, logFile, n, each) })
}

// LastEgressLog is like LastLog for the session's connections.
func (s *Store) LastEgressLog(id string, n int, each func(line []byte) error) error {
	return s.withLog(id, func(dir *os.Root) error { return audit.Last(dir, egressFile, n, each) })
}

// VerifyEgressLog is like VerifyLog for the session's connections.
func (s *Store) VerifyEgressLog(id string) (report *LogReport, err error) {
	err = s.withLog(id, func(dir *os.Root) error {
		report, err = audit.Verify(dir, egressFile)
		return err
	})
	return report, err
}

// VerifyLog reports the records of a session's log that were changed, removed, added or cut short. For an unknown name
// the error is not_found.
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
	if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
		return notFound(id)
	}
	return ioError(err, "read the session's log")
}
