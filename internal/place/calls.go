package place

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/millrace/changefeed"
)

// Requests about databases, containers and partitions, and those that only changefeed
// serve answers. Package cosmos does not have them: it has only what a processor needs.

// Bounds of a request that is not about items.
const (
	callTimeout = 30 * time.Second
	maxReply    = 16 << 20 // bytes
)

// apiVersion is the version that Microsoft's SDKs send, which is therefore the best tried.
const apiVersion = "2020-07-15"

// callError is the answer of an account that refuses.
type callError struct {
	request string
	status  int
	said    string
}

// Error has the first line of what the account said.
func (e *callError) Error() string { return fmt.Sprintf("%s: %d: %s", e.request, e.status, e.said) }

// Is matches the sentinels of package changefeed.
func (e *callError) Is(target error) bool {
	return e.status == http.StatusNotFound && target == changefeed.ErrNotFound ||
		e.status == http.StatusConflict && target == changefeed.ErrConflict ||
		e.status == http.StatusBadRequest && target == changefeed.ErrBadRequest
}

// call sends a request about a kind of things in a resource, such as the colls of
// dbs/shop, or about the resource itself, and reads the answer into reply.
func (a *Account) call(ctx context.Context, method string, resource []string, kind string, body, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request, err := a.request(ctx, method, resource, kind, body)
	if err != nil {
		return err
	}
	return a.send(request, func(body io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(body, maxReply))
		if err != nil {
			return fmt.Errorf("read answer of account: %w", err)
		}
		if err := json.Unmarshal(text, reply); err != nil {
			return fmt.Errorf("read answer to %s %s: %w", method, request.URL.Path, err)
		}
		return nil
	})
}

// send sends a request and has read take the answer, unless that is a refusal.
func (a *Account) send(request *http.Request, read func(body io.Reader) error) error {
	answer, err := a.http.Do(request)
	if err != nil {
		return fmt.Errorf("ask account: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 == 2 {
		return read(answer.Body)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxReply))
	if err != nil {
		return fmt.Errorf("read answer of account: %w", err)
	}
	return &callError{request.Method + " " + request.URL.Path, answer.StatusCode, refusalOf(text)}
}

// request makes a signed request.
func (a *Account) request(ctx context.Context, method string, resource []string, kind string, body any) (*http.Request, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	// Marshal makes the text null of no body.
	if method == http.MethodGet {
		text = nil
	}
	link := strings.Join(resource, "/")
	var path strings.Builder
	for _, part := range resource {
		path.WriteString("/" + url.PathEscape(part))
	}
	switch {
	case len(resource) == 0 && kind == "": // the account
		path.WriteString("/")
	case kind == "":
		// A path that ends with an id is of the kind before that id, which is signed
		// too.
		kind = resource[len(resource)-2]
	default:
		path.WriteString("/" + kind)
	}
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(a.Endpoint, "/")+path.String(), bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	date := time.Now().UTC().Format(http.TimeFormat)
	authorization, err := a.sign(ctx, fmt.Sprintf("%s\n%s\n%s\n%s\n\n", strings.ToLower(method), kind, link, strings.ToLower(date)))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", authorization)
	r.Header.Set("X-Ms-Date", date)
	r.Header.Set("X-Ms-Version", apiVersion)
	r.Header.Set("Content-Type", "application/json")
	return r, nil
}

// sign makes the authorization of a request: a signature of what the service wants
// signed, or the token of an identity.
func (a *Account) sign(ctx context.Context, payload string) (string, error) {
	if a.key == "" {
		scope := "https://" + hostOf(a.Endpoint) + "/.default"
		token, err := a.identity.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
		if err != nil {
			return "", fmt.Errorf("get token for %s: %w", scope, err)
		}
		return url.QueryEscape("type=aad&ver=1.0&sig=" + token.Token), nil
	}
	key, err := base64.StdEncoding.DecodeString(a.key)
	if err != nil {
		return "", errors.New("the account's key is no base64: want it as the portal shows it")
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(payload))
	return url.QueryEscape("type=master&ver=1.0&sig=" + base64.StdEncoding.EncodeToString(mac.Sum(nil))), nil
}

// refusalOf is the reason in the body of a refusal: its first line, because the rest is ids and
// addresses within the service. Some messages are JSON in text.
func refusalOf(body []byte) string {
	var refusal struct{ Message string }
	if json.Unmarshal(body, &refusal) != nil || refusal.Message == "" {
		return fmt.Sprintf("%.200q", body)
	}
	line, _, _ := strings.Cut(refusal.Message, "\r\n")
	var inner struct{ Errors []string }
	if json.Unmarshal([]byte(strings.TrimPrefix(line, "Message: ")), &inner) == nil && len(inner.Errors) > 0 {
		return inner.Errors[0]
	}
	return line
}
