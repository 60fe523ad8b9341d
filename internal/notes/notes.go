// Package notes writes and reads what the records of a unit say in their properties: of a lease, what is done and held
// beside its position, and how it was made; of a request, what the owner of a key is asked for.
//
// The position of a lease is where all is done before, so a reader that knows no more than that goes on there and
// skips nothing. [Done] says what is done after it, so that little is repeated after a crash, and what was in the handler
// then. [Held] says which keys are held, and [Aside] which are set aside: their changes are read again by key.
//
// All say the position that they were written with. Where another processor, which does not know them, has moved
// the position since, they are wrong. What is done is known by its LSN, and LSNs count only within a partition and
// its children: so it is wrong too when the range is in another partition since. Then reading them gives [ErrMoved].
package notes

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The properties of a lease.
const (
	DoneProperty = "changefeed.done" // a [Done]
	HeldProperty = "changefeed.held" // a [Held]

	AsideProperty  = "changefeed.aside"  // an [Aside]
	OutageProperty = "changefeed.outage" // an [Outage] that lasts
)

// The bounds of a lease.
const (
	MaxOpen = 5000 // LSNs in Done.Open: about 10 KB, because a difference has one digit or two
	MaxHeld = 1000 // keys in Held.Keys

	MaxAside = 1000 // keys in Aside.Keys

	MaxHeldBytes  = 256 << 10 // of their names in the record
	MaxAsideBytes = 256 << 10 // of the keys that are set aside, with their positions
)

// ErrMoved: the position or the partition of a lease is another than that of its note.
var ErrMoved = errors.New("moved since")

// Done is what is done after the position of a lease.
type Done struct {
	At        string   `json:"at"`                // the position's token
	Partition string   `json:"partition"`         // as Name gives it
	Through   int64    `json:"through,omitempty"` // every change up to this LSN is done,
	Open      []int64  `json:"open,omitempty"`    // but for these, in their order; written as differences
	Tried     []Run    `json:"tried,omitempty"`   // the changes that the handler has received and that are not done
	Suspect   *Suspect `json:"suspect,omitempty"` // nil when nothing in the handler has failed before
}

// Suspect is what is in the handler and has failed before. When the owner of the lease ends without a word, this may be
// why.
type Suspect struct {
	Letter  string `json:"letter"` // ID that the letter of the first change has
	Changes int    `json:"changes"`
	Alone   bool   `json:"alone"` // nothing else was in the handler
	Tried   []Run  `json:"tried"` // its changes in their order; the call under way counts as a failure
}

// First is what is known of the first change.
func (s *Suspect) First() Run { return s.Tried[0] }

// To is the LSN of the last change.
func (s *Suspect) To() int64 { return s.Tried[len(s.Tried)-1].To }

// String is the text of the property, empty when the position says it all.
func (d Done) String() string {
	if d.Through == 0 && d.Suspect == nil && len(d.Tried) == 0 {
		return ""
	}
	differences := make([]int64, len(d.Open))
	last := int64(0)
	for i, lsn := range d.Open {
		differences[i], last = lsn-last, lsn
	}
	d.Open = differences
	return text(d)
}

// Held is which keys of a lease are held.
type Held struct {
	At        string   `json:"at"`                  // the position's token
	Partition string   `json:"partition,omitempty"` // as Name gives it
	Keys      []string `json:"keys"`
	Since     []int64  `json:"since,omitempty"` // LSN of the change that each key is held for; 0 is unknown
}

// HeldBytes is the room that a held key takes in the record.
func HeldBytes(key string) int { return len(text(text(key))) + len(`,9223372036854775807`) }

// AsideBytes is the room that a key which is set aside takes in the record, beside the runs of its changes.
func AsideBytes(key string) int { return len(text(text(key))) + 300 }

// String is the text of the property, empty without a key.
func (h Held) String() string {
	if len(h.Keys) == 0 {
		return ""
	}
	return text(h)
}

func text(note any) string {
	raw, _ := json.Marshal(note) // of texts and numbers
	return string(raw)
}

// Partition is a partition of a container, with its range of keys.
type Partition struct {
	ID, Min, Max string
	Parents      []string // ids of the partitions that it came from, the last one last
}

// Place is where a lease stands whose notes are read.
type Place struct {
	Position   string // its token
	LSN        int64  // that the token is after; 0 is unknown
	Min, Max   string // its range
	Partitions []Partition
}

// counts reports whether LSNs of a named partition count in the one that has the range now.
func (in Place) counts(partition string) bool {
	return counts(partition, in.Min, in.Max, in.Partitions)
}

// ReadDone reads the text of a property.
func ReadDone(text string, in Place) (d Done, err error) {
	if text == "" {
		return d, nil
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return Done{}, err
	}
	last := int64(0)
	for i, difference := range d.Open {
		if difference <= 0 {
			return Done{}, fmt.Errorf("open %d is %d: want a difference above 0", i, difference)
		}
		last += difference
		d.Open[i] = last
	}
	if s := d.Suspect; s != nil && (len(s.Tried) == 0 || s.Changes < 1) {
		return Done{}, fmt.Errorf("suspect has %d runs in tried and %d changes: want 1 and more", len(s.Tried), s.Changes)
	}
	if d.At != in.Position || !in.counts(d.Partition) {
		return Done{}, ErrMoved
	}
	return d, nil
}

// ReadHeld reads the text of a property, as ReadDone does. In another partition than it was written
// in, the keys are held all the same, and since when is unknown.
func ReadHeld(text string, in Place) (h Held, err error) {
	if text == "" {
		return h, nil
	}
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return Held{}, err
	}
	if h.At != in.Position {
		return Held{}, ErrMoved
	}
	if len(h.Since) != len(h.Keys) || !in.counts(h.Partition) {
		h.Since = make([]int64, len(h.Keys))
	}
	return h, nil
}

// Aside is which keys of a lease are set aside.
type Aside struct {
	At        string     `json:"at"`        // the position's token
	Partition string     `json:"partition"` // as Name gives it
	Keys      []AsideKey `json:"keys,omitempty"`
	Recalls   []Recall   `json:"recalls,omitempty"`
}

// String is the text of the property, empty if there is nothing to say.
func (a Aside) String() string {
	if len(a.Keys) == 0 && len(a.Recalls) == 0 {
		return ""
	}
	return text(a)
}

// ReadAside reads the text of a property, as ReadDone does. If another processor has moved the position, it has handled
// the changes after the position, but nobody those that the position had passed: so the keys with such changes stay, and
// their changes come again from the first of these. In another partition LSNs count for nothing: all changes of the keys come
// that can be read, and how often they were tried is not known. What the position covers is what its token says then.
func ReadAside(text string, in Place) (a Aside, err error) {
	if text == "" {
		return a, nil
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return Aside{}, err
	}
	if a.At != in.Position {
		err = ErrMoved
		a.Keys = slices.DeleteFunc(a.Keys, func(k AsideKey) bool { return !k.Passed })
		a.Recalls = nil
	}
	isElsewhere := !in.counts(a.Partition)
	for i := range a.Keys {
		k := &a.Keys[i]
		if isElsewhere {
			k.LSN, k.Last, k.Tried = 0, 0, nil
		}
		if isElsewhere || err != nil {
			k.Covered = in.LSN
		}
	}
	return a, err
}

// Unknown is the name of a range that no partition has as a whole.
const Unknown = "unknown"

// Name names the partition that has a range: its id and its keys.
func Name(from, to string, partitions []Partition) string {
	for _, p := range partitions {
		if p.Min <= from && to <= p.Max {
			return p.ID + " " + p.Min + "-" + p.Max
		}
	}
	return Unknown
}

// counts reports whether LSNs of a named partition count in the one that has a range now: if it is the same, or one that
// splits have made of it.
func counts(name, from, to string, partitions []Partition) bool {
	if name == Name(from, to, partitions) {
		return name != Unknown
	}
	id, keys, _ := strings.Cut(name, " ")
	least, most, ok := strings.Cut(keys, "-")
	return ok && slices.ContainsFunc(partitions, func(p Partition) bool {
		return p.Min <= from && to <= p.Max && least <= p.Min && p.Max <= most && p.comesBySplits(id, partitions)
	})
}

// comesBySplits reports whether a partition has come from another one by splits alone. A merge counts LSNs anew, and the
// list of parents does not say which of them were merged. But each split on the way leaves partitions that come from the one
// that was split, and not from the part that leads here; and a merge leaves none for the partitions that it has merged.
func (p Partition) comesBySplits(id string, partitions []Partition) bool {
	i := slices.Index(p.Parents, id)
	if i < 0 {
		return false
	}
	if i == len(p.Parents)-1 {
		return true
	}
	way := append(slices.Clone(p.Parents[i:]), p.ID)
	for k, part := range way[1:] {
		if !slices.ContainsFunc(partitions, func(o Partition) bool {
			return slices.Contains(o.Parents, way[k]) && o.ID != part && !slices.Contains(o.Parents, part)
		}) {
			return false
		}
	}
	return true
}
