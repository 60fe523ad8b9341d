package cosmosrest

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
)

// Keys are the master keys of the account, in base64. There are two of each kind so that
// one can be changed while clients still use the other.
type Keys struct {
	Primary, Secondary                 string // may do everything
	PrimaryReadOnly, SecondaryReadOnly string // may only read
}

// EmulatorKey is the well-known key of the service's emulator. It protects nothing.
const EmulatorKey = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

const (
	minKey    = 16               // bytes of a key
	clockSkew = 15 * time.Minute // between the date of a request and our clock, either way
)

// keyring checks signatures. Signers are pooled, because it takes longer to prepare the
// state of an HMAC than to use it.
type keyring struct {
	keys    []masterKey
	signers *sync.Pool
}

type masterKey struct {
	secret []byte
	who    principal
}

// signer has an HMAC for each key, and the memory for one check.
type signer struct {
	macs    []hash.Hash
	payload []byte
	sum     [sha256.Size]byte
}

func newKeyring(k Keys) (keyring, error) {
	k = k.orEmulator()
	var ring keyring
	for _, key := range []struct {
		field, text string
		who         principal
	}{
		{"primary key", k.Primary, owner},
		{"secondary key", k.Secondary, owner},
		{"primary read-only key", k.PrimaryReadOnly, reader},
		{"secondary read-only key", k.SecondaryReadOnly, reader},
	} {
		if key.text == "" {
			continue
		}
		secret, err := base64.StdEncoding.DecodeString(key.text)
		switch {
		case err != nil:
			return ring, fmt.Errorf("%s is not base64: %w: want the base64 of at least %d bytes", key.field, err, minKey)
		case len(secret) < minKey:
			return ring, fmt.Errorf("%s is the base64 of %d bytes: want at least %d", key.field, len(secret), minKey)
		}
		for _, other := range ring.keys {
			if hmac.Equal(secret, other.secret) && key.who.all != other.who.all {
				return ring, fmt.Errorf("%s may also write, as another key: want one of its own", key.field)
			}
		}
		ring.keys = append(ring.keys, masterKey{secret, key.who})
	}
	ring.signers = &sync.Pool{New: func() any { return newSigner(ring.keys) }}
	return ring, nil
}

// orEmulator is the emulator's key when there is none.
func (k Keys) orEmulator() Keys {
	if k == (Keys{}) {
		k.Primary = EmulatorKey
	}
	return k
}

func newSigner(keys []masterKey) *signer {
	s := new(signer)
	for _, k := range keys {
		s.macs = append(s.macs, hmac.New(sha256.New, k.secret))
	}
	return s
}

// check finds out which key signed a request.
func (ring keyring) check(c *call, signature string) (principal, error) {
	date := c.header("X-Ms-Date")
	if date == "" {
		date = c.header("Date")
	}
	who, ok := ring.signed(c.r.Method, c.target, date, signature)
	if !ok {
		s := ring.signers.Get().(*signer)
		defer ring.signers.Put(s)
		return principal{}, unauthorized(0, "The authorization token does not fit the request: the key is a wrong one, or something else was signed. "+
			"Server used the following payload to sign: '%s'", s.compose(c.r.Method, c.target.kind, c.target.links()[0], date))
	}
	return who, checkDate(date, time.Now())
}

// signed is whose key made the signature.
func (ring keyring) signed(method string, t target, date, signature string) (principal, bool) {
	var text [sha256.Size + 1]byte // room for what DecodedLen is too high
	if len(signature) != base64.StdEncoding.EncodedLen(sha256.Size) {
		return principal{}, false
	}
	n, err := base64.StdEncoding.Decode(text[:], []byte(signature))
	if err != nil || n != sha256.Size {
		return principal{}, false
	}
	s := ring.signers.Get().(*signer)
	defer ring.signers.Put(s)
	for _, link := range t.links() {
		payload := s.compose(method, t.kind, link, date)
		for i, mac := range s.macs {
			mac.Reset()
			mac.Write(payload)
			if hmac.Equal(mac.Sum(s.sum[:0]), text[:n]) {
				return ring.keys[i].who, true
			}
		}
	}
	return principal{}, false
}

// compose is what is signed; it is valid until the next call.
func (s *signer) compose(method, kind, link, date string) []byte {
	b := appendLower(s.payload[:0], method)
	b = appendLower(append(b, '\n'), kind)
	b = append(append(b, '\n'), link...)
	b = appendLower(append(b, '\n'), date)
	s.payload = append(b, '\n', '\n')
	return s.payload
}

// appendLower appends text with its ASCII letters in lower case.
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

// links are the links that a signature may cover, the usual one first. Clients that
// address by resource ids sign the last of them alone, in lower case; so do all for
// offers, though some sign the whole link there.
func (t target) links() []string {
	last := strings.ToLower(t.link[strings.LastIndexByte(t.link, '/')+1:])
	switch {
	case t.kind == "offers" && !t.feed:
		return []string{last, t.id, t.link}
	case isRID(t.db, databaseRID):
		return []string{t.link, last}
	}
	return []string{t.link}
}

const databaseRID = 4 // bytes of the resource id of a database

// isRID tells whether an id looks like a resource id of so many bytes.
func isRID(id string, bytes int) bool {
	if len(id) != base64.StdEncoding.EncodedLen(bytes) {
		return false
	}
	_, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(id, "-", "/"))
	return err == nil
}

// checkDate refuses requests that were not signed about now, lest somebody who has seen
// one sends it again.
func checkDate(text string, now time.Time) error {
	date, err := http.ParseTime(text)
	if err != nil {
		if date, err = time.Parse(time.RFC1123, text); err != nil { // UTC instead of GMT
			return unauthorized(0, "x-ms-date is %q: want a date such as %s", text, now.UTC().Format(http.TimeFormat))
		}
	}
	from, to := date.Add(-clockSkew), date.Add(clockSkew)
	if now.Before(from) || now.After(to) {
		f := newFault(http.StatusForbidden, subDateOutOfWindow, "Forbidden",
			"The authorization token is not valid at the current time: want a newer one (token start time: %s, token expiry time: %s, current server time: %s)",
			from.UTC().Format(http.TimeFormat), to.UTC().Format(http.TimeFormat), now.UTC().Format(http.TimeFormat))
		f.gateway = true
		return f
	}
	return nil
}
