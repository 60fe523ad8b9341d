package unload

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/changeline"
)

// Remains records which parts of a damaged store could be read, and which could not.
type Remains struct {
	*docstore.Salvaged          // limited to the wanted container, and to files that may contain its documents
	wanted             string   // the container; empty means all
	there              []string // the names of all containers
	written            int      // number of documents
}

// Salvage writes the remaining documents of a container in the directory of a damaged store. If container is empty,
// Salvage writes those of all containers, each in an object that names its container. Salvage ignores Range.
func Salvage(ctx context.Context, dir, container string, to io.Writer, o Options) (left *Remains, err error) {
	w := changeline.NewWriter(to)
	r := &Remains{wanted: container}
	defer func() { err = cmp.Or(err, w.Flush()) }()
	r.Salvaged, err = docstore.Salvage(ctx, dir, func(of string, item docstore.Item) error {
		// All remaining documents are read, whichever container is wanted. The others are dropped here.
		if container != "" && container != of || o.Key != "" && o.Key != item.Key {
			return nil
		}
		r.written++
		if container != "" {
			of = ""
		}
		return o.writeDocument(w, of, item.ID, item.Key, item.Body)
	})
	if err != nil {
		return nil, err
	}
	r.dropUnwanted()
	return r, nil
}

// dropUnwanted removes facts about containers other than the wanted container.
func (r *Remains) dropUnwanted() {
	for _, c := range r.Containers {
		r.there = append(r.there, c.Name)
	}
	if r.wanted != "" {
		r.Containers = slices.DeleteFunc(r.Containers, func(c docstore.SalvagedContainer) bool {
			return c.Name != r.wanted
		})
		r.Lost = slices.DeleteFunc(r.Lost, func(l docstore.Loss) bool {
			return l.Container != "" && l.Container != r.wanted
		})
		r.Missing = slices.DeleteFunc(r.Missing, func(m docstore.MissingItem) bool { return m.Container != r.wanted })
		r.Doubtful = slices.DeleteFunc(r.Doubtful, func(d docstore.DoubtfulItem) bool {
			return d.Container != r.wanted
		})
	}
}

// within returns an object with a document and its container.
func within(container string, body []byte) ([]byte, error) {
	return json.Marshal(struct {
		Container string          `json:"container"`
		Document  json.RawMessage `json:"document"`
	}{container, body})
}

// WriteLosses lists all known losses, and counts the rest.
func (r *Remains) WriteLosses(to io.Writer) error {
	var text strings.Builder
	for _, l := range r.Lost {
		if l.File == "" && l.Container != "" {
			l.File = "container " + l.Container
		}
		fmt.Fprintf(&text, "lost: %s", l.File)
		if l.To != "" {
			fmt.Fprintf(&text, ", from %s to before %s", l.From, l.To)
		}
		fmt.Fprintf(&text, ": %s\n", l.Reason)
	}
	for _, m := range r.Missing {
		fmt.Fprintf(&text, "missing: %s: item %q of partition %s as of LSN %d", m.Container, m.ID, m.Key, m.LSN)
		if m.Older != 0 {
			fmt.Fprintf(&text, "; its version of LSN %d is written", m.Older)
		}
		text.WriteByte('\n')
	}
	doubtful := map[string]int{}
	for _, d := range r.Doubtful {
		doubtful[d.Container]++
		why := "later writes of it may be lost"
		if d.File != "" {
			why = fmt.Sprintf("it comes from %s and may be the item of another store", d.File)
		}
		fmt.Fprintf(&text, "doubtful: %s: item %q of partition %s is written as of LSN %d; %s\n", d.Container, d.ID,
			d.Key,
			d.LSN, why)
	}
	for _, c := range r.Containers {
		for _, l := range c.Lost {
			if l.To == 0 {
				fmt.Fprintf(&text, "missing: %s: all or some of the LSNs from %d on, if there were any\n", c.Name,
					l.From)
			} else {
				fmt.Fprintf(&text, "missing: %s: all or some of the LSNs %d to %d; what these wrote is not known\n",
					c.Name, l.From, l.To)
			}
		}
	}
	for _, c := range r.Containers {
		fmt.Fprintf(&text, "container %s: %d documents", c.Name, c.Documents)
		if c.Counted >= 0 {
			fmt.Fprintf(&text, " of %d", c.Counted)
		}
		if n := doubtful[c.Name]; n > 0 {
			fmt.Fprintf(&text, ", %d of them doubtful", n)
		}
		text.WriteByte('\n')
	}
	_, err := io.WriteString(to, text.String())
	return err
}

// nameIsLost matches the substitute for a lost name of a container, as in [docstore.Salvaged].
var nameIsLost = regexp.MustCompile(`^container [0-9]+$`)

// Err returns an error if the store has lost anything, or lacks the wanted container.
func (r *Remains) Err() error {
	switch {
	case r.wanted != "" && !slices.Contains(r.there, r.wanted):
		err := fmt.Errorf("--container is %s: %w: want one of %s", r.wanted, place.ErrNoContainer,
			strings.Join(r.there, ", "))
		// The wanted container may exist under its number only.
		if lost := slices.IndexFunc(r.there, nameIsLost.MatchString); lost >= 0 {
			err = fmt.Errorf("%w, as in --container '%s', which stands for one whose name is lost", err, r.there[lost])
		}
		return err
	case slices.ContainsFunc(r.Doubtful, func(d docstore.DoubtfulItem) bool { return d.File != "" }):
		return fmt.Errorf("%d documents are written, some of them may be old or of another store, and others may be "+
			"missing: what was found is listed above", r.written)
	case len(r.Lost)+len(r.Missing)+len(r.Doubtful) > 0:
		return fmt.Errorf("%d documents are written, some of them may be old, and others may be missing: what was "+
			"lost is listed above", r.written)
	}
	return nil
}
