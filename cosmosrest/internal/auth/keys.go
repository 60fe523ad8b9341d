package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// Master keys. A signature is the HMAC-SHA256 of method, kind of resource, link and date, each on its own line.
// Signatures are compared in constant time, so the time of an answer does not help to guess the right signature.

// Key is a master key of the account.
type Key struct {
	Name  string // for messages
	Text  string // in base64; if empty, there is no key
	Write bool   // read-write; otherwise read-only
}

// The service accepts a date that is up to 15 minutes off. A key must be too long to guess.
const (
	minKey    = 16               // bytes of a key
	clockSkew = 15 * time.Minute // between the date of a request and our clock, either way
)

// keyring checks signatures. Signers are pooled, because preparing the state of an HMAC takes longer than its use.
type keyring struct {
	keys    []masterKey
	signers *sync.Pool
}

// masterKey is a decoded key with its principal.
type masterKey struct {
	secret []byte
	who    Principal
}

// signer contains an HMAC for each key, the memory for a check, and the date of the last request, because a client
// sends the same date for a second.
type signer struct {
	macs    []hash.Hash
	payload []byte
	sum     [sha256.Size]byte
	text    string
	date    time.Time // the parsed text
}

// newKeyring decodes keys. newKeyring refuses a secret that is both a read-write and a read-only key, because its
// read-only users could then write.
func newKeyring(keys []Key) (keyring, error) {
	var ring keyring
	for _, key := range keys {
		if key.Text == "" {
			continue
		}
		secret, err := base64.StdEncoding.DecodeString(key.Text)
		switch {
		case err != nil:
			return ring, fmt.Errorf("%s is not base64: %w: want the base64 of at least %d bytes", key.Name, err, minKey)
		case len(secret) < minKey:
			return ring, fmt.Errorf("%s is the base64 of %d bytes: want at least %d", key.Name, len(secret), minKey)
		}
		for _, other := range ring.keys {
			if hmac.Equal(secret, other.secret) && key.Write != other.who.all {
				return ring, fmt.Errorf("%s may also write, as another key: want one of its own", key.Name)
			}
		}
		ring.keys = append(ring.keys, masterKey{secret, key.principal()})
	}
	ring.signers = &sync.Pool{New: func() any { return newSigner(ring.keys) }}
	return ring, nil
}

// principal returns the key's principal.
func (k *Key) principal() Principal {
	if k.Write {
		return owner
	}
	return reader
}

// newSigner prepares an HMAC for each key.
func newSigner(keys []masterKey) *signer {
	s := new(signer)
	for _, k := range keys {
		s.macs = append(s.macs, hmac.New(sha256.New, k.secret))
	}
	return s
}

// checkSignature finds the key that signed a request. As in the service, the error repeats the text that should have
// been signed, because authors of clients need this text to find their mistakes.
func (ring keyring) checkSignature(r *wire.Request, signature string) (Principal, error) {
	date := r.Header(wire.HeaderDate)
	if date == "" {
		date = r.Header("Date")
	}
	s := ring.signers.Get().(*signer)
	defer ring.signers.Put(s)
	who, ok := ring.findSigner(s, r.Method, r.Target, date, signature)
	if !ok {
		return Principal{},
			unauthorized(0,
				"The authorization token does not fit the request: the key is a wrong one, or something else "+
					"was signed. "+
					"Server used the following payload to sign: '%s'",
				s.composeFirst(r.Method, r.Target, date))
	}
	err := s.checkDate(date, time.Now())
	if date == s.text { // it is a date
		r.Signed = s.date
	}
	return who, err
}

// findSigner returns the principal of the key that made a signature.
func (ring keyring) findSigner(s *signer, method string, t wire.Target, date, signature string) (Principal, bool) {
	var text [sha256.Size + 1]byte // DecodedLen may be too high by a byte
	if len(signature) != base64.StdEncoding.EncodedLen(sha256.Size) {
		return Principal{}, false
	}
	n, err := base64.StdEncoding.Decode(text[:], []byte(signature))
	if err != nil || n != sha256.Size {
		return Principal{}, false
	}
	for _, resource := range signedTexts(t) {
		payload := s.compose(method, resource.kind, resource.link, date)
		for i, mac := range s.macs {
			mac.Reset()
			mac.Write(payload)
			if hmac.Equal(mac.Sum(s.sum[:0]), text[:n]) {
				return ring.keys[i].who, true
			}
		}
	}
	return Principal{}, false
}

// composeFirst returns the text that a client usually signs.
func (s *signer) composeFirst(method string, t wire.Target, date string) []byte {
	text := signedTexts(t)[0]
	return s.compose(method, text.kind, text.link, date)
}

// signedText is the part of a signed text that says which resource the request is about.
type signedText struct{ kind, link string }

// signedTexts returns the texts that a signature may cover, the usual text first. An operation on a container, such as
// the deletion of a partition key, is signed with the link of the container; SDKs differ in the kind.
func signedTexts(t wire.Target) []signedText {
	var texts []signedText
	if t.Kind == "operations" {
		owner := strings.TrimSuffix(t.Link, "/operations/"+t.ID)
		for _, link := range links(wire.Target{DB: t.DB, Link: owner}) {
			texts = append(texts, signedText{"partitionkey", link}, signedText{"colls", link})
		}
		return texts
	}
	for _, link := range links(t) {
		texts = append(texts, signedText{t.Kind, link})
	}
	return texts
}

// compose returns the text to sign, which is valid until the next call.
func (s *signer) compose(method, kind, link, date string) []byte {
	b := appendLower(s.payload[:0], method)
	b = appendLower(append(b, '\n'), kind)
	b = append(append(b, '\n'), link...)
	b = appendLower(append(b, '\n'), date)
	s.payload = append(b, '\n', '\n')
	return s.payload
}

// appendLower appends text with its ASCII letters converted to lower case.
func appendLower(b []byte, text string) []byte {
	for i := range len(text) {
		c := text[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}

// links returns the links that a signature may cover, the usual link first. Clients that address by resource ids sign
// only the last resource id, in lower case. For offers, all clients do this, but some sign the whole link.
func links(t wire.Target) []string {
	last := strings.ToLower(t.Link[strings.LastIndexByte(t.Link, '/')+1:])
	switch {
	case t.Kind == "offers" && !t.Feed:
		return []string{last, t.ID, t.Link}
	case isRID(t.DB, databaseRID):
		return []string{t.Link, last}
	}
	return []string{t.Link}
}

const databaseRID = 4 // bytes of the resource id of a database

// isRID reports whether an id looks like a resource id of so many bytes.
func isRID(id string, bytes int) bool {
	if len(id) != base64.StdEncoding.EncodedLen(bytes) {
		return false
	}
	_, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(id, "-", "/"))
	return err == nil
}

// checkDate refuses requests whose date is too old or too far in the future. Otherwise anyone who has seen a
// signature could use that signature for ever.
func (s *signer) checkDate(text string, now time.Time) error {
	if text != s.text || s.date.IsZero() {
		date, err := http.ParseTime(text)
		if err != nil {
			date, err = time.Parse(time.RFC1123, text) // the date has UTC instead of GMT
		}
		if err != nil {
			return unauthorized(0, "x-ms-date is %q: want a date such as %s", text, now.UTC().Format(http.TimeFormat))
		}
		s.text, s.date = text, date
	}
	from, to := s.date.Add(-clockSkew), s.date.Add(clockSkew)
	const want = "want a date within 15 minutes of the server's time, and compare the clocks"
	switch {
	case now.Before(from):
		return outOfTime("the date of the request is in the future: "+want, from, to, now)
	case now.After(to):
		return outOfTime("the date of the request is too old: "+want, from, to, now)
	}
	return nil
}
