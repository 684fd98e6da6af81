// Package serve is the agent itself: it serves any number of connections to hosts,
// each with calls of its own, pumps their streams and keeps their time. It runs no
// program: for that it has monitors, processes that each are a child subreaper, so that
// all descendants of a program are descendants of its monitor.
//
// One goroutine does everything, locked to the main thread, around one epoll: so no two
// things happen at once, a frame costs one wake-up, and the processes that it forks
// have that thread's rights.
package serve
