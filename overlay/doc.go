// Package overlay keeps sessions as directories on the host. What a session is
// stands on disk and nowhere else, so any process of the same user can find it,
// use it, end it, and clean up after one that was killed.
//
//	ROOT/root.json                 the random id of this state root
//	ROOT/root.lock                 guards the making of root.json and of sessions
//	ROOT/trash/                    sessions on their way out
//	ROOT/sessions/ID/session.json  the session's [State]
//	                 workspace/    what programs see; theirs to mangle
//	                 tmp/          same file system, unseen by programs: staging
//	                 disk.img      where a limit of the disk is kept by an image: it,
//	                 disk/         and where it is mounted; the two above are in it then
//	                 snapshots/    output/  log.jsonl
//	                 life.lock     shared while a [Dir] is open, exclusive to delete
//	                 write.lock    exclusive for each change by the file tools
//	                 state.lock    held for the moment that session.json is rewritten
//
// Locks are flocks: they belong to an open file, so they end with their process
// however it ends, and a process number that is used again means nothing. Who
// lives is decided by life.lock alone; clocks decide only the age of kept
// sessions that nobody has open.
//
// The package knows nothing of containers or file tools. It hands out *os.Root
// values, and never goes into a workspace itself but to delete it.
package overlay
