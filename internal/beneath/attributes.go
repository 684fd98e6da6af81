package beneath

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// UserAttributes begins the names of the extended attributes that programs may set freely.
const UserAttributes = "user."

// CopyAttributes copies a file's extended attributes of the user's namespace, by descriptors. lost are
// the names of others that it didn't copy, except for those that every file has on some systems.
func CopyAttributes(to, from int) (lost []string, err error) {
	names, err := Attributes(from)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, UserAttributes) {
			if name != "security.selinux" {
				lost = append(lost, name)
			}
			continue
		}
		value, err := Attribute(from, name)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err == nil {
			err = unix.Fsetxattr(to, name, value, 0)
		}
		if err != nil {
			return nil, err
		}
	}
	return lost, nil
}

// Attributes returns the names of an open file's extended attributes, sorted.
func Attributes(fd int) ([]string, error) {
	buf, err := sized(func(buf []byte) (int, error) { return unix.Flistxattr(fd, buf) })
	if err != nil || len(buf) == 0 {
		return nil, err
	}
	names := strings.Split(strings.TrimSuffix(string(buf), "\x00"), "\x00")
	slices.Sort(names)
	return names, nil
}

// Attribute returns the value of an attribute.
func Attribute(fd int, name string) ([]byte, error) {
	return sized(func(buf []byte) (int, error) { return unix.Fgetxattr(fd, name, buf) })
}

// sized calls read with a buffer that is large enough. A file system without attributes has none.
func sized(read func([]byte) (int, error)) ([]byte, error) {
	const most = 64 << 10 // the kernel's own
	n, err := read(nil)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil || n == 0 {
		return nil, err
	}
	buf := make([]byte, min(n, most))
	n, err = read(buf)
	if errors.Is(err, unix.ERANGE) { // it grew meanwhile
		buf = make([]byte, most)
		n, err = read(buf)
	}
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}
