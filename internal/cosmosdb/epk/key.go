package epk

// Marker bytes. Each component begins with its marker, in both forms. The gaps are markers of the service for types
// that are not allowed in partition keys.
const (
	markUndefined byte = 0x00
	markNull      byte = 0x01
	markFalse     byte = 0x02
	markTrue      byte = 0x03
	markNumber    byte = 0x05
	markString    byte = 0x08
)

// Component is the value at a partition key path. The zero Component is undefined: the
// item has no value at that path. Components are comparable.
type Component struct {
	mark byte
	num  float64
	str  string
}

// Components is a partition key: a component for each path, or fewer for a prefix of a
// hierarchical key.
type Components []Component

// Null returns the component for a JSON null.
func Null() Component { return Component{mark: markNull} }

// Bool returns the component for b.
func Bool(b bool) Component {
	if b {
		return Component{mark: markTrue}
	}
	return Component{mark: markFalse}
}

// Number returns the component for f.
func Number(f float64) Component { return Component{mark: markNumber, num: f} }

// String returns the component for s.
func String(s string) Component { return Component{mark: markString, str: s} }
