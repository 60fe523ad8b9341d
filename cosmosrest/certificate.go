package cosmosrest

import (
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

// Certificate returns the certificate for localhost, 127.0.0.1 and ::1 from a directory, and the path of its file.
// The certificate is self-signed, so clients trust only this file, if you configure the file there. If the
// certificate is missing, or ends within 30 days, Certificate creates a new certificate, and clients need the new
// file. Certificate creates a missing directory.
func Certificate(dir string) (cert tls.Certificate, path string, err error) {
	path = filepath.Join(dir, certificateFile)
	key := filepath.Join(dir, privateKeyFile)
	cert, err = tls.LoadX509KeyPair(path, key)
	if err == nil && time.Until(cert.Leaf.NotAfter) > certificateRenew {
		return cert, path, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return cert, path, fmt.Errorf("read certificate: %w: want %s and %s as they were made, or neither", err, path,
			key)
	}
	if cert, err = newCertificate(time.Now()); err != nil {
		return cert, path, fmt.Errorf("make certificate: %w", err)
	}
	if err = saveCertificate(cert, path, key); err != nil {
		return cert, path, fmt.Errorf("save certificate: %w", err)
	}
	return cert, path, nil
}

// newCertificate returns a self-signed certificate that is valid as an authority only for these names. If the key is
// stolen, the thief cannot impersonate another server to a machine that trusts the certificate.
func newCertificate(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, err
	}
	about := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "changefeed on localhost"},
		NotBefore:             now.Add(-certificateSkew),
		NotAfter:              now.Add(certificateTime),
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1).To4(), net.IPv6loopback},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true, // signs no other authority and no other names:
		PermittedDNSDomains:   []string{"localhost"}, PermittedDNSDomainsCritical: true,
		PermittedIPRanges: []*net.IPNet{
			{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)},
			{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)},
		},
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

// saveCertificate writes the key, which only its owner can read, and then the certificate.
func saveCertificate(cert tls.Certificate, path, keyPath string) error {
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	for _, f := range []struct {
		path, kind string
		bytes      []byte
		mode       os.FileMode
	}{
		{keyPath, "PRIVATE KEY", key, 0o600},
		{path, "CERTIFICATE", cert.Certificate[0], 0o644},
	} {
		if err := replaceFile(f.path, pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.bytes}),
			f.mode); err != nil {
			return err
		}
	}
	return nil
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
