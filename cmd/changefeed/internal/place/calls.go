package place

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rest"
)

// Requests about databases, containers and partitions, and requests that only changefeed serve answers. Package cosmos
// lacks them, because a processor does not need them.

// The limits of a request that is not about items.
const (
	callTimeout = 30 * time.Second
	maxReply    = 64 << 20 // bytes; a page has 4 MB, and a single row of a query may be larger
)

// readReply reads the body of an answer. A longer one is an error, because its beginning would be wrong alone.
func readReply(body io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(body, maxReply+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read answer of account: %w", err)
	case len(text) > maxReply:
		return nil, fmt.Errorf("read answer of account: it has more than %d MB", maxReply>>20)
	}
	return text, nil
}

// strangeAnswer returns the error of an answer that no account gives. Such an answer comes from another server: a
// proxy, or the login page of a network.
func (a *Account) strangeAnswer(method, path string, err error) error {
	return fmt.Errorf("the answer to %s %s %w: is %s an account of Azure Cosmos DB or changefeed serve?", method, path, err,
		a.Endpoint)
}

// callError is the refusal of an account.
type callError struct {
	request   string
	status    int
	substatus string
	said      string
	plan      json.RawMessage // of a query that the gateway does not run
	wait      time.Duration   // before a retry, if the account is only throttled
}

// Error returns the request, the status, and the first line of the account's message.
func (e *callError) Error() string { return fmt.Sprintf("%s: %d: %s", e.request, e.status, e.said) }

// Is matches the sentinels of package changefeed.
func (e *callError) Is(target error) bool {
	return e.status == http.StatusNotFound && target == feed.ErrNotFound ||
		e.status == http.StatusConflict && target == feed.ErrConflict ||
		e.status == http.StatusBadRequest && target == feed.ErrBadRequest ||
		(e.status == http.StatusUnauthorized || e.status == http.StatusForbidden) && target == feed.ErrForbidden
}

// call sends a request about a kind of things in a resource, such as the colls of dbs/shop, or about the resource
// itself, and decodes the answer into reply.
func (a *Account) call(ctx context.Context, method string, resource []string, kind string, body, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request, err := a.signedRequest(ctx, method, resource, kind, body)
	if err != nil {
		return err
	}
	return a.send(request, func(body io.Reader) error {
		text, err := readReply(body)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, reply); err != nil {
			return a.strangeAnswer(method, request.URL.Path, fmt.Errorf("cannot be read (%w)", err))
		}
		return nil
	})
}

// send sends a request and passes the answer to read, unless the answer is a refusal.
func (a *Account) send(request *http.Request, read func(body io.Reader) error) error {
	answer, err := a.answerTo(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return read(answer.Body)
}

// answerTo sends a request and returns the answer, unless the answer is a refusal.
func (a *Account) answerTo(request *http.Request) (*http.Response, error) {
	answer, err := a.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask account: %w", err)
	}
	if answer.StatusCode/100 == 2 {
		return answer, nil
	}
	defer answer.Body.Close()
	text, err := readReply(answer.Body)
	if err != nil {
		return nil, err
	}
	return nil, &callError{
		request: request.Method + " " + request.URL.Path, status: answer.StatusCode,
		substatus: answer.Header.Get("X-Ms-Substatus"), said: refusalOf(text), plan: planOf(text),
		wait: waitAsked(answer.Header),
	}
}

// longestAsked bounds a wait, because a longer one may not fit in a Duration. Nobody waits for as long.
const longestAsked = time.Hour

// waitAsked returns how long an account asks to wait; 0 if it does not ask for a positive number of milliseconds.
func waitAsked(h http.Header) time.Duration {
	ms, err := strconv.ParseFloat(h.Get("X-Ms-Retry-After-Ms"), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || math.IsNaN(ms) || ms < 0 {
		return 0
	}
	return time.Duration(min(ms, float64(longestAsked.Milliseconds())) * float64(time.Millisecond))
}

// signedRequest makes a signed request, with the JSON of body or, if body is bytes, with body itself.
func (a *Account) signedRequest(ctx context.Context, method string, resource []string, kind string,
	body any,
) (*http.Request, error) {
	// A document is sent byte for byte; Marshal would escape some characters.
	text, ready := body.([]byte)
	if !ready {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("write request: %w", err)
		}
	}
	// Without a body, Marshal would return the text null.
	if method == http.MethodGet {
		text = nil
	}
	at := rest.At(resource...)
	if kind != "" {
		at = rest.At(append(slices.Clone(resource), kind)...)
	}
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(a.Endpoint, "/")+cmp.Or(at.Raw, "/"),
		bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	date := time.Now().UTC().Format(http.TimeFormat)
	authorization, err := a.signer.Sign(ctx, method, at, date)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", authorization)
	r.Header.Set("X-Ms-Date", date)
	r.Header.Set("X-Ms-Version", rest.Version)
	r.Header.Set("Content-Type", "application/json")
	return r, nil
}

// refusalOf returns the reason in the body of a refusal: the first line, because the rest consists of ids and addresses
// within the service. Some messages are JSON in text.
func refusalOf(body []byte) string {
	var refusal struct{ Message string }
	if json.Unmarshal(body, &refusal) != nil || refusal.Message == "" {
		return fmt.Sprintf("%.200q", body)
	}
	line, _, _ := strings.Cut(refusal.Message, "\r\n")
	var inner struct{ Errors []json.RawMessage }
	if json.Unmarshal([]byte(strings.TrimPrefix(line, "Message: ")), &inner) == nil && len(inner.Errors) > 0 {
		return firstOf(inner.Errors)
	}
	return line
}

// firstOf returns the first error of a list: a text, or an object with the place in a query.
func firstOf(all []json.RawMessage) string {
	var text string
	if json.Unmarshal(all[0], &text) == nil {
		return text
	}
	var located struct {
		Message  string
		Location *struct{ Start, End int }
	}
	if json.Unmarshal(all[0], &located) != nil || located.Message == "" {
		return string(all[0])
	}
	if at := located.Location; at != nil {
		return fmt.Sprintf("characters %d to %d: %s", at.Start, at.End, located.Message)
	}
	return located.Message
}
