package policy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"code.dny.dev/ssrf"
)

// ErrAddress is wrapped by the errors of CheckAddress.
var ErrAddress = errors.New("the address may not be reached")

// publicOnly has IANA's lists of special-purpose addresses. The rules decide on ports.
var publicOnly = ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(metadataV4...), ssrf.WithDeniedV6Prefixes(metadataV6...))

// Cloud metadata services, which issue keys, outside of the link-local range.
var (
	metadataV4 = prefixes("168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32")
	metadataV6 = prefixes("fd00:ec2::/32", "fd20:ce::254/128", "fd00:42::42/128", "fd00:c1::a9fe:a9fe/128")
)

// private lists the networks that a private rule allows.
var private = prefixes(
	"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", // private and shared
	"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15", // documentation, tests
	"fc00::/7", "2001:db8::/32", "3fff::/20",
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func anyContains(all []netip.Prefix, a netip.Addr) bool {
	for _, p := range all {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// CheckAddress returns an error if connections to an address are not allowed. own lists the addresses of this machine's
// interfaces. Reach is Public or Private: neither allows loopback, link-local and multicast addresses, cloud metadata
// services, IPv4 addresses embedded in IPv6 ones, and this machine's own addresses.
func CheckAddress(a netip.Addr, reach Reach, own []net.Addr) error {
	refused := func(why string) error { return fmt.Errorf("%w: %s is %s", ErrAddress, a, why) }
	if !a.IsValid() || a.Zone() != "" {
		return refused("not a plain address")
	}
	for _, o := range own {
		if n, ok := o.(*net.IPNet); ok {
			if mine, ok := netip.AddrFromSlice(n.IP); ok && mine.Unmap() == a.Unmap() {
				return refused("this machine's own")
			}
		}
	}
	switch {
	case a.IsLoopback(), a.IsUnspecified():
		return refused("the loopback of this machine")
	case a.IsLinkLocalUnicast():
		return refused("link-local, where clouds keep metadata")
	case anyContains(metadataV4, a), anyContains(metadataV6, a):
		return refused("a cloud's metadata service")
	}
	if reach == Private && anyContains(private, a) {
		return nil
	}
	if err := publicOnly.SafeAddr(a); err != nil {
		if anyContains(private, a) {
			return refused("in a private network")
		}
		return refused("not public")
	}
	return nil
}
