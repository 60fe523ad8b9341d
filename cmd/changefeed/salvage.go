package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/changeline"
	"github.com/millrace/changefeed/internal/place"
	"github.com/millrace/changefeed/internal/usage"
)

// Export of a damaged store: export --salvage.

// salvageHelp is the part of export's help about salvage.
const salvageHelp = `

With --salvage the store may be damaged. What can still be read of it is written, and
what cannot is listed on standard error, by file and by document, as one JSON object with
-o json. The directory is not changed. Without --container the documents of all containers
are written, each as {"container":NAME,"document":{…}}. The exit code is 1 when
something may be missing.`

// salvage writes the documents that are left of a container, or of all, in a damaged store.
func (o *exportOptions) salvage(cmd *cobra.Command, args []string) error {
	dir, name, err := o.wreck(cmd, args)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(cmd.OutOrStdout(), outputBuffer)
	written := 0
	found, err := docstore.Salvage(cmd.Context(), dir, func(container string, item docstore.Item) error {
		// Salvage reads all that is left, whichever container is wanted: the rest is
		// dropped here.
		if name != "" && name != container || o.key.Value != "" && o.key.Value != item.Key {
			return nil
		}
		written++
		return o.salvaged(w, container, name == "", item)
	})
	if err != nil {
		return err
	}
	// Documents first, then the list of the losses: on a terminal the list is at the
	// end, where it is read.
	if err := w.Flush(); err != nil {
		return err
	}
	if err := o.lost(cmd.ErrOrStderr(), found); err != nil {
		return err
	}
	return incomplete(found, name, written)
}

// wreck is the directory, and the container if one is named. Only a directory can be
// salvaged: a server does not open a damaged store.
func (o *exportOptions) wreck(cmd *cobra.Command, args []string) (dir, container string, err error) {
	if len(args) == 0 && o.db != "" && o.container == "" {
		return o.db, "", nil
	}
	a, err := o.address(cmd, args)
	switch {
	case errors.Is(err, errNoAddress):
		return "", "", usage.Error{Err: errors.New("--db is missing: want the directory of a store to salvage")}
	case err == nil && a.Dir == "":
		return "", "", usage.Error{Err: fmt.Errorf("%s: want the directory of a store to salvage", a.Quote())}
	}
	return a.Dir, a.Name(), err
}

// salvaged writes a document, with its container if all containers are written.
func (o *exportOptions) salvaged(w *bufio.Writer, container string, named bool, item docstore.Item) (err error) {
	body := []byte(item.Body)
	if !o.system {
		if body, err = changeline.WithoutSystem(body); err != nil {
			return fmt.Errorf("export item %q of partition %s: %w", item.ID, item.Key, err)
		}
	}
	if !named {
		return changeline.WriteDocument(w, body)
	}
	line, err := json.Marshal(struct {
		Container string          `json:"container"`
		Document  json.RawMessage `json:"document"`
	}{container, body})
	if err != nil {
		return err
	}
	return changeline.WriteDocument(w, line)
}

// lost lists all that is missing, and counts the rest.
// The list goes to standard error, which stays apart from the documents when those are
// written into a file.
func (o *exportOptions) lost(to io.Writer, found *docstore.Salvaged) error {
	if o.output.value == "json" {
		return json.NewEncoder(to).Encode(found)
	}
	var text strings.Builder
	for _, l := range found.Lost {
		fmt.Fprintf(&text, "lost: %s", l.File)
		if l.To != "" {
			fmt.Fprintf(&text, ", from %s to before %s", l.From, l.To)
		}
		fmt.Fprintf(&text, ": %s\n", l.Reason)
	}
	for _, m := range found.Missing {
		fmt.Fprintf(&text, "missing: %s: item %q of partition %s as of LSN %d", m.Container, m.ID, m.Key, m.LSN)
		if m.Older != 0 {
			fmt.Fprintf(&text, "; its version of LSN %d is written", m.Older)
		}
		text.WriteByte('\n')
	}
	for _, c := range found.Containers {
		fmt.Fprintf(&text, "container %s: %d documents", c.Name, c.Documents)
		if c.Counted >= 0 {
			fmt.Fprintf(&text, " of %d", c.Counted)
		}
		text.WriteByte('\n')
	}
	_, err := io.WriteString(to, text.String())
	return err
}

// nameIsLost matches the stand-in for a container's name that was lost, as in
// [docstore.Salvaged].
var nameIsLost = regexp.MustCompile(`^container [0-9]+$`)

// incomplete is the error of a store that has lost something, or lacks the container.
func incomplete(found *docstore.Salvaged, name string, written int) error {
	var names []string
	for _, c := range found.Containers {
		names = append(names, c.Name)
		if c.Name == name {
			name = ""
		}
	}
	switch {
	case name != "":
		err := fmt.Errorf("--container is %s: %w: want one of %s", name, place.ErrNoContainer, strings.Join(names, ", "))
		// The wanted container may be there under its number alone.
		if lost := slices.IndexFunc(names, nameIsLost.MatchString); lost >= 0 {
			err = fmt.Errorf("%w, as in --container '%s', which stands for one whose name is lost", err, names[lost])
		}
		return err
	case len(found.Lost)+len(found.Missing) > 0:
		return fmt.Errorf("%d documents are written, others may be missing: what was lost is listed above", written)
	}
	return nil
}
