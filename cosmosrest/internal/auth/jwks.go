package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// The issuer's public keys: a JSON Web Key Set (RFC 7517), from a file or by https.
//
// Issuers change their keys without notice, so a token with an unknown key has the set read
// again, but not more often than keySetFresh: a stranger could otherwise make the server
// ask the issuer at will.

// How often the set is read, and what a set may be.
const (
	keySetFresh   = 5 * time.Minute  // a key set is not read again before
	keySetPause   = 10 * time.Second // after a failure
	keySetTimeout = 10 * time.Second
	maxKeySet     = 1 << 20 // bytes
	minRSA        = 2048    // bits
)

// errNoKey is an unknown key, also after the set was read again.
var errNoKey = errors.New("the key that signed it is not in the key set")

// keySet is a JSON Web Key Set in a file or at an address.
type keySet struct {
	source string
	client *http.Client // nil for a file
	keys   atomic.Pointer[[]publicKey]
	turn   chan struct{} // of who reads the source
	next   time.Time     // not before; of who has the turn
}

// publicKey is a key of the set, by its id.
type publicKey struct {
	id  string
	key crypto.PublicKey
}

// newKeySet reads a file at once, so that a wrong one stops the server, and an address with
// the first token. An address must be https, unless it is this machine: whoever could
// change the answer could sign tokens.
func newKeySet(source string) (*keySet, error) {
	k := &keySet{source: source, turn: make(chan struct{}, 1)}
	k.keys.Store(&[]publicKey{})
	if !strings.Contains(source, "://") {
		text, err := os.ReadFile(source)
		if err != nil {
			return nil, fmt.Errorf("read key set: %w", err)
		}
		keys, err := parseKeySet(text)
		if err != nil {
			return nil, fmt.Errorf("read key set %s: %w", source, err)
		}
		k.keys.Store(&keys)
		return k, nil
	}
	u, err := url.Parse(source)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return nil, fmt.Errorf("key set of tokens is %q: want a file, or an https address", source)
	}
	k.client = &http.Client{
		Timeout:       keySetTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return k, nil
}

// loopback reports whether a host can only be this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// find is the key with this id, of the kind that the method needs; for a token that names
// no key, all of that kind. If there is none, the source is read again, by one caller for
// all.
func (k *keySet) find(ctx context.Context, id, method string, log *slog.Logger) (any, error) {
	if found, ok := k.pick(id, method); ok {
		return found, nil
	}
	// A channel and not a mutex: who waits for a slow issuer must be able to give up.
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !time.Now().Before(k.next) {
		// Others need the keys, too, when this client has gone. The read has a limit of its own.
		if err := k.read(context.WithoutCancel(ctx)); err != nil {
			log.Error("key set of tokens cannot be read", "source", k.source, "err", err)
		}
	}
	if found, ok := k.pick(id, method); ok { // others may have read it meanwhile
		return found, nil
	}
	return nil, fmt.Errorf("%w: kid is %q", errNoKey, id)
}

// pick is find among the keys as last read.
func (k *keySet) pick(id, method string) (any, bool) {
	var set jwt.VerificationKeySet
	for _, p := range *k.keys.Load() {
		if (id == "" || p.id == id) && fits(p.key, method) {
			set.Keys = append(set.Keys, p.key)
		}
	}
	return set, len(set.Keys) > 0
}

// fits reports whether a method of signing belongs to a key. A token that chose its method
// freely could have a public key used as the secret of an HMAC.
func fits(key crypto.PublicKey, method string) bool {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return method[0] == 'R' || method[0] == 'P'
	case *ecdsa.PublicKey:
		return method == map[elliptic.Curve]string{elliptic.P256(): "ES256", elliptic.P384(): "ES384", elliptic.P521(): "ES512"}[key.Curve]
	}
	return method == "EdDSA"
}

// read reads the source, and sets when it may be read again. After a failure that is soon.
func (k *keySet) read(ctx context.Context) error {
	// Set before the attempt, so that each of those who wait does not fail anew, one
	// after the other.
	k.next = time.Now().Add(keySetPause)
	text, err := k.text(ctx)
	if err != nil {
		return err
	}
	keys, err := parseKeySet(text)
	if err != nil {
		return err
	}
	k.keys.Store(&keys)
	k.next = time.Now().Add(keySetFresh)
	return nil
}

// text is the source's text. Redirects are not followed: the address is part of the trust.
func (k *keySet) text(ctx context.Context) (text []byte, err error) {
	if k.client == nil {
		return os.ReadFile(k.source)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, k.source, nil)
	if err != nil {
		return nil, err
	}
	answer, err := k.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answer is %s: want 200", answer.Status)
	}
	return io.ReadAll(io.LimitReader(answer.Body, maxKeySet))
}

// webKey is a key in a set. Kinds of keys that are not known are left out, as the standard
// demands.
type webKey struct {
	Kind  string `json:"kty"`
	Use   string `json:"use"`
	ID    string `json:"kid"`
	Curve string `json:"crv"`
	N     number `json:"n"`
	E     number `json:"e"`
	X     number `json:"x"`
	Y     number `json:"y"`
}

// number is base64url without padding.
type number []byte

// UnmarshalText implements [encoding.TextUnmarshaler].
func (n *number) UnmarshalText(text []byte) (err error) {
	*n, err = base64.RawURLEncoding.DecodeString(strings.TrimRight(string(text), "="))
	return err
}

// parseKeySet reads the keys for signatures; a set without any is an error, because it
// would refuse all.
func parseKeySet(text []byte) (keys []publicKey, err error) {
	var set struct {
		Keys []webKey `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("it is no JSON Web Key Set: %w", err)
	}
	for i, w := range set.Keys {
		// A key for encryption may be published beside the others. It signs nothing.
		if w.Use != "" && w.Use != "sig" {
			continue
		}
		key, err := w.public()
		if err != nil {
			return nil, fmt.Errorf("key %d (kid %q): %w", i+1, w.ID, err)
		}
		if key != nil {
			keys = append(keys, publicKey{w.ID, key})
		}
	}
	if len(keys) == 0 {
		return nil, errors.New(`it has no key to check signatures with: want {"keys": [...]} with keys of kty RSA, EC or OKP`)
	}
	return keys, nil
}

// public is the key itself; nil if its kind is not known.
func (w webKey) public() (crypto.PublicKey, error) {
	switch w.Kind + w.Curve {
	case "RSA":
		key := &rsa.PublicKey{N: new(big.Int).SetBytes(w.N), E: int(new(big.Int).SetBytes(w.E).Int64())}
		// Four bytes are the most that the exponent may have: Int64 of a longer number
		// would be another.
		if key.N.BitLen() < minRSA || key.E < 3 || len(w.E) > 4 {
			return nil, fmt.Errorf("n has %d bits, e is %d: want at least %d bits, and 65537", key.N.BitLen(), key.E, minRSA)
		}
		return key, nil
	case "ECP-256":
		return w.point(elliptic.P256())
	case "ECP-384":
		return w.point(elliptic.P384())
	case "ECP-521":
		return w.point(elliptic.P521())
	case "OKPEd25519":
		if len(w.X) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("x has %d bytes: want %d", len(w.X), ed25519.PublicKeySize)
		}
		return ed25519.PublicKey(w.X), nil
	}
	return nil, nil
}

// point is the key of an elliptic curve.
func (w webKey) point(curve elliptic.Curve) (crypto.PublicKey, error) {
	size := (curve.Params().BitSize + 7) / 8
	if len(w.X) != size || len(w.Y) != size {
		return nil, fmt.Errorf("x has %d bytes, y %d: want %d", len(w.X), len(w.Y), size)
	}
	key, err := ecdsa.ParseUncompressedPublicKey(curve, slices.Concat([]byte{4}, w.X, w.Y))
	if err != nil {
		return nil, fmt.Errorf("x and y are no point of %s: %w", w.Curve, err)
	}
	return key, nil
}
