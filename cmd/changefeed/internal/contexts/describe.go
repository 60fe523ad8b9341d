package contexts

import (
	"fmt"
	"io"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// A Description is a context for programs, without its key.
type Description struct {
	Name      string  `json:"name" about:"of the context"`
	Current   bool    `json:"current" about:"used by commands that name no context"`
	Endpoint  *string `json:"endpoint" about:"of the account; null for a store in a directory"`
	Directory *string `json:"directory" about:"of the store; null for an account"`
	Database  *string `json:"database" about:"of container names without a database; null if there is none"`
	Key       *string `json:"key" about:"the place of the key, never the key; null if there is none"`
	CA        *string `json:"ca" about:"file with the certificate that a server made itself; null if there is none"`
}

// ReportedAs returns the kind of the object.
func (Description) ReportedAs() string { return "context" }

// Describe describes a context among all.
func Describe(c Context, all Contexts) Description {
	return Description{
		c.Name, c.Name == all.Current, orNull(c.Endpoint), orNull(c.Directory), orNull(c.Database),
		orNull(c.Key.String()), orNull(c.CA),
	}
}

// orNull returns nil for an empty text.
func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// WriteText writes a description for people.
func (d Description) WriteText(w io.Writer) error {
	name := terminal.OneLine(d.Name)
	if d.Current {
		name += " (current)"
	}
	var text strings.Builder
	text.WriteString("context " + name + "\n")
	for _, f := range []struct {
		name  string
		value *string
	}{
		{"endpoint", d.Endpoint},
		{"directory", d.Directory},
		{"database", d.Database},
		{"key", d.Key},
		{"certificate", d.CA},
	} {
		if f.value != nil {
			fmt.Fprintf(&text, "  %-12s %s\n", f.name, terminal.OneLine(*f.value))
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}
