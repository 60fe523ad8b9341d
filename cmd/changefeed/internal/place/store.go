package place

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
)

// Commands about a whole store. For a directory they call package docstore. For a server they read a long answer to a
// single request piece by piece; the end of the answer says whether the answer is complete.

// parseStore reads a directory or the address of a server.
func parseStore(text string) (Address, error) {
	a := Address{Field: "DIR", Given: text}
	if !strings.HasPrefix(text, "http://") && !strings.HasPrefix(text, "https://") {
		a.Dir = strings.TrimPrefix(text, "docstore:")
		if a.Dir == "" || strings.Contains(text, "://") || strings.HasPrefix(text, "cosmos:") {
			return a,
				usage.Error{Err: fmt.Errorf("DIR|ADDRESS is %q: want the directory of a store, or the http or https "+
					"address of changefeed serve", text)}
		}
		return a, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || strings.Trim(u.Path, "/") != "" {
		return a,
			usage.Error{Err: fmt.Errorf("ADDRESS is %q: want that of a server, such as http://127.0.0.1:8081, "+
				"without a path", text)}
	}
	a.Field, a.endpoint = "ADDRESS", u.Scheme+"://"+u.Host
	return a, nil
}

// withStore runs f on the store of a directory, or g on the account of a server.
func withStore(ctx context.Context, settings Settings, text string, f func(*docstore.DB) error,
	g func(*Account) error,
) (err error) {
	a, err := parseStore(text)
	if err != nil {
		return err
	}
	o := NewOpener(settings)
	defer func() { err = cmp.Or(err, o.Close()) }()
	return o.onStore(ctx, a, f, g)
}

// onStore runs f on the store of a directory, or g on the account of a server.
func (o *Opener) onStore(ctx context.Context, a Address, f func(*docstore.DB) error, g func(*Account) error) error {
	if a.Dir != "" {
		db, err := o.openExisting(a)
		if err != nil {
			return err
		}
		return f(db)
	}
	server, err := o.Account(ctx, a)
	if err != nil {
		return err
	}
	return g(server)
}

// stream sends a long-running request to a server; read reads the answer piece by piece.
func (a *Account) stream(ctx context.Context, kind string, read func(io.Reader) error) error {
	request, err := a.signedRequest(ctx, http.MethodGet, nil, kind, nil)
	if err != nil {
		return err
	}
	err = a.send(request, read)
	refused, ok := errors.AsType[*callError](err)
	if ok && (refused.status == http.StatusNotFound || refused.status == http.StatusBadRequest) {
		return fmt.Errorf("%w; only changefeed serve does this", refused)
	}
	return err
}

// Checked is how much a check has read.
type Checked struct {
	Records   int64  // read so far
	Documents *int64 // in the store; nil if unknown
}

// Check checks every invariant of a store, in its directory or over changefeed serve, and returns the violations. Check
// calls progress now and then.
func Check(ctx context.Context, settings Settings, store string,
	progress func(Checked),
) (violations []docstore.Violation, err error) {
	a, err := parseStore(store)
	if err != nil {
		return nil, err
	}
	o := NewOpener(settings)
	defer func() { err = cmp.Or(err, o.Close()) }()
	return o.Check(ctx, a, progress)
}

// Check checks every invariant of a store as the function Check does, in the store or server of an address.
func (o *Opener) Check(ctx context.Context, a Address, progress func(Checked)) (violations []docstore.Violation,
	err error,
) {
	err = o.onStore(ctx, a,
		func(db *docstore.DB) (err error) {
			documents := db.Count()
			violations, err = db.CheckAll(ctx, func(records int64) { progress(Checked{records, &documents}) })
			return err
		},
		func(server *Account) error {
			return server.stream(ctx, "check", func(r io.Reader) (err error) {
				violations, err = readCheck(r, progress)
				return err
			})
		})
	return violations, err
}

// readCheck reads a server's lines about a check to the last.
func readCheck(r io.Reader, progress func(Checked)) ([]docstore.Violation, error) {
	lines := json.NewDecoder(r)
	for {
		var line struct {
			Records    int64
			Documents  *int64
			Violations []docstore.Violation
			Error      string // why the check failed
			Done       bool
		}
		err := lines.Decode(&line)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil, errEnded
		case err != nil:
			return nil, fmt.Errorf("read answer of server: %w", err)
		}
		progress(Checked{line.Records, line.Documents})
		if line.Done && line.Error != "" {
			return line.Violations, errors.New(line.Error)
		}
		if line.Done {
			return line.Violations, nil
		}
	}
}

var errEnded = errors.New("the server's answer has no end: it stopped, or the connection broke")

// Backup copies a store, in its directory or over changefeed serve, into a new directory.
func Backup(ctx context.Context, settings Settings, store, to string) error {
	return withStore(ctx, settings, store,
		func(db *docstore.DB) error { return db.Backup(ctx, to) },
		func(server *Account) error {
			return server.stream(ctx, "backup", func(r io.Reader) error {
				return docstore.ReceiveBackup(ctx, r, to)
			})
		})
}
