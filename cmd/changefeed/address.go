package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/usage"
)

// An address tells where a container is: in the directory of a store, or in an account
// that a server has.
type address struct {
	dir       string // of the store; empty for an account
	endpoint  string // of the account; empty is that of the flags or the environment
	database  string
	container string
	field     string // where it was given; empty when --db and --container were
	given     string // as it was written
}

// addressForms are the forms of an address, for the help and for errors.
const addressForms = "docstore:DIR#container, cosmos:DATABASE/container or https://HOST:PORT/DATABASE/container"

const addressHelp = `

A container's ADDRESS is one of

  docstore:DIR#container                in the store in a directory; DIR#database/container for one in another database than "default"
  cosmos:DATABASE/container             in the account of --endpoint
  https://HOST:PORT/DATABASE/container  in an account, or on changefeed serve

An account wants a key, or else an identity of Microsoft Entra ID that this machine has.
The emulator's well-known key is the default on a loopback address.`

// parseAddress reads one of addressForms; errors about it name the field.
func parseAddress(field, text string) (address, error) {
	scheme, rest, ok := strings.Cut(text, ":")
	a := address{field: field, given: text}
	switch {
	case ok && scheme == "docstore":
		i := strings.LastIndexByte(rest, '#')
		if i <= 0 {
			break
		}
		a.dir = rest[:i]
		if a.database, a.container, ok = splitName(rest[i+1:]); ok {
			return a, nil
		}
	case ok && scheme == "cosmos":
		if a.database, a.container, ok = splitName(rest); ok && strings.Contains(rest, "/") {
			return a, nil
		}
	case ok && (scheme == "https" || scheme == "http"):
		if a.parseURL(text) {
			return a, nil
		}
	}
	return address{}, fmt.Errorf("%s is %q: want %s", field, text, addressForms)
}

// splitName takes apart what may be container or database/container.
func splitName(text string) (database, container string, ok bool) {
	parts := strings.Split(text, "/")
	switch {
	case len(parts) == 1:
		parts = []string{docstore.DefaultDatabase, parts[0]}
	case len(parts) != 2:
		return "", "", false
	}
	return parts[0], parts[1], parts[0] != "" && parts[1] != ""
}

// parseURL reads scheme://host/database/container.
func (a *address) parseURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	database, container, ok := strings.Cut(strings.Trim(u.EscapedPath(), "/"), "/")
	if !ok || database == "" || container == "" || strings.Contains(container, "/") {
		return false
	}
	if a.database, err = url.PathUnescape(database); err != nil {
		return false
	}
	a.container, err = url.PathUnescape(container)
	a.endpoint = u.Scheme + "://" + u.Host
	return err == nil
}

// name is what a store finds the container by.
func (a address) name() string {
	if a.database == docstore.DefaultDatabase {
		return a.container
	}
	return a.database + "/" + a.container
}

// beside is the address of another container of the same database.
func (a address) beside(container string) address {
	a.container = container
	a.given = container + " beside " + a.given
	return a
}

// argument is the address as a command takes it.
func (a address) argument() string {
	switch {
	case a.dir != "":
		return "docstore:" + a.dir + "#" + a.name()
	case a.endpoint == "":
		return "cosmos:" + a.database + "/" + a.container
	}
	return a.endpoint + "/" + url.PathEscape(a.database) + "/" + url.PathEscape(a.container)
}

// storeField and containerField begin an error about what was given.
func (a address) storeField() string {
	if a.field == "" {
		return "--db is " + a.dir
	}
	return a.field + " is " + a.given
}

func (a address) containerField() string {
	if a.field == "" {
		return "--container is " + a.name()
	}
	return a.field + " is " + a.given
}

// placeFlags tell which container a command works on: an address or, for one of a store,
// two flags.
type placeFlags struct {
	db        string
	container string
	account   accountFlags
	retries   *retrier // nil for commands that fail at once
}

func (p *placeFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.db, "db", "", "`directory` of a store; with --container the short form of a docstore address")
	cmd.Flags().StringVar(&p.container, "container", p.container, "`name` of the container in it")
	_ = cmd.MarkFlagDirname("db") // fails only for a flag that is not there
	p.account.register(cmd)
}

var errNoAddress = errors.New("ADDRESS is missing: want " + addressForms + "; or --db and --container")

// address is the one that was given, as the only one of args if it is there.
func (p *placeFlags) address(cmd *cobra.Command, args []string) (a address, err error) {
	ok := true
	switch {
	case len(args) == 1 && (p.db != "" || cmd.Flags().Changed("container")):
		err = fmt.Errorf("ADDRESS is %q, and there is --db or --container: want one of the two", args[0])
	case len(args) == 1:
		a, err = parseAddress("ADDRESS", args[0])
	case p.db == "" || p.container == "":
		err = errNoAddress
	default:
		a.dir = p.db
		if a.database, a.container, ok = splitName(p.container); !ok {
			err = fmt.Errorf("--container is %q: want container or database/container", p.container)
		}
	}
	if err != nil {
		return a, usage.Error{Err: err}
	}
	return a, nil
}
