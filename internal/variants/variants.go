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

// grain is the precision of the clock of a store that keeps whole seconds.
const grain = time.Second

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

// begunBy returns when the instance of a record began, by the clock of the store: the record says how long before its
// last write that was.
func (s shown) begunBy(record feed.Record) time.Time {
	return record.Updated.Add(-record.Timestamp.Sub(time.UnixMilli(s.Since)))
}

// Among returns the variants in the presence records of live instances. If an instance was killed and began again, the
// record of its earlier life still looks live for a while. So of several records with one name, the latest counts, and
// each one written after the latest life began: then two processes have one name.
func Among(live []feed.Record) feed.Variants {
	begun := map[string]time.Time{} // the latest life of each name, by the clock of the store
	latest := map[string]int64{}
	for _, record := range live {
		if s, known := read(record); known && s.Since >= latest[record.Owner] {
			latest[record.Owner], begun[record.Owner] = s.Since, s.begunBy(record)
		}
	}
	groups := map[shown][]string{}
	for _, record := range live {
		s, known := read(record)
		isAlive := s.Since == latest[record.Owner] || record.Updated.After(begun[record.Owner].Add(grain))
		if s.Since = 0; known && isAlive && !slices.Contains(groups[s], record.Owner) {
			groups[s] = append(groups[s], record.Owner)
		}
	}
	var all feed.Variants
	for s, instances := range groups {
		slices.Sort(instances)
		all = append(all, feed.Variant{
			Handler: s.Handler, Program: s.Program, Options: s.Options, Instances: instances,
		})
	}
	slices.SortFunc(all, func(a, b feed.Variant) int { // several groups can have the same instances: see above
		return cmp.Or(
			len(b.Instances)-len(a.Instances), slices.Compare(a.Instances, b.Instances),
			strings.Compare(a.Handler, b.Handler), strings.Compare(a.Program, b.Program),
			strings.Compare(a.Options, b.Options),
		)
	})
	return all
}
