package records

import (
	"maps"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// CanJoin reports whether a lease can replace two leases, if both stay as they are: the lease begins where both end,
// and has nothing to remember of them. Nothing is skipped and nothing comes again, because each key is at the same LSN
// in its old and in its new lease, and changes before the same time are skipped. Without a source that knows LSNs, it
// is unknown which of two leases ranks higher once the new lease has moved, so no lease is joined.
func (v *View) CanJoin(left, right feed.Record) bool {
	a, counted := TokenLSN(v.source, left.Position.Token)
	b, alsoCounted := TokenLSN(v.source, right.Position.Token)
	return IsJoinable(left) && IsJoinable(right) && left.Range.Max == right.Range.Min && left.Mode == right.Mode &&
		counted && alsoCounted && a == b && v.Since(left.Position).Equal(v.Since(right.Position))
}

// IsApart reports whether a lease cannot be joined now, whatever its worker does, as the lease itself tells. A position
// without an LSN cannot be compared with that of a neighbour, and nobody has come beyond a start that is to come.
func (v *View) IsApart(l feed.Record) bool {
	_, counted := TokenLSN(v.source, l.Position.Token)
	return !counted || !IsJoinable(l) || v.Since(l.Position).After(v.Now())
}

// IsJoinable reports whether a lease has nothing that would be lost if a lease of more keys replaced it.
func IsJoinable(l feed.Record) bool {
	for _, note := range append(notes.AboutChanges(), notes.PausedProperty) {
		if l.Properties[note] != "" {
			return false
		}
	}
	return IsOurs(l) && l.Attempts == 0 && l.Fence.IsZero()
}

// Joint returns the lease that replaces two neighbouring leases, without an owner. The lease ranks above both, and the
// number of its owner is higher than those of all owners of both.
func Joint(left, right feed.Record) feed.Record {
	whole := feed.Range{Min: left.Range.Min, Max: right.Range.Max}
	l := feed.Record{
		Kind: feed.KindLease, Version: 1, Token: whole.String(), Range: whole,
		Position: left.Position, Mode: left.Mode, Properties: maps.Clone(right.Properties),
	}
	maps.Copy(l.Properties, left.Properties)
	for _, own := range []string{
		notes.PartsProperty, notes.JoiningProperty, notes.DueProperty, notes.MakerProperty, notes.GivenProperty,
	} {
		SetProperty(&l, own, "")
	}
	SetGeneration(&l, max(GenerationOf(left), GenerationOf(right))+1)
	SetProperty(&l, notes.TermProperty, notes.PlainNumber(max(TermOf(left), TermOf(right))))
	if last := LastReset(right); last.On > LastReset(left).On {
		SetProperty(&l, notes.ResetProperty, last.String())
	}
	served := left.Properties[notes.ServedProperty]
	for caller := range strings.FieldsSeq(right.Properties[notes.ServedProperty]) {
		served = notes.AddServed(served, caller)
	}
	SetProperty(&l, notes.ServedProperty, served)
	load := ""
	if n := notes.Number(left.Properties, notes.LoadProperty) + notes.Number(right.Properties,
		notes.LoadProperty); n > 0 {
		load = notes.PlainNumber(n)
	}
	SetProperty(&l, notes.LoadProperty, load)
	return l
}

// MarkJoining marks a lease that is about to be joined. Nobody works on the lease from now on, as on each splitting
// lease. There are no parts: the next owner makes the lease live again, unless the lease of both exists.
func MarkJoining(l *feed.Record, into feed.Range, until time.Time) {
	l.State = feed.StateSplitting
	SetProperty(l, notes.PartsProperty, "")
	SetProperty(l, notes.JoiningProperty, notes.Joining{Into: into.String(), Until: until}.String())
}

// JoiningOf returns what a lease says about the lease that it is joined into.
func JoiningOf(l feed.Record) (j notes.Joining, ok bool) {
	if l.State != feed.StateSplitting {
		return j, false
	}
	return notes.ReadJoining(l.Properties[notes.JoiningProperty])
}

// Replaced says what is done to a splitting lease, as a participle: others are about to replace it.
func Replaced(l feed.Record) string {
	if _, joins := JoiningOf(l); joins {
		return "joined with a neighbour"
	}
	return "split"
}

// EndJoining makes a lease live again that is not joined after all.
func EndJoining(l *feed.Record) {
	l.State = feed.StateLive
	SetProperty(l, notes.JoiningProperty, "")
}
