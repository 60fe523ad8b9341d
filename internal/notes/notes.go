// Package notes writes and reads what the records of a unit say in their properties: of a lease, what is done and held
// beside its position, and how it was made; of a request, what the owner of a key is asked for.
//
// The position of a lease is where all is done before, so a reader that knows no more than that goes on there and
// skips nothing. [Done] says what is done after it, so that little is repeated after a crash, and what was in the handler
// then. [Held] says which keys are held.
//
// Both say the position that they were written with. Where another processor, which does not know them, has moved
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
)

// The bounds of a lease.
const (
	MaxOpen = 5000 // LSNs in Done.Open: about 10 KB, because a difference has one digit or two
	MaxHeld = 1000 // keys in Held.Keys

	maxHeldBytes = 256 << 10 // of a Held in its record
)

// ErrMoved: the position or the partition of a lease is another than that of its note.
var ErrMoved = errors.New("moved since")

// Done is what is done after the position of a lease.
type Done struct {
	At        string   `json:"at"`                // the position's token
	Partition string   `json:"partition"`         // as Name gives it
	Through   int64    `json:"through,omitempty"` // every change up to this LSN is done,
	Open      []int64  `json:"open,omitempty"`    // but for these, in their order; written as differences
	Suspect   *Suspect `json:"suspect,omitempty"` // nil when nothing in the handler has failed before
}

// Suspect is what is in the handler and has failed before. When the owner of the lease ends without a word, this may be
// why.
type Suspect struct {
	LSN      int64  `json:"lsn"`
	Letter   string `json:"letter"` // ID that the letter of the first change has
	To       int64  `json:"to"`     // LSN of the last change
	Changes  int    `json:"changes"`
	Attempts int    `json:"attempts"`
	Alone    bool   `json:"alone"` // nothing else was in the handler
}

// String is the text of the property, empty when the position says it all.
func (d Done) String() string {
	if len(d.Open) == 0 {
		d.Through = 0
	}
	if d.Through == 0 && d.Suspect == nil {
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

// Fits reports whether a lease has room for so many keys, and for so long ones.
func (h Held) Fits() bool { return len(h.Keys) <= MaxHeld && len(text(h.String())) <= maxHeldBytes }

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

// ReadDone reads the text of a property, for a lease with a position and a range in the first of the partitions that has
// all of it.
func ReadDone(text, position, from, to string, partitions []Partition) (d Done, err error) {
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
	if d.At != position || !counts(d.Partition, from, to, partitions) {
		return Done{}, ErrMoved
	}
	return d, nil
}

// ReadHeld reads the text of a property, as ReadDone does. In another partition than it was written
// in, the keys are held all the same, and since when is unknown.
func ReadHeld(text, position, from, to string, partitions []Partition) (h Held, err error) {
	if text == "" {
		return h, nil
	}
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return Held{}, err
	}
	if h.At != position {
		return Held{}, ErrMoved
	}
	if len(h.Since) != len(h.Keys) || !counts(h.Partition, from, to, partitions) {
		h.Since = make([]int64, len(h.Keys))
	}
	return h, nil
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

// counts reports whether LSNs of a named partition count in the one that has a range now: if it is the same, or a child
// that a split has made of it.
func counts(name, from, to string, partitions []Partition) bool {
	if name == Name(from, to, partitions) {
		return name != Unknown
	}
	id, keys, _ := strings.Cut(name, " ")
	least, most, ok := strings.Cut(keys, "-")
	return ok && slices.ContainsFunc(partitions, func(p Partition) bool {
		return p.Min <= from && to <= p.Max && least <= p.Min && p.Max <= most && len(p.Parents) > 0 && p.Parents[len(p.Parents)-1] == id
	})
}
