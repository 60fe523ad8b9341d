package cosmosrest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The certificate of a server on this machine, created at its first start. SDKs use only https, except with special
// settings, and no authority signs a certificate for localhost.

// Some systems refuse certificates of more than 398 days, so a certificate lasts less and is renewed in time. The
// certificate begins in the past, because clocks differ.
const (
	certificateFile  = "localhost.pem"
	privateKeyFile   = "localhost-key.pem"
	certificateTime  = 397 * 24 * time.Hour // some systems refuse certificates that last longer
	certificateRenew = 30 * 24 * time.Hour  // before its end
	certificateSkew  = time.Hour            // clients' clocks may be late by this much
)

// Certificate returns the certificate for localhost, 127.0.0.1 and ::1 from a directory, and the path of the file with
// the authority that has signed the certificate. Clients trust this authority if you configure the file there. If the
// certificate is missing, or ends within 30 days, Certificate creates a new certificate and a new authority, and
// clients need the new file. Certificate creates a missing directory.
func Certificate(dir string) (cert tls.Certificate, path string, err error) {
	path = filepath.Join(dir, certificateFile)
	key := filepath.Join(dir, privateKeyFile)
	cert, err = loadCertificate(path, key)
	if err == nil && time.Until(cert.Leaf.NotAfter) > certificateRenew {
		return cert, path, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return cert, path, fmt.Errorf("read certificate: %w: want %s and %s as they were made, or neither", err, path,
			key)
	}
	cert, authority, err := newCertificate(time.Now())
	if err != nil {
		return cert, path, fmt.Errorf("make certificate: %w", err)
	}
	if err = saveCertificate(cert, authority, path, key); err != nil {
		return cert, path, fmt.Errorf("save certificate: %w", err)
	}
	return cert, path, nil
}

// loadCertificate reads a certificate. The file of the key also contains the certificate. In the directories of earlier
// versions, the file of the key contains only the key, and the certificate is its own authority.
func loadCertificate(path, keyPath string) (cert tls.Certificate, err error) {
	authority, err := os.ReadFile(path)
	if err != nil {
		return cert, err
	}
	own, err := os.ReadFile(keyPath)
	if err != nil {
		return cert, err
	}
	if !bytes.Contains(own, []byte("-----BEGIN "+certificateBlock)) {
		return tls.X509KeyPair(authority, own)
	}
	if cert, err = tls.X509KeyPair(own, own); err != nil {
		return cert, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	if _, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: trusted, CurrentTime: cert.Leaf.NotBefore}); err != nil {
		return cert, fmt.Errorf("%s has not signed the certificate in %s: %w", path, keyPath, err)
	}
	return cert, nil
}

// newCertificate returns a certificate, and the authority that has signed the certificate. The key of the authority is
// forgotten, and the authority is valid only for these names. So a thief of keys cannot impersonate another server to a
// machine that trusts the authority. The certificate itself is no authority, because the TLS library of Rust refuses a
// server whose certificate is one.
func newCertificate(now time.Time) (cert tls.Certificate, authority []byte, err error) {
	about := x509.Certificate{
		Subject:               pkix.Name{CommonName: "authority of changefeed on localhost"},
		NotBefore:             now.Add(-certificateSkew),
		NotAfter:              now.Add(certificateTime),
		BasicConstraintsValid: true,
	}
	root := about
	root.IsCA, root.KeyUsage = true, x509.KeyUsageCertSign
	root.MaxPathLenZero = true // signs no other authority and no other names:
	root.PermittedDNSDomains, root.PermittedDNSDomainsCritical = []string{"localhost"}, true
	root.PermittedIPRanges = []*net.IPNet{
		{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)},
		{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)},
	}
	signer, err := signCertificate(&root, nil)
	if err != nil {
		return cert, nil, err
	}
	about.Subject.CommonName = "changefeed on localhost"
	about.DNSNames = []string{"localhost"}
	about.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1).To4(), net.IPv6loopback}
	about.KeyUsage, about.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	cert, err = signCertificate(&about, &signer)
	return cert, signer.Certificate[0], err
}

// signCertificate creates a key with its certificate, signed by another certificate or by itself.
func signCertificate(about *x509.Certificate, by *tls.Certificate) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	if about.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return tls.Certificate{}, err
	}
	parent, signer := about, any(key)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, about, parent, key.Public(), signer)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

const certificateBlock = "CERTIFICATE" // type of a block in PEM

// saveCertificate writes the key with its certificate, which only its owner can read, and then the authority.
func saveCertificate(cert tls.Certificate, authority []byte, path, keyPath string) error {
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	own := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	own = append(own, pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: cert.Certificate[0]})...)
	if err := replaceFile(keyPath, own, 0o600); err != nil {
		return err
	}
	return replaceFile(path, pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: authority}), 0o644)
}

// replaceFile writes a file as a whole or not at all.
func replaceFile(path string, text []byte, mode os.FileMode) error {
	if err := os.Remove(path + ".new"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(path+".new", text, mode); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
