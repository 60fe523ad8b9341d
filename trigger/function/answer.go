package function

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/webhook"
)

// maxAnswer is the largest number of bytes of an answer.
const maxAnswer = 128 << 20

// answer is what a program has answered to an invocation.
type answer struct {
	status int
	text   string // of the status
	header http.Header
	body   []byte
}

// send sends the request of an invocation and reads the answer. An error says that there is no whole answer.
func (h *Host) send(req *http.Request) (*answer, error) {
	resp, err := h.client.Do(req)
	if err != nil {
		return nil, webhook.WithoutURL(err)
	}
	defer resp.Body.Close()
	a := &answer{status: resp.StatusCode, text: resp.Status, header: resp.Header}
	limit := int64(webhook.MaxAnswer)
	if a.isSuccess() {
		limit = maxAnswer + 1
	}
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, limit))
	if err != nil && a.isSuccess() { // otherwise the status says all
		return nil, fmt.Errorf("read the answer %s: %w", resp.Status, err)
	}
	return a, nil
}

func (a *answer) isSuccess() bool { return a.status/100 == 2 }

// result is the body of an answer. The names may have any case.
type result struct {
	Outputs     map[string]json.RawMessage
	Logs        []logText
	ReturnValue json.RawMessage
}

// logText is a text, or a simple value that becomes one.
type logText string

// UnmarshalJSON implements [json.Unmarshaler].
func (t *logText) UnmarshalJSON(text []byte) error {
	switch text[0] {
	case '{', '[':
		return errors.New("want a text")
	case '"':
		var s string
		err := json.Unmarshal(text, &s)
		*t = logText(s)
		return err
	}
	*t = logText(text)
	return nil
}

// errUnfinished is the answer after which an invocation never completes on Azure.
var errUnfinished = errors.New("on Azure such an invocation never completes: " +
	"answer 200 with Content-Type application/json and at least {}")

// parse returns what an answer says, or why it is a failure.
func (a *answer) parse() (*result, error) {
	if !a.isSuccess() {
		err := fmt.Errorf("answer %s%s", a.text, webhook.Quote(a.body))
		if after := webhook.RetryAfter(a.header.Get("Retry-After"), time.Now()); after > 0 {
			return nil, &feed.Failure{Err: err, After: after}
		}
		return nil, err
	}
	text := bytes.TrimSpace(bytes.TrimPrefix(a.body, []byte("\ufeff")))
	kind, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	isJSON := err == nil && (kind == "application/json" || kind == "text/json")
	switch {
	case len(text) == 0:
		return nil, fmt.Errorf("answer %s has no body: %w", a.text, errUnfinished)
	case len(a.body) > maxAnswer:
		return nil, fmt.Errorf("answer %s is longer than %d MB", a.text, maxAnswer>>20)
	case !isJSON:
		return nil, fmt.Errorf("answer %s has the Content-Type %q: want application/json", a.text,
			a.header.Get("Content-Type"))
	case string(text) == "null":
		return nil, fmt.Errorf("answer %s is null: %w", a.text, errUnfinished)
	case text[0] != '{':
		return nil, fmt.Errorf("answer %s is not an object: want an object with Outputs, Logs and ReturnValue%s", a.text,
			webhook.Quote(text))
	}
	var r result
	err = json.Unmarshal(text, &r)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = fmt.Errorf("%s is of the type %s", wrong.Field, wrong.Value)
	}
	if err != nil {
		return nil, fmt.Errorf("answer %s is wrong: %w: want an object with Outputs (an object), Logs (an array of texts) "+
			"and ReturnValue%s", a.text, err, webhook.Quote(text))
	}
	return &r, nil
}
