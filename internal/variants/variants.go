// Package variants keeps what an instance runs, and which batches its handler keeps for too long, in the presence
// record of the instance, and compares the instances of a unit. Instances with one name share a unit, whatever they
// run. So if a name is used twice by mistake, or an old instance is left after an upgrade, each change goes to one of
// two handlers, by chance. Only a comparison shows that.
package variants

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// shown is the text of [notes.VariantProperty].
type shown struct {
	Handler string `json:"handler,omitempty"`
	Program string `json:"program,omitempty"`
	Options string `json:"options,omitempty"`
	Since   int64  `json:"since"` // when the instance began, by its own clock, in milliseconds since 1970
}

// Show writes a variant into the presence record of an instance that has begun at a time.
func Show(record *feed.Record, v feed.Variant, since time.Time) {
	text, _ := json.Marshal(shown{v.Handler, v.Program, v.Options, since.UnixMilli()}) // always JSON
	record.Properties = notes.Set(record.Properties, notes.VariantProperty, string(text))
}

// Read returns the variant in a presence record. If the record has none, as that of an older version, known is false.
func Read(record feed.Record) (v feed.Variant, known bool) {
	s, known := read(record)
	return feed.Variant{Handler: s.Handler, Program: s.Program, Options: s.Options}, known
}

func read(record feed.Record) (s shown, known bool) {
	text := record.Properties[notes.VariantProperty]
	return s, text != "" && json.Unmarshal([]byte(text), &s) == nil
}

// Among returns the variants in the presence records of live instances. If an instance was killed and began again, the
// record of its earlier life still looks live for a while. So of several records with one name, the latest counts.
func Among(live []feed.Record) feed.Variants {
	latest := map[string]shown{}
	for _, record := range live {
		s, known := read(record)
		if old, twice := latest[record.Owner]; known && (!twice || s.Since > old.Since) {
			latest[record.Owner] = s
		}
	}
	groups := map[shown][]string{}
	for instance, s := range latest {
		s.Since = 0
		groups[s] = append(groups[s], instance)
	}
	var all feed.Variants
	for s, instances := range groups {
		slices.Sort(instances)
		all = append(all, feed.Variant{
			Handler: s.Handler, Program: s.Program, Options: s.Options, Instances: instances,
		})
	}
	slices.SortFunc(all, func(a, b feed.Variant) int {
		return cmp.Or(len(b.Instances)-len(a.Instances), strings.Compare(a.Instances[0], b.Instances[0]))
	})
	return all
}
