package dispatch

import (
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/delivery"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// The engine's rules about options, pages and changes: their numbers and keys. The changes themselves stay here.

// rulesOf are the options as the engine needs them.
func rulesOf(in *instance.Instance, held *instance.Held) delivery.Rules {
	o := in.Options
	rng := in.Random("delivery " + held.Lease.Token)
	_, hasBox := o.DeadLetters.(feed.LetterBox)
	return delivery.Rules{
		Concurrency: o.Concurrency, InOrder: o.Concurrency == 1 && !o.HasPolicy(), MaxItems: o.MaxItems,
		MaxBytes: o.MaxBytes,
		Wait:     o.MaxWait, MaxAttempts: o.MaxAttempts, MaxAge: o.MaxAge, CanPark: o.DeadLetters != nil,
		HoldKeys: o.HoldKeys,
		HasBox:   hasBox, ByHand: o.Manual,
		CanReadKeys: in.CanReadKeys(), MaxAside: o.MaxSetAside, MaxAsideBytes: notes.MaxAsideBytes,
		AsideBytes: notes.AsideBytes, KeyPages: keyPages,
		MaxHeld: notes.MaxHeld, MaxHeldBytes: notes.MaxHeldBytes, HeldBytes: notes.HeldBytes,
		Backoff: func(failures int) time.Duration { return in.Backoff(rng, failures) },
		After: func(end delivery.Position, lsn int64) (delivery.Position, bool) {
			return positionAfter(in.Source, end, lsn)
		},
		Name: func(c *delivery.Change) string {
			return records.LetterID(o.Mode, c.LSN, c.Place, changeOf(c).ID)
		},
		ID: func(c *delivery.Change) string { return changeOf(c).ID },
	}
}

// keyPages is how many keys of a lease are read again at once.
const keyPages = 4

// WarnOfKeys warns at the start if no key can be set aside although that may become necessary.
func WarnOfKeys(in *instance.Instance) {
	if in.CanReadKeys() || in.Options.Concurrency == 1 && !in.Options.HasPolicy() {
		return
	}
	instance.CallHook(in, in.Hooks.Error, &feed.Error{Origin: feed.OriginSource, Err: fmt.Errorf(
		"%w: a %T is no Locator: the changes behind one that fails wait in memory, and if they fill BufferItems (%d) "+
			"or BufferBytes (%d), their lease waits",
		feed.ErrNoKeyReads, in.Source, in.Options.BufferItems, in.Options.BufferBytes)})
}

// positionAfter is the position after an LSN, if the source is a [feed.Sequencer] and reading has come so far.
func positionAfter(source feed.Source, end delivery.Position, lsn int64) (delivery.Position, bool) {
	read := end.(feed.Position)
	if last, ok := records.TokenLSN(source, read.Token); !ok || last < lsn {
		return nil, false
	}
	return records.PositionAfter(source, lsn, read)
}
