package admin

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/sentence"
	"github.com/millrace/changefeed/internal/variants"
)

// Presence is how an instance is, as a word for programs.
type Presence string

// The values of a Presence.
const (
	Running Presence = "running"
	Ended   Presence = "stopped"
	Gone    Presence = "gone" // no sign of life for too long, without a stop
)

// Instance is an instance of the unit, as in its presence record, whose Owner is the name of the instance.
type Instance struct {
	feed.Record

	Presence Presence
	Silent   time.Duration // since the last write of the record
	Leases   int           // how many leases the instance owns
	Runs     *feed.Variant // version, handler and options; nil if unknown

	Weight       int     // Options.Weight, by default 1
	SharesByLoad bool    // Options.ShareByLoad; effective if all running instances set it: see [Listing.SharesByLoad]
	Load         int64   // of the instance's leases, as far as known: see [Lease.LoadOf]
	LoadKnown    bool    // Load counts all leases of the instance
	Share        float64 // part of the leases or, if all instances share by load, of their load; 0 after the end
	Due          float64 // the part by the weight of the instance alone; 0 after the end

	Notes []string // remarks for the operator
}

func (i *Instance) note(format string, args ...any) {
	i.Notes = append(i.Notes, fmt.Sprintf(format, args...))
}

// describeInstance describes an instance, as far as that needs no other record.
func describeInstance(record feed.Record, now time.Time) Instance {
	i := Instance{
		Record: record, Presence: Running, Silent: max(0, now.Sub(record.Updated)), Weight: weightOf(record),
		SharesByLoad: record.Properties[notes.ByLoadProperty] != "",
	}
	if record.Err != nil {
		i.note("%v", record.Err)
	}
	if v, known := variants.Read(record); known {
		i.Runs = &v
	}
	quiet := now.Sub(record.Updated)
	switch {
	case record.State == feed.StateRetired:
		i.Presence = Ended
		i.note("stopped %v ago", sentence.Exact(quiet.Round(time.Second)))
	case quiet > i.allowed():
		i.Presence = Gone
		i.note("gone: it has shown no life for %v", sentence.Exact(quiet.Round(time.Second)))
	}
	return i
}

// Skew returns by how much the clock of the store is ahead of that of the instance. Skew includes the time that the
// record was on the way. If the instance's clock is not in the record, known is false.
func (i *Instance) Skew() (skew time.Duration, known bool) {
	if i.Timestamp.IsZero() || i.Updated.IsZero() {
		return 0, false
	}
	return i.Updated.Sub(i.Timestamp), true
}

// owns reports whether the instance owns a lease. Leases of earlier lives and replaced leases do not count.
func (i *Instance) owns(l *Lease) bool { return i.isOwner(l) && l.Record.State != feed.StateRetired }

// isOwner reports whether a lease names this life of the instance as its owner.
func (i *Instance) isOwner(l *Lease) bool { return l.Owner == i.Owner && l.Epoch == i.Epoch }

// hasLeft reports whether the owner of a lease has shown its end, or no life for too long, and has not written the
// lease since.
func (l *Listing) hasLeft(lease *Lease) bool {
	return slices.ContainsFunc(l.Instances, func(i Instance) bool {
		since := i.Updated
		if i.Presence == Gone {
			since = l.At.Add(-i.allowed())
		}
		return i.Presence != Running && i.isOwner(lease) && !lease.Updated.After(since)
	})
}

// allowed is how long the instance may show no life.
func (i *Instance) allowed() time.Duration { return cmp.Or(i.Expiration, defaultSilence) }

// Variants returns the variants of the running instances.
func (l *Listing) Variants() feed.Variants {
	var live []feed.Record
	for _, i := range l.Instances {
		if i.Presence == Running {
			live = append(live, i.Record)
		}
	}
	return variants.Among(live)
}

// Idle returns the names of the running instances without a lease, and the number of all running instances. If a lease
// is free, nobody is idle: instances are about to take the lease, or the lease is paused. Nobody takes a document that
// is no lease.
func (l *Listing) Idle() (idle []string, running int) {
	for _, lease := range l.Leases {
		if lease.Free() && lease.Record.State != feed.StateRetired && lease.State != StateBroken {
			return nil, 0
		}
	}
	for _, i := range l.Instances {
		if i.Presence != Running {
			continue
		}
		running++
		if i.Leases == 0 {
			idle = append(idle, i.Owner)
		}
	}
	slices.Sort(idle)
	return idle, running
}

// countLeases counts the leases of each instance.
func (l *Listing) countLeases() {
	for i := range l.Instances {
		host := &l.Instances[i]
		host.LoadKnown = true
		for j := range l.Leases {
			if host.owns(&l.Leases[j]) {
				load, known := l.Leases[j].LoadOf()
				host.Leases, host.Load, host.LoadKnown = host.Leases+1, host.Load+load, host.LoadKnown && known
			}
		}
	}
}

// addSlow adds the batches that have been in the handler for too long to their leases, as their owners show them.
func (l *Listing) addSlow() {
	for i := range l.Instances {
		host := &l.Instances[i]
		if host.Presence != Running {
			continue
		}
		for _, s := range variants.ReadSlow(host.Record) {
			for j := range l.Leases {
				if lease := &l.Leases[j]; lease.Token == s.Lease && host.owns(lease) {
					lease.addSlow(s, host.Silent, l.At)
				}
			}
		}
	}
}

// addSlow adds a slow batch; silent is the time since the owner has shown the batch.
func (l *Lease) addSlow(s variants.Slow, silent time.Duration, now time.Time) {
	inHand := time.Duration(s.For)*time.Millisecond + silent
	usual := time.Duration(s.Usual) * time.Millisecond
	l.Slow = append(l.Slow, feed.SlowBatch{Lease: l.Token, Changes: s.Changes, Since: now.Add(-inHand), Usual: usual})
	usually := ""
	if usual > 0 {
		usually = fmt.Sprintf(" (usually %v)", usual)
	}
	l.note("a batch has been in the handler for %s%s: %s", sentence.Duration(inHand), usually,
		sentence.Count(s.Changes, "change"))
}

// noteDifferences notes the variant at each running instance, if the variants differ.
func (l *Listing) noteDifferences() {
	all := l.Variants()
	if !all.Differ() {
		return
	}
	for i := range l.Instances {
		if host := &l.Instances[i]; host.Presence == Running && host.Runs != nil {
			host.note("instances differ: %v", all)
		}
	}
}
