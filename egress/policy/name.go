package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// ThisMachine is the name under which a sandbox reaches the ports of the host that
// rules of the form host:PORT name.
const ThisMachine = "host." + ourDomain

const ourDomain = "wisbox"

// hyphens in the third and fourth place are common (r3---sn-….googlevideo.com), so
// they aren't checked.
var toASCII = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(true),
	idna.BidiRule(), idna.VerifyDNSLength(true), idna.CheckHyphens(false))

var (
	errLiteral = errors.New("it is an IP address; use a name, addresses can't be allowed")
	errNoDot   = errors.New("a host name has a dot in it; use the full name")
)

// ruleName returns the canonical form of a name that a person wrote.
func ruleName(s string) (string, error) {
	if err := plain(s); err != nil {
		return "", err
	}
	name, err := translate(s)
	if err != nil && !errors.Is(err, errNoDot) && !errors.Is(err, errLiteral) {
		err = fmt.Errorf("%q: %w", s, err)
	}
	return name, err
}

// RequestName returns the canonical form of a name that a program sent. Unlike a person's,
// it must be ASCII already: programs translate names before they send them.
func RequestName(s string) (string, error) {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return "", fmt.Errorf("the host name isn't ASCII; send its xn-- form")
		}
	}
	if err := plain(s); err != nil {
		return "", err
	}
	return translate(s)
}

// translate returns a name's ASCII form, if translating that gives the same again.
func translate(s string) (string, error) {
	ascii, err := toASCII.ToASCII(strings.TrimSuffix(s, "."))
	if err == nil {
		var again string
		if again, err = toASCII.ToASCII(ascii); again != ascii && err == nil {
			err = errors.New("its ASCII form stands for another name")
		}
	}
	if err != nil {
		if literal(s) {
			return "", errLiteral
		}
		return "", fmt.Errorf("it is not a host name (%s)", reason(err))
	}
	return canonical(ascii)
}

// plain refuses text that isn't a name, regardless of the mapping.
func plain(s string) error {
	switch {
	case s == "" || s == ".":
		return errors.New("the host name is missing")
	case len(s) > 1000:
		return errors.New("the host name is too long; the limit is 253 characters")
	case strings.Contains(s, "://"):
		return errors.New("it has a scheme; write only the host name")
	case strings.ContainsAny(s, "[]:"):
		return errLiteral
	case strings.Contains(s, "*"):
		return errors.New("a * may only stand in front, e.g. *.example.com")
	}
	for _, r := range s {
		if r == ' ' || !unicode.IsPrint(r) || strings.ContainsRune(`%/@?#\,;=|`, r) {
			return fmt.Errorf("%q has no place in a host name", r)
		}
	}
	return nil
}

func reason(err error) string { return strings.TrimPrefix(err.Error(), "idna: ") }

// canonical checks a name in ASCII and lower case. With errNoDot it still returns the name.
func canonical(name string) (string, error) {
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" {
			return "", errors.New("there is nothing between two dots of the host name")
		}
		if label[0] == '-' || label[len(label)-1] == '-' {
			return "", fmt.Errorf("%q begins or ends with a hyphen", label)
		}
		for _, c := range []byte(label) {
			if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
				return "", fmt.Errorf("%q has no place in a host name", c)
			}
		}
	}
	if literal(name) {
		return "", errLiteral
	}
	if len(labels) == 1 {
		return name, errNoDot
	}
	return name, nil
}

// literal reports whether a resolver could interpret a name as an address: its last label begins with a digit, as in
// 127.1, 2130706433 and 0x7f000001. No top-level domain does.
func literal(name string) bool {
	name = strings.TrimSuffix(name, ".")
	last := name[strings.LastIndexByte(name, '.')+1:]
	return last != "" && last[0] >= '0' && last[0] <= '9'
}

// tooWide returns an error if a wildcard below a name would cover sites of strangers.
func tooWide(name string) error {
	suffix, _ := publicsuffix.PublicSuffix(name)
	below, _ := publicsuffix.PublicSuffix("any." + name) // for suffixes such as *.kobe.jp
	if suffix == name || below == "any."+name {
		return fmt.Errorf("everyone can have a name below %s; name the site, as *.example.%s", name, name)
	}
	return nil
}

// special lists top-level names that aren't in the Internet's root zone. Their meaning depends on the network, so
// public doesn't cover them.
var special = []string{"localhost", "local", "internal", "arpa", "onion", "alt", "test", "invalid", "lan", "home", "corp", "intranet", "private", ourDomain}

func isSpecial(name string) bool {
	return slices.Contains(special, name[strings.LastIndexByte(name, '.')+1:])
}
