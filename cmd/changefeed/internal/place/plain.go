package place

import (
	"errors"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/millrace/changefeed/feed"
)

// Plain returns the text of an error for users, without the words of libraries, such as dial tcp. It stays as it is for
// programs that use the packages.
func Plain(err error) string {
	text := strings.ReplaceAll(err.Error(), feed.ErrBadRequest.Error()+": ", "")
	if e, ok := errors.AsType[*net.OpError](err); ok {
		cause := e.Err
		if call, ok := errors.AsType[*os.SyscallError](cause); ok {
			cause = call.Err
		} else if dns, ok := errors.AsType[*net.DNSError](cause); ok {
			cause = errors.New(dns.Err)
		}
		text = strings.ReplaceAll(text, e.Error(), cause.Error())
	}
	return strings.ReplaceAll(text, http.ErrSchemeMismatch.Error(), "the answer is not encrypted")
}
