// Package notes writes and reads the properties of a unit's records. Properties of a lease say which changes are done
// and which keys are held beside the position, and how the lease was made. Properties of a request say what the caller
// asks of the owner of a key.
//
// All changes before the position of a lease are done. So a reader with only the position goes on there and skips
// nothing. [Done] says which changes after the position are done, so that little is repeated after a crash, and which
// changes were in the handler then. [Held] names the held keys. [Aside] names the keys set aside: their changes are
// read again by key.
//
// All these notes contain the position with which they were written. If another processor, which does not know the
// notes, has moved the position since, the notes are wrong. Done changes are identified by their LSNs, and LSNs are
// valid only within a partition and its children. So the notes are also wrong if the range is in another partition
// since. In these cases the readers return [ErrMoved].
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

	AsideProperty = "changefeed.aside" // an [Aside]
	// a [Done] that says only which changes have failed, for operators: an owner without notes goes on without it
	FailingProperty = "changefeed.failing"
	OutageProperty  = "changefeed.outage" // an [Outage] that has not ended
)

// AboutChanges returns the properties of a lease about changes after a position.
func AboutChanges() []string {
	return []string{
		DoneProperty,
		FailingProperty,
		HeldProperty,
		AsideProperty,
		OutageProperty,
		SkipsProperty,
	}
}

// The limits of a lease.
const (
	MaxOpen = 5000 // LSNs in Done.Open: about 10 KB, because a difference has one or two digits
	MaxHeld = 1000 // keys in Held.Keys

	MaxAside = 1000 // keys in Aside.Keys

	MaxHeldBytes  = 256 << 10 // size of their names in the record
	MaxAsideBytes = 256 << 10 // size of the keys that are set aside, with their positions
)

// noteVersion is the version of the notes in JSON that this package writes. It is not written: a note without a version
// has the first one. A later version of changefeed that gives a member another meaning writes its number.
const noteVersion = 1

// Form is the part of each note in JSON that says its version.
type Form struct {
	Version int `json:"version,omitempty"` // 0 is the first
}

// check refuses a note of a later version, because this version would misread it.
func (f Form) check() error {
	if f.Version > noteVersion {
		return fmt.Errorf("version is %d: want %d at most, or the newer version of changefeed that wrote the note", f.Version,
			noteVersion)
	}
	return nil
}

// decode reads a note in JSON, of which form is the part with the version.
func decode(text string, note any, form *Form) error {
	if err := json.Unmarshal([]byte(text), note); err != nil {
		return err
	}
	return form.check()
}

// ErrMoved: a lease and its note differ in the position or the partition.
var ErrMoved = errors.New("moved since")

// Done says which changes after the position of a lease are done.
type Done struct {
	Form

	At        string   `json:"at"`                // the position's token
	Partition string   `json:"partition"`         // text of Name
	Through   int64    `json:"through,omitempty"` // every change up to this LSN is done,
	Open      []int64  `json:"open,omitempty"`    // except for these, in their order; written as differences
	Tried     []Run    `json:"tried,omitempty"`   // the unfinished changes that the handler has received
	Suspect   *Suspect `json:"suspect,omitempty"` // nil if the handler has no change that has failed before
}

// Suspect describes the changes in the handler which have failed before. If the owner of the lease ends unexpectedly,
// they may be the cause.
type Suspect struct {
	Letter  string `json:"letter"` // ID of the first change's letter
	Changes int    `json:"changes"`
	Alone   bool   `json:"alone"` // the handler had no other changes
	Tried   []Run  `json:"tried"` // the changes in their order; the present call counts as a failure
}

// First returns the run of the first change.
func (s *Suspect) First() Run { return s.Tried[0] }

// To returns the LSN of the last change.
func (s *Suspect) To() int64 { return s.Tried[len(s.Tried)-1].To }

// String returns the text of the property, empty if the position suffices.
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

// Held says which keys of a lease are held.
type Held struct {
	Form

	At        string   `json:"at"`                  // the position's token
	Partition string   `json:"partition,omitempty"` // text of Name
	Keys      []string `json:"keys"`
	Since     []int64  `json:"since,omitempty"` // LSN of the change for which each key is held; 0 is unknown
}

// HeldBytes returns the size of a held key in the record.
func HeldBytes(key string) int { return len(text(text(key))) + len(`,9223372036854775807`) }

// AsideBytes returns the size of a set-aside key in the record, without the runs of the key's changes.
func AsideBytes(key string) int { return len(text(text(key))) + 300 }

// String returns the text of the property, empty if there are no keys.
func (h Held) String() string {
	if len(h.Keys) == 0 {
		return ""
	}
	return text(h)
}

func text(note any) string {
	raw, _ := json.Marshal(note) // texts and numbers cannot fail
	return string(raw)
}

// Partition is a partition of a container, with its range of keys.
type Partition struct {
	ID, Min, Max string
	Parents      []string // ids of the original partitions, the last one last
}

// Place is the present position, range and partitions of a lease whose notes are read.
type Place struct {
	Position   string // token of the position
	LSN        int64  // LSN of the token; 0 is unknown
	Min, Max   string // range of the lease
	Partitions []Partition
}

// counts reports whether LSNs of a named partition are valid in the present partition of the range.
func (in Place) counts(partition string) bool {
	return counts(partition, in.Min, in.Max, in.Partitions)
}

// ReadDone reads the text of a property.
func ReadDone(text string, in Place) (d Done, err error) {
	if text == "" {
		return d, nil
	}
	if err := decode(text, &d, &d.Form); err != nil {
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
		return Done{}, fmt.Errorf("suspect has %d runs in tried and %d changes: want 1 and more", len(s.Tried),
			s.Changes)
	}
	if d.At != in.Position || !in.counts(d.Partition) {
		return Done{}, ErrMoved
	}
	return d, nil
}

// ReadHeld reads the text of a property, as ReadDone does. If the partition differs from that of the text, the keys are
// still held, and since when is unknown.
func ReadHeld(text string, in Place) (h Held, err error) {
	if text == "" {
		return h, nil
	}
	if err := decode(text, &h, &h.Form); err != nil {
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

// Aside says which keys of a lease are set aside.
type Aside struct {
	Form

	At        string     `json:"at"`        // the position's token
	Partition string     `json:"partition"` // text of Name
	Keys      []AsideKey `json:"keys,omitempty"`
	Recalls   []Recall   `json:"recalls,omitempty"`
}

// String returns the text of the property, empty if there is nothing to store.
func (a Aside) String() string {
	if len(a.Keys) == 0 && len(a.Recalls) == 0 {
		return ""
	}
	return text(a)
}

// ReadAside reads the text of a property, as ReadDone does.
//
// If another processor has moved the position, it has handled the changes after the position, but no processor has
// handled the changes left undone before the position. So the keys with such changes stay, and their changes are read
// again from the first of these. If the partition differs, LSNs are invalid: all readable changes of the keys are read
// again, and how often they were tried is unknown. In both cases the token of the position says which changes the
// position covers.
func ReadAside(text string, in Place) (a Aside, err error) {
	if text == "" {
		return a, nil
	}
	if err := decode(text, &a, &a.Form); err != nil {
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

// Unknown is the name of a range not contained in a single partition.
const Unknown = "unknown"

// Name returns the name of the partition with a range: id and keys.
func Name(from, to string, partitions []Partition) string {
	for _, p := range partitions {
		if p.Min <= from && to <= p.Max {
			return p.ID + " " + p.Min + "-" + p.Max
		}
	}
	return Unknown
}

// counts reports whether LSNs of a named partition are valid in the present partition of a range: if the partition is
// the same, or a result of splits.
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

// comesBySplits reports whether a partition has come from another by splits alone. A merge starts new LSNs, and the
// list of parents does not say which of them were merged. But each split on the way leaves partitions which come from
// the split partition and not from the part leading here; and a merge leaves no such partition for the merged
// partitions.
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
