package egress

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"slices"
	"sync"
	"time"
)

// authority signs certificates for some hosts. Its key is only in memory, and it is constrained to those hosts: a
// stolen key can't impersonate others.
type authority struct {
	hosts []string
	cert  *x509.Certificate
	key   crypto.Signer
	pem   []byte

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// authoritiesFor returns authorities for all hosts: the earlier ones that are still needed, because running programs
// trust them, and a new one for the rest.
func authoritiesFor(hosts []string, before []*authority) (all []*authority, err error) {
	for _, a := range before {
		if slices.ContainsFunc(a.hosts, func(h string) bool { return slices.Contains(hosts, h) }) {
			all = append(all, a)
		}
	}
	rest := slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return authorityOf(all, h) != nil })
	if len(rest) == 0 {
		return all, nil
	}
	a, err := newAuthority(rest)
	if err != nil {
		return nil, err
	}
	return append(all, a), nil
}

func authorityOf(all []*authority, host string) *authority {
	for _, a := range all {
		if slices.Contains(a.hosts, host) {
			return a
		}
	}
	return nil
}

func newAuthority(hosts []string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	all4, all6 := net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "wisbox session authority " + rand.Text()[:8]},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: hosts, ExcludedIPRanges: []*net.IPNet{&all4, &all6},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return &authority{hosts: hosts, cert: cert, key: key, pem: text, leaves: map[string]*tls.Certificate{}}, nil
}

func serial() *big.Int {
	n, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	return n
}

const leafFor = 7 * 24 * time.Hour

// leaf returns the certificate of a host, and replaces one that is about to expire.
func (a *authority) leaf(host string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[host]; c != nil && time.Until(c.Leaf.NotAfter) > leafFor/2 {
		return c, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(leafFor),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a.leaves[host] = &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key, Leaf: leaf}
	return a.leaves[host], nil
}
