// Package audit keeps a log of records as lines of JSON. Each line has the hash of the line before
// it, so [Verify] finds and locates records that were changed, removed or cut short. Many processes
// may append to one log.
//
//	{"seq":1,"prev":"","time":…}
//	{"seq":2,"prev":"sha256 of line 1, without its newline","time":…}
//
// A second file, the head, has the number and hash of the last line. It shows when lines at the end
// are missing, which the chain alone can't show.
//
// A full file is renamed to log.jsonl.1, the former log.jsonl.1 to log.jsonl.2 and so on, and the
// chain continues in a new file. The head also records where the oldest remaining file begins, so
// that files removed by rotation don't count as a loss.
//
// A writer that is stopped during a write holds the log's lock. Others don't wait for it: each puts
// its records in its own file, log.jsonl.aside-RANDOM, until the lock is free.
//
// The log doesn't protect against somebody who can write both files and create a new chain. To
// detect that as well, keep the head that [Verify] reports somewhere else.
package audit
