package leasedoc

import "sync"

// UnitPrefix is the prefix of the ids of a unit's documents, as a lease store finds it out. A unit that does not exist
// yet may be made by a processor that calls this machine by another name. So the prefix may change until a lease or
// marker of the unit is seen or made; then it is final. You may call the methods concurrently.
type UnitPrefix struct {
	unit Unit

	mu     sync.Mutex
	prefix string
	final  bool
}

// NewUnitPrefix returns the prefix of a unit without documents.
func NewUnitPrefix(u Unit) *UnitPrefix { return &UnitPrefix{unit: u, prefix: u.Choose(nil)} }

// Learn chooses the prefix by the ids of documents, unless the prefix is final.
func (p *UnitPrefix) Learn(ids ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.final {
		p.prefix, p.final = p.unit.Choose(ids), p.unit.Begun(ids...)
	}
}

// Keep makes the prefix final and returns it.
func (p *UnitPrefix) Keep() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.final = true
	return p.prefix
}

// String returns the present prefix.
func (p *UnitPrefix) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.prefix
}

// MayChange reports whether the unit may still be made under another name of this machine.
func (p *UnitPrefix) MayChange() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.final && len(p.unit.Prefixes()) > 1
}
