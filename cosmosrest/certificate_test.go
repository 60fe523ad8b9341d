package cosmosrest

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheCertificateIsGoodForThisMachineOnly(t *testing.T) {
	cert, path, err := Certificate(filepath.Join(t.TempDir(), "new"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(text) {
		t.Fatalf("%s: no certificate in it: %s", path, text)
	}
	for name, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "::1": true, "example.com": false,
		"192.0.2.1": false,
	} {
		_, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: trusted})
		if (err == nil) != want {
			t.Errorf("verify for %s: %v, want it to be good: %v", name, err, want)
		}
	}
	// Rust's TLS library accepts no authority as the certificate of a server.
	if cert.Leaf.IsCA || strings.Contains(string(text), "KEY") || strings.Count(string(text), "BEGIN") != 1 {
		t.Errorf("the certificate is an authority: %v; its file is %s: want the authority alone", cert.Leaf.IsCA, text)
	}
	if d := cert.Leaf.NotAfter.Sub(cert.Leaf.NotBefore); d > 398*24*time.Hour {
		t.Errorf("certificate lasts %v: want less than 398 days", d)
	}
	if runtime.GOOS == "windows" {
		return
	}
	for file, want := range map[string]os.FileMode{certificateFile: 0o644, privateKeyFile: 0o600} {
		info, err := os.Stat(filepath.Join(filepath.Dir(path), file))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v: want mode %v", file, info.Mode(), err, want)
		}
	}
}

func TestTheCertificateIsKeptUntilItEndsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		serial := func() string {
			cert, path, err := Certificate(dir)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: "localhost", Roots: pool(t, path)}); err != nil {
				t.Fatal(err)
			}
			return cert.Leaf.SerialNumber.String()
		}
		first := serial()
		<-time.After(366 * 24 * time.Hour)
		if again := serial(); again != first {
			t.Errorf("after a year there is another certificate: want the same for %v",
				certificateTime-certificateRenew)
		}
		<-time.After(2 * 24 * time.Hour)
		if again := serial(); again == first {
			t.Error("within 30 days of its end the certificate is the same: want another one")
		}
	})
}

// A crash may have left the beginning of a key behind, in a file that everybody can read.
func TestWhatACrashLeftOpensTheKeyToNobody(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no modes")
	}
	dir := t.TempDir()
	key := filepath.Join(dir, privateKeyFile)
	if err := os.WriteFile(key+".new", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Certificate(dir); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v, %v: want mode 0600", key, info.Mode(), err)
	}
}

func pool(t *testing.T, path string) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(text)
	return p
}

// Earlier versions made a certificate that was its own authority. Clients trust this certificate until it ends.
func TestTheCertificateOfAnEarlierVersionStays(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	about := x509.Certificate{
		Subject: pkix.Name{CommonName: "changefeed on localhost"}, NotBefore: now, NotAfter: now.Add(certificateTime),
		DNSNames: []string{"localhost"}, BasicConstraintsValid: true, IsCA: true,
	}
	old, err := signCertificate(&about, nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(old.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		certificateFile: {Type: certificateBlock, Bytes: old.Certificate[0]},
		privateKeyFile:  {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, path, err := Certificate(dir)
	if err != nil || !cert.Leaf.Equal(old.Leaf) {
		t.Fatalf("%v, %v: want the certificate that was there", cert.Leaf, err)
	}
	if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: "localhost", Roots: pool(t, path)}); err != nil {
		t.Error(err)
	}
	// The authority of another directory has not signed this certificate.
	other := t.TempDir()
	if _, path, err = Certificate(other); err != nil {
		t.Fatal(err)
	}
	stranger := pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: old.Certificate[0]})
	if err := os.WriteFile(path, stranger, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Certificate(other); err == nil || !strings.Contains(err.Error(), "has not signed the certificate") {
		t.Errorf("an authority of another directory: %v", err)
	}
}

func TestADamagedCertificateIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	_, path, err := Certificate(dir)
	if err != nil {
		t.Fatal(err)
	}
	damaged := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})
	if err := os.WriteFile(path, damaged, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Certificate(dir); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v: want one that names %s", err, path)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != string(damaged) {
		t.Errorf("the file is now %q, %v: want it as it was", text, err)
	}
}
