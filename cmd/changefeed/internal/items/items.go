// Package items works on the containers and documents of an account for a person: the package lists, creates and drops
// containers, and gets, puts, deletes and queries documents. The store in a directory and changefeed serve are accounts
// too, see package place, so there is a single way to all of them.
package items

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// A Target is an open container.
type Target struct {
	container *place.Container
	account   *place.Account
	paths     []pkey.Path
}

// Open opens an existing container.
func Open(ctx context.Context, o *place.Opener, at place.Address) (*Target, error) {
	c, err := o.Open(ctx, at)
	if err != nil {
		return nil, err
	}
	t := &Target{container: c}
	for _, path := range c.Concrete().(interface{ KeyPaths() [][]string }).KeyPaths() {
		t.paths = append(t.paths, path)
	}
	t.account, err = o.Account(ctx, at)
	return t, err
}

// keyPaths returns the paths of the partition key as a person writes them.
func (t *Target) keyPaths() (paths []string) {
	for _, path := range t.paths {
		paths = append(paths, "/"+strings.Join(path, "/"))
	}
	return paths
}

// resource returns the container's resource, or a resource in the container.
func (t *Target) resource(below ...string) []string {
	at := t.container.Address
	return append([]string{"dbs", at.Database, "colls", at.Container}, below...)
}

// Name returns the container's name.
func (t *Target) Name() string { return t.container.Address.Name() }

// FullKey returns the partition key of a document. If no key was given, and the partition key is the id, the id is the
// key.
func (t *Target) FullKey(given feed.PartitionKey, id string) (feed.PartitionKey, error) {
	paths := t.keyPaths()
	if given == "" {
		if slices.Equal(paths, []string{"/id"}) {
			return feed.NewKey(id)
		}
		return "", usage.Error{Err: fmt.Errorf("--key is missing: container %q is partitioned by %s: want %s, such as %s",
			t.Name(), strings.Join(paths, ","), theValues(paths), exampleKey(paths))}
	}
	return given, t.checkKey(given)
}

// checkKey refuses a key without exactly a value for each path.
func (t *Target) checkKey(key feed.PartitionKey) error {
	parsed, err := pkey.Parse(string(key))
	if err != nil {
		return usage.Error{Err: fmt.Errorf("--key: %w", err)}
	}
	if paths := t.keyPaths(); parsed.Len() != len(paths) {
		return usage.Flag("key", string(key), fmt.Sprintf("%s, of %s, such as %s", terminal.Count(len(paths), "value"),
			strings.Join(paths, ","), exampleKey(paths)))
	}
	return nil
}

// CheckPrefix refuses a key with more values than a container has paths. A key of fewer values is a prefix of keys, and
// no key means all.
func CheckPrefix(c *place.Container, key feed.PartitionKey) error {
	parsed, err := pkey.Parse(string(key)) // arg.Key has refused what is no key
	paths := c.KeyPaths()
	if n := len(paths); err == nil && n > 0 && parsed.Len() > n {
		return usage.Flag("key", string(key), fmt.Sprintf("%s, of %s, such as %s", terminal.Count(n, "value"),
			strings.Join(paths, ","), exampleKey(paths)))
	}
	return nil
}

// theValues describes the values for the paths of a partition key.
func theValues(paths []string) string {
	if len(paths) == 1 {
		return "its value"
	}
	return "their values"
}

// exampleKey returns an example of the flag --key.
func exampleKey(paths []string) string {
	if len(paths) == 1 {
		return "--key London"
	}
	return `--key '["` + strings.Join(slices.Repeat([]string{"…"}, len(paths)), `","`) + `"]'`
}

// A Document is the place of a document.
type Document struct {
	ID  string
	Key feed.PartitionKey
}

// String returns the document in words.
func (d Document) String() string { return fmt.Sprintf("document %q of key %s", d.ID, d.Key) }

// send sends a request about a document.
func (t *Target) send(ctx context.Context, method string, d Document, ifMatch string, want ...string) (place.Reply,
	error,
) {
	name, value := place.KeyHeader(d.Key)
	reply, err := t.account.Send(ctx, place.Request{
		Method: method, Resource: t.resource("docs", d.ID), Header: map[string]string{name: value, "If-Match": ifMatch},
		Want: want,
	})
	return reply, t.explain(d, ifMatch, err)
}

// documentMembers are members that each stored document has.
var documentMembers = []string{"id", "_rid", "_etag"}

// explain makes the refusal of a request about a document an error in the user's words.
func (t *Target) explain(d Document, ifMatch string, err error) error {
	switch place.Status(err) {
	case http.StatusNotFound:
		return usage.Missing{Err: fmt.Errorf("there is no %v in container %q: want another ID or --key", d, t.Name())}
	case http.StatusUnauthorized:
		// The key is right, because the container was opened with this key.
		if strings.ContainsAny(d.ID, `%/\#`) || strings.HasSuffix(d.ID, " ") {
			return fmt.Errorf("ID is %q: an account finds no document by an id that has one of %% / \\ # or ends in a "+
				"blank: want changefeed query with WHERE c.id = @id", d.ID)
		}
	case http.StatusPreconditionFailed:
		return fmt.Errorf("--if-match is %s: %v %w: want its present _etag, which changefeed get shows", ifMatch, d,
			ErrOtherETag)
	case http.StatusConflict:
		return fmt.Errorf("%w: %v is in container %q: want another id, or leave --create out to replace it", ErrExists, d,
			t.Name())
	}
	return err
}

// ErrOtherETag means that a document has another etag than a condition.
var ErrOtherETag = errors.New("has another etag now, because somebody has changed it")

// ErrExists means that a document exists which should be created.
var ErrExists = errors.New("the document exists already")

// Get returns a document.
func (t *Target) Get(ctx context.Context, d Document) (json.RawMessage, error) {
	reply, err := t.send(ctx, http.MethodGet, d, "", documentMembers...)
	if got := rawjson.Text(rawjson.Lookup(reply.Body, "id")); err == nil && got != d.ID {
		return nil, fmt.Errorf("the answer is document %q, and not %v: is %s an account of Azure Cosmos DB or changefeed "+
			"serve?", got, d, t.account.Endpoint)
	}
	return reply.Body, err
}

// Find returns the etag of a document, which must be ifMatch if that is not empty.
func (t *Target) Find(ctx context.Context, d Document, ifMatch string) (etag string, err error) {
	document, err := t.Get(ctx, d)
	if err != nil {
		return "", err
	}
	etag = rawjson.Text(rawjson.Lookup(document, "_etag"))
	// As an account does, Find takes an etag without quotes, and a star for any etag.
	if ifMatch != "" && ifMatch != "*" && strings.Trim(ifMatch, `"`) != strings.Trim(etag, `"`) {
		return etag, fmt.Errorf("--if-match is %s: %v %w: want its present _etag, which changefeed get shows", ifMatch, d,
			ErrOtherETag)
	}
	return etag, nil
}

// meanwhileError means that somebody has changed a document between the read and the deletion.
type meanwhileError struct{ Document }

// Error names the next step.
func (e meanwhileError) Error() string {
	return e.Document.String() + " was changed meanwhile, so nothing was deleted: want another look at it first"
}

// Is matches [ErrOtherETag].
func (meanwhileError) Is(target error) bool { return target == ErrOtherETag }

// Delete deletes a document with the etag that Find has returned. The charge is nil if unknown.
func (t *Target) Delete(ctx context.Context, d Document, etag string) (charge *float64, err error) {
	reply, err := t.send(ctx, http.MethodDelete, d, etag)
	if errors.Is(err, ErrOtherETag) {
		err = meanwhileError{d}
	}
	return reply.Charge(), err
}

// Where names the store or account of the container.
func (t *Target) Where() string {
	if dir := t.container.Address.Dir; dir != "" {
		return "store " + dir
	}
	return t.account.Endpoint
}
