package place

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/changefeed/cosmos"
)

func TestAnErrorOfAnAddressSaysHowToGoOn(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string // empty for no hint
	}{
		{x509.UnknownAuthorityError{}, "--ca or SSL_CERT_FILE"},
		{x509.HostnameError{}, "a name that the certificate is for"},
		{http.ErrSchemeMismatch, "begins with http://"},
		{errors.New("Client sent an HTTP request to an HTTPS server."), "begins with https://"},
		{&cosmos.Error{Status: http.StatusUnauthorized}, "--account-key"},
		{&callError{status: http.StatusUnauthorized}, "--account-key"},
		{&callError{status: http.StatusForbidden}, ""},
		{&net.DNSError{IsNotFound: true}, "no host has this name"},
		{&net.DNSError{IsTimeout: true}, ""},
		{syscall.ECONNREFUSED, "nothing listens there"},
		{&fs.PathError{Err: fs.ErrPermission}, "this user may not do that"},
		{fs.ErrPermission, ""},
		{os.ErrDeadlineExceeded, "nothing answers there"},
		{&fs.PathError{Op: "open", Err: syscall.EMFILE}, "ulimit -n"},
		{&fs.PathError{Op: "write", Err: syscall.ENOSPC}, "free some space"},
		{errors.New("disk full"), ""},
	} {
		got := Hint(fmt.Errorf("open container: %w", tt.err))
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%v: got %q, want %q", tt.err, got, tt.want)
		}
	}
}
