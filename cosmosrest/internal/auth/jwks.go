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
// Issuers change their keys without notice, so the set is read again if a token has an unknown key. But the set is
// read at most once per keySetFresh; otherwise any sender could make the server call the issuer at will.

// How often the set is read, and the limits of a set.
const (
	keySetFresh   = 5 * time.Minute  // shortest time between two reads of the set
	keySetPause   = 10 * time.Second // the same after a failure
	keySetTimeout = 10 * time.Second
	maxKeySet     = 1 << 20 // bytes
	minRSA        = 2048    // bits
)

// errNoKey means that the key is not in the set, even after the set was read again.
var errNoKey = errors.New("the key that signed it is not in the key set")

// keySet is a JSON Web Key Set in a file or at an address.
type keySet struct {
	source string
	client *http.Client // nil for a file
	keys   atomic.Pointer[[]publicKey]
	turn   chan struct{} // held by the goroutine that reads the source
	next   time.Time     // time of the next allowed read; guarded by turn
}

// publicKey is a key of the set, with its id.
type publicKey struct {
	id  string
	key crypto.PublicKey
}

// newKeySet reads a file at once, so an invalid file stops the server. newKeySet reads an address when the first
// token comes. An address must be https, unless the host is this machine, because anyone who can change the answer
// can sign tokens.
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

// loopback reports whether a host is always this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// findKey returns the key with this id, if its kind fits the method. If the token names no key, find returns all keys
// of that kind. If there is no such key, a single caller reads the source again for all callers.
func (k *keySet) findKey(ctx context.Context, id, method string, log *slog.Logger) (any, error) {
	if found, ok := k.pickKey(id, method); ok {
		return found, nil
	}
	// This is a channel and not a mutex, so a caller that waits for a slow issuer can give up.
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !time.Now().Before(k.next) {
		// The read goes on even if this client has gone, because others need the keys too. The read has its own time
		// limit.
		if err := k.readSource(context.WithoutCancel(ctx)); err != nil {
			log.Error("key set of tokens cannot be read", "source", k.source, "err", err)
		}
	}
	if found, ok := k.pickKey(id, method); ok { // another caller may have read the set meanwhile
		return found, nil
	}
	return nil, fmt.Errorf("%w: kid is %q", errNoKey, id)
}

// pickKey is find without reading the source again.
func (k *keySet) pickKey(id, method string) (any, bool) {
	var set jwt.VerificationKeySet
	for _, p := range *k.keys.Load() {
		if (id == "" || p.id == id) && fits(p.key, method) {
			set.Keys = append(set.Keys, p.key)
		}
	}
	return set, len(set.Keys) > 0
}

// fits reports whether a signing method fits a key. If a token could choose any method, a public key could be used as
// the secret of an HMAC.
func fits(key crypto.PublicKey, method string) bool {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return method[0] == 'R' || method[0] == 'P'
	case *ecdsa.PublicKey:
		return method == map[elliptic.Curve]string{
			elliptic.P256(): "ES256", elliptic.P384(): "ES384",
			elliptic.P521(): "ES512",
		}[key.Curve]
	}
	return method == "EdDSA"
}

// readSource reads the source, and sets the time of the next allowed read. After a failure this time is earlier.
func (k *keySet) readSource(ctx context.Context) error {
	// The time is set before the attempt. Otherwise all waiting callers would try and fail, in turn.
	k.next = time.Now().Add(keySetPause)
	text, err := k.sourceText(ctx)
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

// sourceText returns the source's text. text does not follow redirects, because the address is trusted, and the target
// of a redirect is not.
func (k *keySet) sourceText(ctx context.Context) (text []byte, err error) {
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

// webKey is a key in a set. Keys of unknown kinds are ignored, as the standard requires.
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

// parseKeySet parses the keys for signatures. A set without such keys is an error, because all tokens would be
// refused.
func parseKeySet(text []byte) (keys []publicKey, err error) {
	var set struct {
		Keys []webKey `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("it is no JSON Web Key Set: %w", err)
	}
	for i, w := range set.Keys {
		// A set may also contain keys for encryption, which sign nothing.
		if w.Use != "" && w.Use != "sig" {
			continue
		}
		key, err := w.publicKey()
		if err != nil {
			return nil, fmt.Errorf("key %d (kid %q): %w", i+1, w.ID, err)
		}
		if key != nil {
			keys = append(keys, publicKey{w.ID, key})
		}
	}
	if len(keys) == 0 {
		return nil,
			errors.New(`it has no key to check signatures with: want {"keys": [...]} with keys of kty RSA, EC or OKP`)
	}
	return keys, nil
}

// publicKey returns the key, or nil if its kind is unknown.
func (w webKey) publicKey() (crypto.PublicKey, error) {
	switch w.Kind + w.Curve {
	case "RSA":
		key := &rsa.PublicKey{N: new(big.Int).SetBytes(w.N), E: int(new(big.Int).SetBytes(w.E).Int64())}
		// The exponent may have at most four bytes, because Int64 would return a wrong number for a longer exponent.
		if key.N.BitLen() < minRSA || key.E < 3 || len(w.E) > 4 {
			return nil, fmt.Errorf("n has %d bits, e is %d: want at least %d bits, and 65537", key.N.BitLen(), key.E,
				minRSA)
		}
		return key, nil
	case "ECP-256":
		return w.curvePoint(elliptic.P256())
	case "ECP-384":
		return w.curvePoint(elliptic.P384())
	case "ECP-521":
		return w.curvePoint(elliptic.P521())
	case "OKPEd25519":
		if len(w.X) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("x has %d bytes: want %d", len(w.X), ed25519.PublicKeySize)
		}
		return ed25519.PublicKey(w.X), nil
	}
	return nil, nil
}

// curvePoint returns a key on an elliptic curve.
func (w webKey) curvePoint(curve elliptic.Curve) (crypto.PublicKey, error) {
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
