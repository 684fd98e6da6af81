package snapshot

import "github.com/wisbox/wisbox/internal/beneath"

var removeAll = beneath.RemoveAll

// causeOf returns the cause as a log would show it.
func causeOf(err error) string {
	text := ""
	for ; err != nil; err = unwrap(err) {
		text += err.Error() + " <- "
	}
	return text
}

func unwrap(err error) error {
	if u, ok := err.(interface{ Unwrap() error }); ok {
		return u.Unwrap()
	}
	return nil
}
