package place

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/millrace/changefeed/docstore"
)

// Errors of the network, of a certificate or of a key arise deep in net/http and crypto/x509, which cannot know which
// address, flag or variable was wrong.

// Hint returns advice after an error that a wrong address, key or certificate causes; empty if there is no advice
// beyond the error.
func Hint(err error) string {
	for _, h := range hints {
		if h.is(err) {
			return h.text
		}
	}
	return ""
}

// SpeaksHTTPS reports whether an error is the answer of net/http to a client without encryption.
func SpeaksHTTPS(err error) bool {
	return err != nil && strings.Contains(err.Error(), "HTTP request to an HTTPS server")
}

// hints are in order of certainty: the first that matches is shown.
var hints = []struct {
	is   func(error) bool
	text string
}{
	{
		isOf[x509.UnknownAuthorityError],
		"if the server made its certificate itself, as changefeed serve does, name the file with --ca or " +
			"SSL_CERT_FILE",
	},
	{isOf[x509.HostnameError], "want an address with a name that the certificate is for"},
	{
		func(err error) bool { return errors.Is(err, http.ErrSchemeMismatch) },
		"the server speaks http: want an address that begins with http://",
	},
	{
		SpeaksHTTPS,
		"the server speaks https: want an address that begins with https://",
	},
	{
		func(err error) bool { return Status(err) == http.StatusUnauthorized },
		"want the account's key in --account-key, $" + KeyVariable +
			", a connection string or a context; the key of changefeed serve may be in $" + ServerKeyVariable +
			", and without a key the emulator's is used for a loopback address",
	},
	{
		func(err error) bool { dns, ok := errors.AsType[*net.DNSError](err); return ok && dns.IsNotFound },
		"no host has this name: want another address",
	},
	{
		func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) },
		"nothing listens there: want the address of an account, or of changefeed serve, which must be running",
	},
	{
		func(err error) bool { return errors.Is(err, syscall.EMFILE) },
		"this process may not open more files: raise the limit, as with ulimit -n 4096",
	},
	{
		func(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, docstore.ErrDiskFull) },
		"free some space, or want another disk",
	},
	{
		func(err error) bool { return errors.Is(err, fs.ErrPermission) && isOf[*fs.PathError](err) },
		"this user may not do that there: run as the owner of the file or directory, or choose another path",
	},
	{
		func(err error) bool {
			return isOf[*json.SyntaxError](err) && strings.Contains(err.Error(), "parse account")
		},
		"what answers there is no account of Azure Cosmos DB: want another address",
	},
	{
		func(err error) bool {
			return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT)
		},
		"nothing answers there: want another address, or a way through the firewall",
	},
}

// isOf reports whether an error is, or wraps, an error of type E.
func isOf[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
