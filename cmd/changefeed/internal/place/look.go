package place

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rest"
)

// Looks at an account that may not work, for changefeed doctor. They change nothing, and each of them needs no more of
// the account than what it looks at: its clock and its certificate are read also if it refuses the key.

// Origin says which account an address means, and which key it gets.
type Origin struct {
	Endpoint string
	From     string // the flag, variable or context that names the endpoint; empty for the address itself
	Key      string // where the key is from, or why there is none
	HasKey   bool   // false if the identity is that of Microsoft Entra ID
}

// Origin finds the account of an address without a request. After an error, Endpoint is set if it was found.
func (o *Opener) Origin(ctx context.Context, a Address) (Origin, error) {
	c, err := o.flags.findAccount(ctx, a)
	from := c.from
	if a.endpoint != "" {
		from = ""
	}
	return Origin{c.Endpoint, from, c.keyFrom, c.key != ""}, err
}

// Glance is an answer of an account, also if it is a refusal.
type Glance struct {
	Status         int       // of HTTP
	Said           string    // the reason of a refusal
	Date           time.Time // by the clock of the server, in whole seconds; zero if the server does not tell
	Sent, Received time.Time // by the clock of this machine
}

// Took is how long the answer took.
func (g Glance) Took() time.Duration { return g.Received.Sub(g.Sent) }

// Glance asks an account n times about itself, one request after the other. The first request also connects.
func (o *Opener) Glance(ctx context.Context, a Address, n int) (all []Glance, err error) {
	c, err := o.flags.findAccount(ctx, a)
	if err != nil {
		return nil, err
	}
	account, _, err := o.flags.prepare(c)
	if err != nil {
		return nil, err
	}
	defer account.http.CloseIdleConnections()
	for range n {
		g, err := account.glance(ctx)
		if err != nil {
			return all, err
		}
		all = append(all, g)
	}
	return all, nil
}

// glance asks the account about itself.
func (a *Account) glance(ctx context.Context) (g Glance, err error) {
	request, err := a.signedRequest(ctx, http.MethodGet, nil, "", nil)
	if err != nil {
		return g, err
	}
	g.Sent = time.Now()
	answer, err := a.http.Do(request)
	if err != nil {
		return g, fmt.Errorf("ask account: %w", err)
	}
	defer answer.Body.Close()
	g.Received, g.Status = time.Now(), answer.StatusCode
	g.Date, _ = http.ParseTime(answer.Header.Get("Date")) // zero if it cannot be read
	body, err := readReply(answer.Body)
	if g.Status/100 != 2 {
		g.Said = refusalOf(body)
	}
	return g, err
}

// A Seal is the certificate of a server, and whether this machine trusts it.
type Seal struct {
	Chain     []*x509.Certificate // that of the server is the first
	Distrust  error               // why the certificate is not trusted, apart from its time; nil if it is
	Encrypted bool                // false if the server speaks http
	Answers   []Glance            // to the request that read the certificate, which had no key
}

// Seal reads the certificate of an https endpoint. The request has no key, because the certificate is not trusted yet.
func (o *Opener) Seal(ctx context.Context, endpoint string) (Seal, error) {
	roots, err := o.flags.rootsOf(endpoint)
	if err != nil {
		return Seal{}, err
	}
	client := rest.Connect(&tls.Config{InsecureSkipVerify: true}) // verified below, to say what is wrong
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(endpoint, "/")+"/", nil)
	if err != nil {
		return Seal{}, fmt.Errorf("make request: %w", err)
	}
	sent := time.Now()
	answer, err := client.Do(request)
	if err != nil {
		return Seal{}, fmt.Errorf("read certificate: %w", err)
	}
	defer answer.Body.Close()
	g := Glance{Status: answer.StatusCode, Sent: sent, Received: time.Now()}
	g.Date, _ = http.ParseTime(answer.Header.Get("Date"))             // zero if it cannot be read
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxReply)) // the answer does not matter
	if answer.TLS == nil || len(answer.TLS.PeerCertificates) == 0 {
		return Seal{}, nil
	}
	seal := verify(answer.TLS.PeerCertificates, hostOf(endpoint), roots)
	seal.Answers = []Glance{g}
	return seal, nil
}

// verify says whether a chain of certificates is trusted for a host, by these roots or, if there are none, by those of
// the machine. Whether it has expired is another question, so it is verified for a time at which it was valid.
func verify(chain []*x509.Certificate, host string, roots *x509.CertPool) Seal {
	at := time.Now()
	for _, c := range chain {
		if at.After(c.NotAfter) {
			at = c.NotAfter
		}
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		DNSName: host, Roots: roots, Intermediates: between, CurrentTime: at,
	})
	return Seal{Chain: chain, Distrust: err, Encrypted: true}
}

// Proxy returns the host and port of the proxy for an endpoint; empty if there is none.
func Proxy(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u})
	if err != nil || proxy == nil {
		return ""
	}
	return hostPort(proxy.String())
}

// HostPort returns host and port of an endpoint; the port is that of the scheme if the endpoint has none.
func HostPort(endpoint string) string { return hostPort(endpoint) }

// Right is whether a key has a right.
type Right string

// The values of a Right.
const (
	Granted Right = "granted"
	Denied  Right = "denied"
	Unknown Right = "not known"
)

// MayWrite asks whether the key may write to a container. It asks to replace a document that does not exist, on the
// condition that it has an ETag that no document has, so nothing changes whatever the answer is. If the right is
// unknown, the error says why.
func (o *Opener) MayWrite(ctx context.Context, at Address) (Right, error) {
	account, err := o.Account(ctx, at)
	if err != nil {
		return Unknown, err
	}
	id := "doctor-" + rand.Text()
	name, key := KeyHeader(feed.Key(id))
	_, err = account.Send(ctx, Request{
		Method: http.MethodPut, Resource: []string{"dbs", at.Database, "colls", at.Container, "docs", id},
		Header: map[string]string{name: key, "If-Match": `"` + id + `"`}, Body: []byte(`{"id":"` + id + `"}`),
	})
	switch status := Status(err); {
	case errors.Is(err, feed.ErrForbidden):
		return Denied, nil
	case status == http.StatusNotFound, status == http.StatusPreconditionFailed, status == http.StatusBadRequest:
		return Granted, nil // the request was refused for another reason than the key
	case err == nil:
		return Unknown, fmt.Errorf("the answer to a write that must fail is a success: is %s an account?",
			account.Endpoint)
	}
	return Unknown, err
}
