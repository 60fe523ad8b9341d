// Package contexts keeps the contexts of a user in a file. A context is a name for an account or for a store in a
// directory, with the place of the account's key. The file contains the key itself only if the user asks for that.
//
//	{
//	  "version": 1,
//	  "current": "shop",
//	  "contexts": {
//	    "shop": {"endpoint": "https://contoso.documents.azure.com", "key": {"env": "SHOP_KEY"}},
//	    "local": {"directory": "/home/ann/data"}
//	  }
//	}
package contexts

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// A Context is an account or a store in a directory.
type Context struct {
	Name      string    `json:"-"`
	Endpoint  string    `json:"endpoint,omitempty"`  // URL of the account; empty for a store in a directory
	Directory string    `json:"directory,omitempty"` // absolute path of the store; empty for an account
	Database  string    `json:"database,omitempty"`  // of container names without a database
	CA        string    `json:"ca,omitempty"`        // absolute path of the certificate that a server made itself
	Key       KeySource `json:"key,omitzero"`        // of the account
}

// Contexts are all contexts of a user.
type Contexts struct {
	Version int                `json:"version"`
	Current string             `json:"current"` // used if the user chooses no context; may be empty
	ByName  map[string]Context `json:"contexts"`
}

// The environment variables that choose the file and the context.
const (
	FileVariable    = "CHANGEFEED_CONFIG"
	ContextVariable = "CHANGEFEED_CONTEXT"
)

// FilePath returns the path of the user's file, which need not exist.
func FilePath() (string, error) {
	if path := os.Getenv(FileVariable); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the file of contexts: %w: want its path in $%s", err, FileVariable)
	}
	return filepath.Join(dir, "changefeed", "config.json"), nil
}

// Names returns the names of all contexts in alphabetical order.
func (c Contexts) Names() []string { return slices.Sorted(maps.Keys(c.ByName)) }

// Find returns the context of a name. The error for an unknown name lists the existing names.
func (c Contexts) Find(field, name string) (Context, error) {
	found, ok := c.ByName[name]
	if !ok {
		why := "there is no context yet: changefeed context add makes one"
		if len(c.ByName) > 0 {
			why = "there is no such context: want one of " + strings.Join(c.Names(), ", ")
		}
		return Context{}, usage.Missing{Err: fmt.Errorf("%s is %q: %s", field, name, why)}
	}
	found.Name = name
	return found, nil
}

// Add adds a context under a new name.
func (c *Contexts) Add(added Context) error {
	if _, ok := c.ByName[added.Name]; ok {
		return usage.Error{Err: fmt.Errorf("NAME is %q: there is such a context already: want another name, or first "+
			"changefeed context rm %[1]s", added.Name)}
	}
	c.ByName[added.Name] = added
	return nil
}

// Remove removes a context, and reports whether the context was the current one.
func (c *Contexts) Remove(name string) (wasCurrent bool, err error) {
	if _, err := c.Find("NAME", name); err != nil {
		return false, err
	}
	delete(c.ByName, name)
	if c.Current == name {
		c.Current, wasCurrent = "", true
	}
	return wasCurrent, nil
}

var validName = regexp.MustCompile(`^[\p{L}\p{N}_][\p{L}\p{N}_.-]*$`)

// CheckName refuses a name that a shell or a person could take for something else.
func CheckName(name string) error {
	if validName.MatchString(name) {
		return nil
	}
	return usage.Error{Err: fmt.Errorf("NAME is %q: want letters, digits, and _ . - after the first of them", name)}
}

// A Choice says which context a command uses. The zero value is no context.
type Choice struct {
	File string // of the contexts; empty means no context
	Name string // empty means the current context
	By   string // what has named the context: a flag or a variable; empty for the current context
}

// Choose returns the context that a user has chosen: with the flag --context, or with $CHANGEFEED_CONTEXT, or else the
// current context. An empty flag chooses no context.
func Choose(flag string, given bool) Choice {
	path, err := FilePath()
	variable := os.Getenv(ContextVariable)
	switch {
	case given && flag == "":
		return Choice{}
	case given:
		return Choice{path, flag, "--context"}
	case variable != "":
		return Choice{path, variable, "$" + ContextVariable}
	case err != nil: // without a home there is no file, and so no current context
		return Choice{}
	}
	return Choice{File: path}
}

// Explicit reports whether the user has named the context.
func (c Choice) Explicit() bool { return c.By != "" }

// Find returns the chosen context; ok is false if there is none.
func (c Choice) Find() (found Context, ok bool, err error) {
	if c == (Choice{}) {
		return Context{}, false, nil
	}
	if c.File == "" { // there is no home
		_, err := FilePath()
		return Context{}, false, err
	}
	all, err := Read(c.File)
	if err != nil || !c.Explicit() && all.Current == "" {
		return Context{}, false, err
	}
	field, name := c.By, c.Name
	if !c.Explicit() {
		field, name = "the current context of "+c.File, all.Current
	}
	found, err = all.Find(field, name)
	return found, err == nil, err
}
