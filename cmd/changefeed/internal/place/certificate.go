package place

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/internal/cosmosdb/rest"
)

// The certificates trusted for an account: those of the machine, and one that a flag or a context names.

// makeTransport makes the connections of an account.
func (f Settings) makeTransport(endpoint string) (*http.Client, error) {
	roots, err := f.rootsOf(endpoint)
	if err != nil || roots == nil {
		return rest.Connect(nil), err
	}
	return rest.Connect(&tls.Config{RootCAs: roots}), nil
}

// rootsOf returns the certificates trusted for an endpoint; nil for those of the machine alone.
func (f Settings) rootsOf(endpoint string) (*x509.CertPool, error) {
	file, from := f.CA, "--ca"
	if file == "" {
		c, ok, err := f.inUse()
		if err != nil {
			return nil, err
		}
		if ok && sameHost(c.Endpoint, endpoint) {
			file, from = c.CA, "certificate of context "+c.Name
		}
	}
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, usage.Path(from, file, err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, usage.Error{Err: fmt.Errorf("%s is %s: there is no certificate in it: want a PEM file", from, file)}
	}
	return roots, nil
}
