package serve

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/inside/kernel"
	"github.com/wisbox/wisbox/agent/inside/python"
	"github.com/wisbox/wisbox/agent/wire"
)

// hasTemplate starts the pool's template. It returns true once the template has loaded its source.
func (s *server) hasTemplate(p *pool) bool {
	if p.control > 0 {
		return p.loaded
	}
	paths := kernel.Candidates("python3", kernel.DefaultPath)
	if len(paths) == 0 {
		s.refuse(p, "python", "the image has no python3")
		return false
	}
	socket, err := s.startTemplate(p, paths[0])
	if err != nil {
		s.after(soon, func() { s.fill(p) })
		return false
	}
	p.control = socket
	s.watch(socket, unix.EPOLLIN, func() { s.heardTemplate(p) })
	return false
}

func (s *server) startTemplate(p *pool, path string) (int, error) {
	program, err := python.Program(s.opts.Workspace, p.name, p.source)
	if err != nil {
		return 0, err
	}
	file, err := kernel.Memfd(program)
	if err != nil {
		return 0, err
	}
	defer unix.Close(file)
	mine, its, err := kernel.SocketPair()
	if err != nil {
		return 0, err
	}
	defer unix.Close(its)
	pid, err := s.execute(path, python.Argv(path), its, file)
	if err != nil {
		_ = unix.Close(mine)
		return 0, err
	}
	s.own[pid] = nil
	return mine, nil
}

func (s *server) heardTemplate(p *pool) {
	var buf [4096]byte
	n, fds, _ := kernel.Hear(p.control, buf[:])
	kernel.CloseAll(fds)
	if n == 1 && buf[0] == 'L' {
		p.loaded = true
		s.fill(p)
		return
	}
	s.unwatch(p.control)
	_ = unix.Close(p.control)
	p.control, p.loaded = 0, false
	switch {
	case n == 1 && buf[0] == 'V':
		s.refuse(p, "python", "the image's python3 is older than 3.9")
	case n > 1 && buf[0] == 'E':
		s.refuse(p, "source", strings.ToValidUTF8(string(buf[1:n]), "?"))
	default:
		s.refuse(p, "source", "the template died")
	}
}

// refuse ends the calls that wait for a template that can't be started.
func (s *server) refuse(p *pool, kind, text string) {
	waiting := p.waiting
	p.waiting = nil
	for _, c := range waiting {
		c.err = &wire.StartError{Kind: kind, Message: text}
		s.finish(c)
	}
}
