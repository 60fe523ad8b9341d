// Package webhook has what senders of webhooks share: the signature of Standard Webhooks, and what an answer asks for.
package webhook

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks (https://www.standardwebhooks.com).
const (
	IDHeader        = "Webhook-Id"
	TimestampHeader = "Webhook-Timestamp"
	SignatureHeader = "Webhook-Signature"
)

const (
	// MaxAnswer is the number of bytes that are read of an answer, so that its connection can be used again.
	MaxAnswer = 64 << 10

	// MaxRetryAfter is the longest pause that a receiver can ask for.
	MaxRetryAfter = 10 * time.Minute

	maxQuoted = 200 // bytes of the answer in an error
)

// Sign sets the headers of Standard Webhooks. The id must be a value of a header, because the signature covers the
// header.
func Sign(header http.Header, id string, body []byte, now time.Time, secret []byte) {
	t := strconv.FormatInt(now.Unix(), 10)
	header.Set(IDHeader, id)
	header.Set(TimestampHeader, t)
	header.Set(SignatureHeader, "v1,"+base64.StdEncoding.EncodeToString(MAC(id, t, body, secret)))
}

// MAC returns the signature of an id, a time in seconds since 1970, and a body.
func MAC(id, t string, body, secret []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(id + "." + t + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// ParseURL parses the URL of a receiver. The error text has no part of the URL that may be secret.
func ParseURL(text string) (*url.URL, error) {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" {
		return nil, fmt.Errorf("%s: want a URL such as https://example.com/events", Redacted(parsed))
	}
	return parsed, nil
}

// Redacted returns a URL without the parts that may be secret.
func Redacted(u *url.URL) string {
	if u == nil {
		return "not a URL"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

const idleConns = 256

// NewTransport returns a transport that keeps a connection for each key or lease that is active, up to 256.
func NewTransport() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = idleConns, idleConns
	return transport
}

// WithoutURL returns the error of a request without the URL, which may have a secret.
func WithoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

// NewClient returns a client that follows no redirects, so that data and signatures go nowhere else.
func NewClient(transport http.RoundTripper) http.Client {
	return http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Quote returns the beginning of an answer's text, after a colon; empty if there is none.
func Quote(text []byte) string {
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return ""
	}
	return fmt.Sprintf(": %.*q", maxQuoted, strings.ToValidUTF8(string(text[:min(len(text), maxQuoted)]), ""))
}

// RetryAfter returns the pause that a receiver asks for, in either form of the header; 0 if it asks for none.
func RetryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(MaxRetryAfter/time.Second))) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return min(max(date.Sub(now), 0), MaxRetryAfter)
	}
	return 0
}
