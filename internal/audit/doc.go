// Package audit keeps a log of records as lines of JSON, each with the hash of
// the line before it, so that a record that was changed, removed or cut short is
// found, with its place. Many processes append to one log.
//
//	{"seq":1,"prev":"","time":…}
//	{"seq":2,"prev":"sha256 of line 1, without its newline","time":…}
//
// Beside the log stands its head: the number and hash of the last line. It tells
// when lines at the end are missing, which the chain alone can't.
//
// A full file is moved to log.jsonl.1, that one to log.jsonl.2 and so on, and the
// chain goes on in the next. The head also says where the oldest file that is
// left begins, so that what rotation removed isn't taken for a loss.
//
// A writer that is stopped in its write holds the log. Others don't wait for it:
// their records stand in log.jsonl.aside-RANDOM, a file each, until it is free.
//
// It is no defence against who can write both files: such a one can make a new
// chain. Keep a head elsewhere (it is what [Verify] reports) to find that too.
package audit
