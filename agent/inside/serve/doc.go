// Package serve is the agent itself: it serves any number of connections to hosts, each with its own calls, copies
// their streams and enforces their time limits. It runs no programs itself: its monitors do, which are child
// subreapers, so that all descendants of a program are descendants of its monitor.
//
// One goroutine, locked to the main thread, does everything around one epoll. So no two things happen at once, a frame
// costs one wake-up, and forked processes have that thread's rights.
package serve
