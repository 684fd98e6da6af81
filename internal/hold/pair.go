package hold

import (
	"errors"
	"net"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
)

var pairTime = patience.For(5 * time.Second)

// pair returns the ends of a connection with descriptors. It uses TCP, which has resets, over this
// machine's loopback, and refuses other clients that connect meanwhile.
func pair() (near, far *net.TCPConn, err error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if far, err = net.DialTCP("tcp4", nil, l.Addr().(*net.TCPAddr)); err != nil {
		return nil, nil, err
	}
	_ = l.SetDeadline(time.Now().Add(pairTime))
	for {
		if near, err = l.AcceptTCP(); err != nil {
			return nil, nil, errors.Join(err, far.Close())
		}
		if near.RemoteAddr().String() == far.LocalAddr().String() {
			return near, far, nil
		}
		_ = near.Close()
	}
}
