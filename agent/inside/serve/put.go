package serve

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/inside/kernel"
	"github.com/wisbox/wisbox/agent/wire"
)

// put writes a file to the secrets' directory and reads it back as a program would.
func (c *conn) put(number uint32, payload []byte) bool {
	if len(payload) < 2 {
		return false
	}
	name, content, ok := bytes.Cut(payload[2:], []byte{0})
	if !ok {
		return false
	}
	var answer []byte
	if err := putFile(c.server.opts.Secrets, string(name), uint32(binary.BigEndian.Uint16(payload)), content); err != nil {
		answer, _ = json.Marshal(wire.StartError{Kind: "internal", Message: err.Error()})
	}
	c.send(wire.Done, number, answer)
	return true
}

// putFile creates a file that belongs to uid 0, and that programs may read through their group if its mode allows it.
// Programs can't create, link or rename files in that directory.
func putFile(dir, name string, mode uint32, content []byte) error {
	if name == "" || name[0] == '.' || strings.Contains(name, "/") {
		return errors.New("a file's name must not be empty, begin with a dot or hold a slash")
	}
	at, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	fresh := "." + name + ".new"
	_ = unix.Unlinkat(at, fresh, 0)
	if err := writeNew(at, fresh, mode, content); err != nil {
		_ = unix.Unlinkat(at, fresh, 0)
		return err
	}
	if err := unix.Renameat(at, fresh, at, name); err != nil {
		return err
	}
	return readBack(at, name, content)
}

func writeNew(at int, name string, mode uint32, content []byte) (err error) {
	var fd int
	kernel.AsGroup(func() {
		fd, err = unix.Openat(at, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), name)
	_, err = file.Write(content)
	return errors.Join(err, unix.Fchmod(fd, mode&0o777), file.Close())
}

func readBack(at int, name string, want []byte) (err error) {
	var fd int
	kernel.AsGroup(func() { // first, because a user can't change the group
		kernel.AsUser(func() { fd, err = unix.Openat(at, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0) })
	})
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	got, err := io.ReadAll(io.LimitReader(file, int64(len(want))+1))
	if err == nil && !bytes.Equal(got, want) {
		err = errors.New("the file holds something else")
	}
	return err
}
