package contexts

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// Wanted is a new context in the form of the flags of changefeed context add.
type Wanted struct {
	Context
	KeyCommand  string // instead of Key.Command, as a single text
	StoreSecret bool   // Key.Secret may be stored
}

// Complete checks the new context, and makes its paths absolute, because a command may run in another directory. Errors
// name the flags.
func (w Wanted) Complete() (c Context, err error) {
	if err := CheckName(w.Name); err != nil {
		return c, err
	}
	if (w.Endpoint == "") == (w.Directory == "") {
		return c, usage.Error{Err: errors.New("want --endpoint of an account or --db of a store, and not both")}
	}
	if strings.ContainsAny(w.Database, `/\#?`) {
		return c, usage.Flag("database", w.Database, `a name without / \ # and ?`)
	}
	if err := w.checkKey(); err != nil {
		return c, err
	}
	c = w.Context
	if w.KeyCommand != "" {
		if c.Key.Command, err = ParseCommand(w.KeyCommand); err != nil {
			return c, usage.Error{Err: fmt.Errorf("--key-command: %w: want a program and its arguments", err)}
		}
	}
	if c.Endpoint != "" {
		if c.Endpoint, err = checkEndpoint(c.Endpoint); err != nil {
			return c, err
		}
	}
	for _, path := range []*string{&c.Directory, &c.CA, &c.Key.File} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return c, err
		}
	}
	return c, nil
}

// checkEndpoint returns the URL of an account without a slash at its end.
func checkEndpoint(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return "", usage.Flag("endpoint", fmt.Sprintf("%q", text), "https://HOST:PORT, without a path")
	}
	return u.Scheme + "://" + u.Host, nil
}

// checkKey refuses two keys, a key of a store in a directory, and a secret that would be stored unasked.
func (w Wanted) checkKey() error {
	var keys []string
	for _, f := range []struct{ flag, value string }{
		{"--key-env", w.Key.Variable},
		{"--key-file", w.Key.File},
		{"--key-command", w.KeyCommand},
		{"--account-key", w.Key.Secret},
	} {
		if f.value != "" {
			keys = append(keys, f.flag)
		}
	}
	forAccount := keys
	if w.CA != "" {
		forAccount = append(forAccount, "--ca")
	}
	switch {
	case w.Directory != "" && len(forAccount) > 0:
		return usage.Error{Err: fmt.Errorf("%s is for an account, and --db is a store: leave one out", forAccount[0])}
	case len(keys) > 1:
		return usage.Error{Err: fmt.Errorf("%s and %s are both set: want one key", keys[0], keys[1])}
	case w.Key.Secret != "" && !w.StoreSecret:
		return usage.Error{Err: errors.New("--account-key is a secret, which would be plain text in the file of " +
			"contexts: want --key-env, --key-file or --key-command, or --store-secret to store the key there")}
	case w.Key.Secret == "" && w.StoreSecret:
		return usage.Error{Err: errors.New("--store-secret is set without --account-key: want the key")}
	case strings.ContainsAny(w.Key.Variable, "=$ "):
		return usage.Flag("key-env", w.Key.Variable, "the name of a variable, such as SHOP_KEY")
	}
	return nil
}
