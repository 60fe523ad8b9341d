package function

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/millrace/changefeed/feed"
)

// hostVersion is the version of the host of Azure whose requests these are.
const hostVersion = "4.1037.0.0"

// The times of idle connections: shorter than those of the usual servers, so that a program does not close a connection
// at the moment at which an invocation is sent.
const (
	idleTime  = time.Second
	idleConns = 256
)

// maxRedirects is the largest number of redirects that are followed.
const maxRedirects = 50

// newClient returns the client of the program.
func newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DisableCompression: true, // no Accept-Encoding, as Azure
			MaxIdleConns:       idleConns, MaxIdleConnsPerHost: idleConns, IdleConnTimeout: idleTime,
		},
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
}

// newID returns a new id, a random UUID.
func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// newRequest makes the request of an invocation.
func (h *Handler) newRequest(ctx context.Context, address, id string, b *feed.Batch) (*http.Request, error) {
	body := h.encodeInvocation(b, time.Now().UTC(), newID())
	to := url.URL{Scheme: "http", Host: address, Path: "/" + h.function.Name}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.ContentLength = -1 // in chunks
	for name, value := range map[string]string{
		"X-Azure-Functions-HostVersion":  hostVersion,
		"X-Azure-Functions-InvocationId": id,
		"User-Agent":                     "Azure-Functions-Host/" + hostVersion,
		"Content-Type":                   "application/json; charset=utf-8",
		"Changefeed-Lease":               b.LeaseToken,
		"Changefeed-Range":               b.Range.String(),
		"Changefeed-Instance":            url.PathEscape(b.Instance), // a header has no other letters
		"Changefeed-Epoch":               strconv.FormatInt(b.Epoch, 10),
		"Changefeed-Attempt":             strconv.Itoa(b.Attempt),
	} {
		req.Header[name] = []string{value} // with the letters of Azure: InvocationId
	}
	if drain := h.host.opts.Drain; drain > 0 {
		req.Header.Set("Changefeed-Drain", strconv.FormatFloat(drain.Seconds(), 'f', -1, 64))
	}
	return req, nil
}

// encodeInvocation returns the body of an invocation. The batch is encoded twice: it is the text of a JSON string whose
// content is a JSON string again, because Azure sends every value that is no object as the JSON of itself.
func (h *Handler) encodeInvocation(b *feed.Batch, now time.Time, random string) []byte {
	once := appendString(nil, h.encodeChanges(b))
	body := appendString([]byte(`{"Data":{`), []byte(h.function.Trigger.Name))
	body = appendString(append(body, ':'), once)
	body = append(body, `},"Metadata":{"sys":{"MethodName":`...)
	body = appendString(body, []byte(h.function.Name))
	body = append(body, `,"UtcNow":"`...)
	body = append(body, now.Format("2006-01-02T15:04:05.9999999Z")...)
	body = append(body, `","RandGuid":"`...)
	body = append(append(body, random...), `"}`...)
	body = h.appendRetryContext(body, b)
	return append(body, `}}`...)
}

// encodeChanges returns the changes as a JSON array. The bytes of the documents are as they are stored.
func (h *Handler) encodeChanges(b *feed.Batch) []byte {
	text := []byte{'['}
	for i := range b.Changes {
		if i > 0 {
			text = append(text, ',')
		}
		if h.function.Trigger.AllVersions {
			text = appendVersion(text, &b.Changes[i])
		} else {
			text = appendDocument(text, &b.Changes[i])
		}
	}
	return append(text, ']')
}

// appendDocument appends a document as the feed of the account has it: with its LSN, after all other members.
func appendDocument(text []byte, c *feed.Change) []byte {
	body := bytes.TrimRight(c.Body, " \t\r\n")
	if len(body) == 0 || body[len(body)-1] != '}' {
		return append(text, c.Body...)
	}
	body = body[:len(body)-1]
	text = append(text, body...)
	if before := bytes.TrimRight(body, " \t\r\n"); len(before) > 0 && before[len(before)-1] != '{' {
		text = append(text, ',')
	}
	text = append(text, `"_lsn":`...)
	return append(strconv.AppendInt(text, c.LSN, 10), '}')
}

// appendVersion appends a change of all versions and deletes.
func appendVersion(text []byte, c *feed.Change) []byte {
	text = append(text, `{"current":`...)
	if len(c.Body) > 0 {
		text = append(text, c.Body...)
	} else {
		text = append(text, `{}`...)
	}
	if len(c.Previous) > 0 {
		text = append(append(text, `,"previous":`...), c.Previous...)
	} else {
		text = append(text, `,"previous":null`...)
	}
	text = strconv.AppendInt(append(text, `,"metadata":{"crts":`...), c.Time.Unix(), 10)
	text = strconv.AppendInt(append(text, `,"lsn":`...), c.LSN, 10)
	text = append(append(text, `,"operationType":"`...), c.Op.String()...)
	text = strconv.AppendInt(append(text, `","previousImageLSN":`...), c.PreviousLSN, 10)
	text = strconv.AppendBool(append(text, `,"timeToLiveExpired":`...), c.Expired)
	return append(text, `}}`...)
}

// appendString appends a JSON string, escaped as Newtonsoft.Json does: quotes, backslashes, control characters, and the
// line ends of Unicode; all other text stays as it is.
func appendString(dst, text []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	begin := 0
	for i := 0; i < len(text); i++ {
		var escape string
		size := 1
		switch c := text[i]; {
		case c == '"' || c == '\\':
			escape = `\` + string(c)
		case c < ' ':
			if short := shortEscapes[c]; short != 0 {
				escape = `\` + string(short)
			} else {
				escape = `\u00` + string([]byte{hex[c>>4], hex[c&0xf]})
			}
		case c == 0xc2 && i+1 < len(text) && text[i+1] == 0x85:
			escape, size = `\u0085`, 2
		case c == 0xe2 && i+2 < len(text) && text[i+1] == 0x80 && text[i+2]&^1 == 0xa8:
			escape, size = `\u202`+string(hex[text[i+2]-0xa0]), 3
		default:
			continue
		}
		dst = append(append(dst, text[begin:i]...), escape...)
		i += size - 1
		begin = i + 1
	}
	return append(append(dst, text[begin:]...), '"')
}

// shortEscapes has the letters of the control characters that have one.
var shortEscapes = [' ']byte{'\b': 'b', '\t': 't', '\n': 'n', '\f': 'f', '\r': 'r'}
